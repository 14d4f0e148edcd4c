"""Retrieval before generation alone, as in plain retrieval-augmented generation."""

from dataclasses import dataclass
from typing import ClassVar

from ragauge.pipelines.schedules.base import Schedule


@dataclass(frozen=True)
class RetrieveOnce(Schedule):
    """Queries once, with the first 64 tokens, and waits for the reply; the neighbours stay to the
    end.
    """

    every_window: ClassVar[bool] = False
