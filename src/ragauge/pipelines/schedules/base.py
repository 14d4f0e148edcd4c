"""What all schedules share. A schedule is a file in this folder with one class below `Schedule`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ragauge.errors import SettingError
from ragauge.pipelines.sources import BlockingRetrieval, NeighbourSource, Note, RetrievalOptions
from ragauge.pipelines.windows import CHUNK, Windows

if TYPE_CHECKING:
    from ragauge.pipelines.database.database import Database
    from ragauge.pipelines.reader import Prepare


@dataclass(frozen=True)
class SequenceInputs:
    """One sequence of text, and where its neighbours can come from."""

    note: Note  # takes the retrievals' calls
    key: str  # random neighbours depend on it and on the seed
    document: int  # the sequence's own in the database; -1: none
    searcher: Any = None  # returns neighbours, where the schedule queries an index
    passages: Database | None = None  # chunks by number, where neighbours are drawn at random
    # seconds that a search may take next to the window after n tokens
    budget: Callable[[int], float] | None = None
    # reads neighbours before their window begins; None: that cannot be
    prepare: Prepare | None = None


@dataclass(frozen=True)
class Schedule:
    """When the database is queried, with which tokens, and when generation waits.

    Raises:
        SettingError: .
    """

    interval: int = CHUNK  # tokens between retrievals
    neighbours: int = 2  # per retrieval
    # hide: as many lists as a search next to decoding can scan
    nprobe: int | Literal["hide"] | None = None
    # with hide: of the first search, which nothing hides; None: the index's own
    first_nprobe: int | None = None
    # article: no neighbours from the sequence's own document
    exclude: Literal["none", "article"] = "none"
    read_ahead: bool = True  # whether prefetched neighbours are read by the thread that searches
    # of neighbours that stay: every_window, as PipeRAG's released scoring of one retrieval
    encoding: Literal["once", "every_window"] = "once"
    seed: int = 0  # of random neighbours

    reads_neighbours: ClassVar[bool] = True  # False: the decoder alone
    queries_index: ClassVar[bool] = True  # False: needs no index and no server
    every_window: ClassVar[bool] = True  # new neighbours after the first window as well
    # a window's query is that of the window before, so that it is sent early
    stale: ClassVar[bool] = False

    def __post_init__(self) -> None:
        Windows(self.interval)
        if self.nprobe == "hide" and not self.stale:
            name = type(self).__module__.rpartition(".")[2]
            raise SettingError(
                "nprobe",
                f"'hide' requires a schedule that searches ahead, such as 'piperag', not {name!r}",
            )
        if self.encoding != "once" and (self.every_window or not self.reads_neighbours):
            raise SettingError(
                "encoding",
                f"{self.encoding!r} requires a schedule whose neighbours stay: retrieve_once",
            )
        if self.first_nprobe and self.nprobe != "hide":
            raise SettingError(
                "first_nprobe",
                "only valid with nprobe 'hide'; another nprobe is that of every search",
            )

    @classmethod
    def reads_at(cls, window: int) -> bool:
        """Return whether a window gets neighbours of its own; where not, those of the window before
        stay.
        """
        return cls.reads_neighbours and (window == 0 or cls.every_window)

    def source(self, sequence: SequenceInputs) -> NeighbourSource:
        """Return the source of the neighbours of one sequence; here retrievals that generation
        waits for.
        """
        return BlockingRetrieval(
            self.retrieval(sequence),
            self.windows,
            sequence.note,
            self.reads_at,
            self.encoding == "every_window",
        )

    @cached_property
    def windows(self) -> Windows:
        return Windows(self.interval, stale=self.stale)

    def retrieval(self, sequence: SequenceInputs) -> RetrievalOptions:
        """How the index is queried for the neighbours of a sequence."""
        return RetrievalOptions(
            sequence.searcher,
            self.neighbours,
            self.first_nprobe if self.nprobe == "hide" else self.nprobe,
            sequence.budget if self.nprobe == "hide" else None,
            self.excluded_documents(sequence),
        )

    def excluded_documents(self, sequence: SequenceInputs) -> frozenset[int]:
        """Documents of which no neighbour is taken."""
        excludes_article = self.exclude == "article" and sequence.document >= 0
        return frozenset({sequence.document} if excludes_article else ())
