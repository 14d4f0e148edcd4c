"""Parallel Context Windows (Ratner et al., ACL 2023)."""

from dataclasses import dataclass

from ragauge.engines.protocol import SpanEngine
from ragauge.methods.base.method import State
from ragauge.methods.base.windows import (
    Indent,
    ReadWindows,
    Windowed,
    read_windows,
    split_paths,
)
from ragauge.methods.prompts import Prompt
from ragauge.options import PositiveInt


@dataclass(frozen=True)
class ParallelWindows(Windowed):
    """Documents are read alone, at the same positions, each behind the begin of text; the question
    sees them all.

    Section 2 of the paper; released code: AI21Labs/Parallel-Context-Windows, `pcw_wrapper.py`. The
    question stands after the longest window. The paper's prompts have no preamble: here it stands
    before the windows, and its first token is every window's begin of text (a copy of its own would
    have the same keys and values), also where the tokenizer has none. With `shared_prefix` a window
    reads the whole preamble: one window is then the naive prompt.
    """

    # adjacent documents are joined into so many; None: one each
    windows: PositiveInt | None = None
    indent: Indent = "left"  # windows begin together, or end together (the released code's option)
    shared_prefix: bool = False  # windows see the whole preamble

    def usable_state(self) -> State:
        return "documents" if self.windows is None and self.indent == "left" else "set"

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> ReadWindows:
        paths = split_paths(len(prompt.documents), self.windows)
        return read_windows(
            engine,
            prompt,
            paths,
            sees="preamble" if self.shared_prefix else "first_token",
            indent=self.indent,
        )
