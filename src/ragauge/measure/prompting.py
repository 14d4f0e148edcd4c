"""The prompt of a question, and the limits of its answer, under a specification."""

from dataclasses import replace
from typing import Any, cast

from ragauge.assets.catalog import Tokenization
from ragauge.datasets.base.dataset import Example
from ragauge.engines.protocol import Limits
from ragauge.io.specifications import AnswerSpecification
from ragauge.methods.prompts import Prompt, PromptStyle, Source, build_prompt


def limits(specification: AnswerSpecification) -> Limits:
    """The limits of a response. In a chat, which a model ends by a mark, line ends before its text
    end nothing: an instruct model that is unsure of its turn writes the marks of further turns
    first, each with a line end. Nor do they under the data set's option `several_lines`.
    """
    most = (
        Limits.max_new_tokens
        if specification.max_new_tokens is None
        else specification.max_new_tokens
    )
    stop = () if specification.dataset_options.get("several_lines") else Limits.stop
    return Limits(most, stop, skip_blanks=specification.template == "chat")


def prompt_of(
    example: Example, specification: AnswerSpecification, tokenizer: Any, context: int | None = None
) -> Prompt:
    """The example's prompt under the specification's template and instruction. Prompts in
    LongBench's form are truncated to the model's `context`, in tokens, or to the data set's option
    `max_length` if that is less.
    """
    longest = [context - limits(specification).max_new_tokens] if context else []
    if specification.dataset_options.get("max_length"):
        longest.append(specification.dataset_options["max_length"])
    style = PromptStyle(
        specification.instruction,
        specification.template,
        cast(Tokenization, specification.tokenization),
        specification.dataset_options.get("blank_line", False),
        min(longest, default=None),
    )
    prompt = build_prompt(
        example.question,
        [(d.title, d.text) for d in example.documents],
        style,
        tokenizer,
        gold=example.gold,
        gold_sources=[
            Source(s.document, "", example.documents[s.document].text[s.start : s.stop], s.start)
            for s in example.gold_stretches
        ],
    )
    return replace(prompt, corpus_spacing=specification.corpus_spacing)
