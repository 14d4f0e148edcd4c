"""Prompt Cache (Gim et al. 2024), as the Superposition paper compares with it."""

from dataclasses import dataclass

from ragauge.engines.protocol import SpanEngine
from ragauge.methods.base.windows import ReadWindows, Windowed, read_windows, split_paths
from ragauge.methods.prompts import Prompt


@dataclass(frozen=True)
class PromptCache(Windowed):
    """Every document is a module of its own, cached without attending to the preamble; the query
    attends to all.

    Documents are left-aligned after the preamble and none is dropped.
    """

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> ReadWindows:
        return read_windows(
            engine, prompt, split_paths(len(prompt.documents)), sees="nothing", parallel=True
        )
