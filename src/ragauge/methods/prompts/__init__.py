"""Prompts: templates, segments, the graph of which segment attends to which, and token positions."""

from ragauge.methods.prompts.graph import (
    LAYOUTS,
    PREAMBLE,
    TASK,
    Name,
    PromptGraph,
    Segment,
    equilibrium,
    unit_segment,
    unit_steps,
)
from ragauge.methods.prompts.prompt import (
    Prompt,
    PromptStyle,
    Source,
    build_prompt,
    corpus_spacing,
    cut_middle,
)

__all__ = [
    "LAYOUTS",
    "PREAMBLE",
    "TASK",
    "Name",
    "Prompt",
    "PromptGraph",
    "PromptStyle",
    "Segment",
    "Source",
    "build_prompt",
    "corpus_spacing",
    "cut_middle",
    "equilibrium",
    "unit_segment",
    "unit_steps",
]
