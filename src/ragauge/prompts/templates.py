"""The words of a prompt: what opens it, how a document and a question are written, what asks for an answer."""

from typing import Any, Literal, get_args

from ragauge.errors import UserError, unknown

_PLACEHOLDER = "\u241e"  # stands for the user's turn while a chat template is rendered; no prompt holds it

CONTEXT, INPUT = "{context}", "{input}"  # where LongBench's prompts have the documents and the question

Template = Literal["alpaca", "chat", "llama2", "plain", "vicuna"]
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


def turn(template: str, tokenizer: Any) -> tuple[list[int], list[int]]:
    """`wrapper` as token ids: (opening, with what the tokenizer puts before any text; task)."""
    opening, task = wrapper(template, tokenizer)
    return token_ids(tokenizer, opening, template), token_ids(tokenizer, task)


def token_ids(tokenizer: Any, text: str, template: str | None = None) -> list[int]:
    """A piece of a prompt as token ids, without special tokens around it.

    Args:
        template: of the prompt, if the piece begins it: then the tokenizer adds what it puts before any text, unless
            the template is "chat", which writes its own begin-of-text.
    """
    ids: list[int] = tokenizer(text, add_special_tokens=template not in (None, "chat"))["input_ids"]
    return ids


def document_text(title: str, text: str) -> str:
    """A document as the prompt shows it (Lost in the Middle's form without its number, as the paper has it)."""
    return f"[Document](Title: {title}) {text}"


def query_text(question: str) -> str:
    """The question as the prompt shows it, a question mark added where there is none."""
    question = question.strip()
    return f"Question: {question if question.endswith('?') else question + '?'}"
