"""The words of a prompt: what opens it, how a document and a question are written, what asks for an answer."""

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal, get_args

from ragauge.errors import UserError, unknown

_PLACEHOLDER = "\u241e"  # stands for the user's turn while a chat template is rendered; no prompt holds it

LINE_END = "\n"  # what stands before a piece of a prompt, as far as its tokens depend on it

_SENTENCE_END = re.compile(r"[?!.:…‼⁇⁈⁉？！。．：｡﹖﹗؟۔՞։।॥።፧\u037e]\W*$")

CONTEXT, INPUT = "{context}", "{input}"  # where LongBench's prompts have the documents and the question

Template = Literal["alpaca", "chat", "llama2", "plain", "vicuna"]
TEMPLATES: tuple[str, ...] = get_args(Template)
Tokenization = Literal["whole", "segments"]

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


def wrapper(template: str, tokenizer: Any = None) -> tuple[str, str]:
    """What stands before and after the user's words: (opening, task).

    Args:
        template: "chat" takes both from the tokenizer's own chat template; "alpaca" is the instruction wrapper that
            the Superposition paper uses for BLOOMZ, MPT and OpenELM; "llama2" and "vicuna" are the conversation forms
            that Llama 2 (without a system prompt) and Vicuna 1.5 were trained on; "plain" has a bare "Answer:".

    Raises:
        UserError: unknown template; "chat" with a tokenizer that has no chat template.
    """
    if template != "chat":
        if template not in _TURNS:
            raise unknown("template", template, TEMPLATES)
        return _TURNS[template]
    if not tokenizer.chat_template:
        raise UserError("template 'chat': the model's tokenizer has no chat template; use 'alpaca' or 'plain'")
    turn = [{"role": "user", "content": _PLACEHOLDER}]
    text: str = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    opening, _, task = text.partition(_PLACEHOLDER)
    return opening, task


def token_ids(tokenizer: Any, text: str, template: str | None = None) -> list[int]:
    """A piece of a prompt as token ids, without special tokens around it.

    Args:
        template: of the prompt, if the piece begins it: then the tokenizer adds what it puts before any text, unless
            the template is "chat", which writes its own begin-of-text. Any other piece is tokenised as inside a text.
    """
    if template is None:
        return list(tokens_inside(tokenizer, text)["input_ids"])
    ids: list[int] = tokenizer(text, add_special_tokens=template != "chat")["input_ids"]
    return ids


def tokens_inside(tokenizer: Any, text: str, **options: Any) -> Mapping[str, Any]:
    """Tokenise a text as what follows a line end, without the blank that SentencePiece puts before a text.

    Args:
        options: of the tokenizer, such as `return_offsets_mapping`.
    """
    options["add_special_tokens"] = False
    anchor = tokenizer(LINE_END, add_special_tokens=False)["input_ids"]
    if len(anchor) > 1:  # the blank and the line end
        read = tokenizer(LINE_END + text, **options)
        if read["input_ids"][: len(anchor)] == anchor:
            rest = {key: values[len(anchor) :] for key, values in read.items()}
            if offsets := rest.get("offset_mapping"):
                rest["offset_mapping"] = [(start - len(LINE_END), stop - len(LINE_END)) for start, stop in offsets]
            return rest
    encoding: Mapping[str, Any] = tokenizer(text, **options)
    return encoding


def ids_within(tokenizer: Any, left: str, text: str, right: str, template: str | None = None) -> list[int]:
    """Token ids that a text has between two others; those of the text alone where a token reaches over its edges."""
    (_, over_left), (ids, over_right), _ = cut_ids(tokenizer, (left, text, right), template)
    return token_ids(tokenizer, text, template) if over_left or over_right else ids


def cut_ids(tokenizer: Any, pieces: Sequence[str], template: str | None = None) -> list[tuple[list[int], bool]]:
    """Tokenise pieces as one text: the token ids that begin in each, and whether the last of them reaches beyond it."""
    options = {"add_special_tokens": template not in (None, "chat"), "return_offsets_mapping": True, "verbose": False}
    read = tokenizer("".join(pieces), **options)
    starts, edges = [start for start, _ in read["offset_mapping"]], list(accumulate(map(len, pieces)))
    cuts = pairwise([0, *(bisect_left(starts, edge) for edge in edges[:-1]), len(starts)])
    return [
        (list(read["input_ids"][a:b]), b > a and read["offset_mapping"][b - 1][1] > edge)
        for (a, b), edge in zip(cuts, edges, strict=True)
    ]


def document_text(title: str, text: str) -> str:
    """A document as the prompt shows it (Lost in the Middle's form without its number, as the paper has it)."""
    return f"[Document](Title: {title}) {text}"


def query_text(question: str) -> str:
    """The question as the prompt shows it, a question mark added where its sentence has no mark at its end."""
    question = question.strip()
    return f"Question: {question if ends_sentence(question) else question + '?'}"


def ends_sentence(text: str) -> bool:
    """Whether a text ends with a mark of any script that ends a sentence, perhaps inside quotes or brackets."""
    return _SENTENCE_END.search(text) is not None
