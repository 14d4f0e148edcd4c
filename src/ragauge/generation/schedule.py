"""The ways of generating that are compared, each a name and a few numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from ragauge.errors import UserError, unknown
from ragauge.generation.reader import Prepare
from ragauge.generation.sources import (
    Ask,
    Chance,
    Fresh,
    NoNeighbours,
    Note,
    Passages,
    Prefetched,
    Source,
    sequence_rng,
)
from ragauge.generation.windows import CHUNK, Windows

Kind = Literal["no_retrieval", "retrieve_once", "random", "retro", "retro_plus", "piperag"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Exclude = Literal["none", "article"]


@dataclass(frozen=True)
class Schedule:
    """When the database is asked, with what, and what generation waits for.

    `retrieve_once` asks once; `retro` every 64 tokens with the 64 before; `retro_plus` at any interval; `piperag` at
    any interval, one window ahead and beside decoding; `random` takes neighbours by chance in retro_plus's place.
    """

    kind: Kind = "retro"
    interval: int = CHUNK  # tokens between retrievals
    k: int = 2  # neighbours
    nprobe: int | None = None  # inverted lists scanned; None: the index's own number
    hide: bool = False  # S3: as many inverted lists as the window beside which the search runs has time for
    exclude: Exclude = "none"  # `article`: neighbours from the sequence's own article are passed over
    characters: int | None = None  # ask with the last characters of the query's text, as the released code does
    seed: int = 0  # of random neighbours
    read_ahead: bool = True  # under `piperag`: the thread that asks reads the neighbours too, beside decoding

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("schedule", self.kind, KINDS)
        if self.exclude not in get_args(Exclude):
            raise unknown("exclude", self.exclude, get_args(Exclude))
        if self.kind == "retro" and self.interval != CHUNK:
            raise UserError(
                f"schedule 'retro' asks every {CHUNK} tokens, not {self.interval}; retro_plus at any interval"
            )
        if self.k < 1:
            raise UserError(f"k: must be at least 1, not {self.k}")
        if self.hide and (self.kind != "piperag" or self.nprobe is not None):
            raise UserError("a search is hidden by choosing nprobe under the schedule 'piperag' alone")
        self.windows  # noqa: B018 (an interval that does not fit is refused here)

    @cached_property
    def windows(self) -> Windows:
        """The retrieval windows."""
        return Windows(self.interval, stale=self.kind == "piperag")

    @property
    def asks(self) -> bool:
        """Whether it needs a retriever."""
        return self.kind not in ("no_retrieval", "random")

    def source(
        self,
        note: Note,
        key: str,
        document: int,
        *,
        searcher: Any = None,
        passages: Passages | None = None,
        tokenizer: Any = None,
        budget: Callable[[int], float] | None = None,
        prepare: Prepare | None = None,
    ) -> Source:
        """The neighbours of one sequence.

        Args:
            note: takes the retrievals' calls.
            key: of the sequence; random neighbours depend on it and on the seed.
            document: the sequence's own in the database; -1 for none.
            searcher: asked for neighbours, where the schedule asks.
            passages: drawn from, where neighbours are random.
            tokenizer: decodes queries that are sent as text.
            budget: seconds that a search ahead of time may take after so many tokens, where `hide`.
            prepare: reads neighbours ahead of time, where `read_ahead`.
        """
        if self.kind == "no_retrieval":
            return NoNeighbours()
        exclude = frozenset({document} if self.exclude == "article" and document >= 0 else ())
        if self.kind == "random":
            assert passages is not None
            return Chance(passages, self.windows, sequence_rng(self.seed, key), self.k, exclude)
        ask = Ask(
            searcher,
            self.k,
            self.nprobe,
            budget if self.hide else None,
            tokenizer.decode if self.characters else None,
            self.characters,
            exclude,
        )
        if self.kind == "piperag":
            return Prefetched(ask, self.windows, note, prepare if self.read_ahead else None)
        return Fresh(ask, self.windows, note, once=self.kind == "retrieve_once")
