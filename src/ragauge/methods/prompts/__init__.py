"""Prompts: templates, segments, the graph of which segment attends to which, and token positions."""

from ragauge.methods.prompts.graph import (
    LAYOUTS,
    PREAMBLE,
    TASK,
    Name,
    PromptGraph,
    Segment,
    unit_steps,
)
from ragauge.methods.prompts.prompt import Prompt, Source, build_prompt, cut_middle

__all__ = [
    "LAYOUTS",
    "PREAMBLE",
    "TASK",
    "Name",
    "Prompt",
    "PromptGraph",
    "Segment",
    "Source",
    "build_prompt",
]
__all__ += ["cut_middle", "unit_steps"]
