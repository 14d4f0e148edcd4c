"""What all schedules share. A schedule is a file in this folder with one class below `Schedule`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ragauge.errors import SettingError
from ragauge.generation.sources import Ask, NeighbourSource, Note, Passages
from ragauge.generation.windows import Windows

if TYPE_CHECKING:
    from ragauge.generation.reader import Prepare
    from ragauge.generation.settings import PipelineSettings


@dataclass(frozen=True)
class SequenceInputs:
    """One sequence of text, and what its neighbours can be taken from."""

    note: Note  # takes the retrievals' calls
    key: str  # random neighbours depend on it and on the seed
    document: int  # the sequence's own in the database; -1: none
    searcher: Any = None  # asked for neighbours, where the schedule asks an index
    passages: Passages | None = None  # chunks by number, where neighbours are drawn at random
    tokenizer: Any = None  # decodes queries that are sent as text
    budget: Callable[[int], float] | None = None  # seconds that a search may take beside the window after n tokens
    prepare: Prepare | None = None  # reads neighbours ahead of time


@dataclass(frozen=True)
class Schedule(ABC):
    """When the database is asked, with what, and what generation waits for."""

    settings: PipelineSettings
    seed: int = 0  # of what is drawn at random

    reads_neighbours: ClassVar[bool] = True  # False: the decoder alone
    asks_index: ClassVar[bool] = True  # False: needs no index and no server
    every_window: ClassVar[bool] = True  # new neighbours after the first window as well
    stale: ClassVar[bool] = False  # a window's query is that of the window before, so that it is sent ahead of time

    @classmethod
    def check(cls, settings: PipelineSettings) -> None:
        """Raise SettingError if a setting does not go with this schedule."""
        if settings.chooses_nprobe and not cls.stale:
            message = f"'hide' requires a schedule that searches ahead, such as 'piperag', not {settings.schedule!r}"
            raise SettingError("nprobe", message)

    @classmethod
    def reads_at(cls, window: int) -> bool:
        """Whether a window gets neighbours of its own; where not, those of the window before stay."""
        return cls.reads_neighbours and (window == 0 or cls.every_window)

    @abstractmethod
    def source(self, sequence: SequenceInputs) -> NeighbourSource:
        """Where the neighbours of one sequence come from."""

    @cached_property
    def windows(self) -> Windows:
        """The retrieval windows."""
        return Windows(self.settings.interval, stale=self.stale)

    def ask(self, sequence: SequenceInputs) -> Ask:
        """How the index is asked for the neighbours of a sequence."""
        settings = self.settings
        return Ask(
            sequence.searcher,
            settings.neighbours,
            None if settings.nprobe == "hide" else settings.nprobe,
            sequence.budget if settings.chooses_nprobe else None,
            sequence.tokenizer.decode if settings.characters else None,
            settings.characters,
            self.passed_over(sequence),
        )

    def passed_over(self, sequence: SequenceInputs) -> frozenset[int]:
        """Documents of which no neighbour is taken."""
        own = self.settings.exclude == "article" and sequence.document >= 0
        return frozenset({sequence.document} if own else ())
