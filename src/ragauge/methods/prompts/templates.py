"""The words of a prompt: its opening, a document, a question, the request for an answer."""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import accumulate, pairwise
from typing import Any, get_args

from ragauge.assets.catalog import Template
from ragauge.assets.control_tokens import TemplateText, reader
from ragauge.errors import UserError, in_one_line, unknown

_MARK = "\u241e"
# stands for the user's words while a chat template is rendered; no prompt holds it
_TURN = f"Aa{_MARK}aA"
TEMPLATE_DATE = "2024-07-26"  # that Llama 3.1's template writes where it is given none
# of strftime
_DIRECTIVES = [f"%{flag}{letter}" for flag in ("", "-") for letter in "aAbBdejmyYHIMSp"]

LINE_END = "\n"  # what stands before a piece of a prompt, as far as its tokens depend on it

_SENTENCE_END = re.compile(r"[?!.:…‼⁇⁈⁉？！。．：｡﹖﹗؟۔՞։।॥።፧\u037e]\W*$")

CONTEXT = "{context}"
INPUT = "{input}"  # where LongBench's prompts have the documents and the question

TEMPLATES: tuple[str, ...] = get_args(Template)

_TURNS = {  # what stands before and after the user's words
    "alpaca": (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request."
        "\n\n### Instruction:\n",
        "\n\n### Response:\n",
    ),
    "llama2": ("[INST] ", " [/INST]"),
    "plain": ("", "\nAnswer:"),
    "vicuna": (
        "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, "
        "detailed, and polite answers to the user's questions. USER: ",
        " ASSISTANT:",
    ),
}


def set_template_arguments(tokenizer: Any, arguments: Mapping[str, Any], today: str | None) -> None:
    """Have a tokenizer's chat template rendered with these arguments, as on this date (ISO 8601)."""
    tokenizer.template_arguments = dict(arguments)
    tokenizer.template_date = today or TEMPLATE_DATE


def wrapper(
    template: str, tokenizer: Any = None, *, repeats: bool = False
) -> tuple[TemplateText, TemplateText]:
    """Return the words before and after the user's: (opening, task).

    "chat" takes both from the tokenizer's own chat template; "alpaca" is the instruction wrapper
    that the Superposition paper uses for BLOOMZ, MPT and OpenELM; "llama2" and "vicuna" are the
    conversation forms that Llama 2 (without a system prompt) and Vicuna 1.5 were trained on;
    "plain" has a bare "Answer:". Where the template `repeats` the user's words in the task,
    `after_turn` puts them there.

    Raises:
        UserError: an unknown template, and for "chat" with a tokenizer that has no chat template or
            one that cannot be used.
    """
    if template not in TEMPLATES:
        raise unknown("template", template, TEMPLATES)
    if template != "chat":
        opening, task = _TURNS[template]
    else:
        if not tokenizer.chat_template:
            raise UserError(
                "template 'chat': the model's tokenizer has no chat template; use 'alpaca' or 'plain'"
            )
        opening, _, task = _rendered(tokenizer, "user").partition(_TURN)
        if not task:
            raise _unusable("writes nothing after the user's words")
        if _TURN in task and not repeats:
            raise _unusable("repeats the user's words, which this method cannot")
    return TemplateText(opening), TemplateText(task)


def after_response(template: str, tokenizer: Any) -> TemplateText:
    """Return the words that a tokenizer's chat template writes after a response; none for the other
    templates.
    """
    written = _rendered(tokenizer, "user", "assistant") if template == "chat" else ""
    return TemplateText(written.rpartition(_TURN)[2])


def _rendered(tokenizer: Any, *roles: str) -> str:
    """Return the tokenizer's chat template around the turns of these roles, the content a text or,
    where it takes no text, parts.
    """
    options = dict(getattr(tokenizer, "template_arguments", {}))
    if "strftime_now" in str(tokenizer.chat_template):  # transformers gives the time of the call
        today = date.fromisoformat(getattr(tokenizer, "template_date", TEMPLATE_DATE))
        written = "".join(f"|replace('{mark}', '{today.strftime(mark)}')" for mark in _DIRECTIVES)
        macro = f"{{% macro strftime_now(format) %}}{{{{ format{written} }}}}{{% endmacro %}}\n"
        options["chat_template"] = macro + tokenizer.get_chat_template()
    problem = "does not show the user's words as they are"
    for content in (_TURN, [{"type": "text", "text": _TURN}]):
        turns = [{"role": role, "content": content} for role in roles]
        try:
            text = tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=roles[-1] == "user", **options
            )
        except Exception as error:  # a template is a program
            problem = f"cannot be rendered: {in_one_line(error)}"
            continue
        if _TURN in text and _MARK not in text.replace(_TURN, ""):
            return text
    raise _unusable(problem)


def _unusable(problem: str) -> UserError:
    return UserError(
        f"template 'chat': the model's chat template {problem}; use 'alpaca' or 'plain'"
    )


def after_turn(task: str, turn: Sequence[str]) -> list[str]:
    """Return the pieces that follow the user's turn; those of the turn once more where the template
    repeats it.
    """
    first, *others = map(TemplateText, task.split(_TURN))
    return [first, *(piece for other in others for piece in (*turn, other))]


def token_ids(tokenizer: Any, text: str | Sequence[str], template: str | None = None) -> list[int]:
    """Return a piece of a prompt as token ids; control tokens are words except in `TemplateText`.

    One that begins a prompt has its template: the tokenizer adds what it puts before any text, but
    no end after it, unless that is "chat", which writes its own begin-of-text. Any other piece is
    tokenised as inside a text.
    """
    if template is None:
        return list(tokens_inside(tokenizer, text)["input_ids"])
    reads, joined = reader(tokenizer, [text] if isinstance(text, str) else text)
    ids = list(reads(joined, add_special_tokens=template != "chat")["input_ids"])
    end = None if template == "chat" else getattr(tokenizer, "eos_token", None)
    has_end = (
        end and len(ids) > 1 and ids[-1] == tokenizer.eos_token_id and not joined.endswith(end)
    )
    return ids[:-1] if has_end else ids


def tokens_inside(tokenizer: Any, text: str | Sequence[str], **options: Any) -> Mapping[str, Any]:
    """Tokenise a text, or its pieces, as what follows a line end, without SentencePiece's blank
    before a text.
    """
    options["add_special_tokens"] = False
    anchor = tokenizer(LINE_END, add_special_tokens=False)["input_ids"]
    reads, joined = reader(tokenizer, [text] if isinstance(text, str) else text)
    if len(anchor) > 1:  # the blank and the line end
        read = reads(LINE_END + joined, **options)
        if read["input_ids"][: len(anchor)] == anchor:
            rest = {key: values[len(anchor) :] for key, values in read.items()}
            if offsets := rest.get("offset_mapping"):
                rest["offset_mapping"] = [
                    (start - len(LINE_END), stop - len(LINE_END)) for start, stop in offsets
                ]
            return rest
    return reads(joined, **options)


def ids_within(
    tokenizer: Any, left: str, text: str, right: str, template: str | None = None
) -> list[int]:
    """Return token ids that a text has between two others; those of the text alone where a token
    reaches over its edges.
    """
    (_, over_left), (ids, over_right), _ = cut_ids(tokenizer, (left, text, right), template)
    return token_ids(tokenizer, text, template) if over_left or over_right else ids


def cut_ids(
    tokenizer: Any, pieces: Sequence[str], template: str | None = None
) -> list[tuple[list[int], bool]]:
    """Tokenise pieces as one text: the token ids that begin in each, and whether the last of them
    reaches beyond it.
    """
    options = {
        "add_special_tokens": template not in (None, "chat"),
        "return_offsets_mapping": True,
        "verbose": False,
    }
    reads, joined = reader(tokenizer, pieces)
    read = reads(joined, **options)
    starts = [start for start, _ in read["offset_mapping"]]
    edges = list(accumulate(map(len, pieces)))
    cuts = pairwise([0, *(bisect_left(starts, edge) for edge in edges[:-1]), len(starts)])
    return [
        (list(read["input_ids"][a:b]), b > a and read["offset_mapping"][b - 1][1] > edge)
        for (a, b), edge in zip(cuts, edges, strict=True)
    ]


def document_text(title: str, text: str) -> str:
    """Return a document as the prompt shows it (Lost in the Middle's form without its number, as
    the paper has it).
    """
    return f"[Document](Title: {title}) {text}" if title else f"[Document] {text}"


def query_text(question: str) -> str:
    """Return the question as the prompt shows it, a question mark added where its sentence has no
    mark at its end.
    """
    question = question.strip()
    return f"Question: {question if ends_sentence(question) else question + '?'}"


def ends_sentence(text: str) -> bool:
    """Return whether a text ends with a mark of any script that ends a sentence, perhaps inside
    quotes or brackets.
    """
    return _SENTENCE_END.search(text) is not None
