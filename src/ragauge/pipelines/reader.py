"""The interface of models that read neighbours, and what readers over one decoder share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ragauge.cost.trace import Call, Trace
from ragauge.engines.cache import KVCache
from ragauge.engines.lm import LM
from ragauge.engines.passes import likeliest
from ragauge.engines.protocol import Limits, Traced
from ragauge.engines.spans import Row, Span

Tokens = Sequence[int]


@dataclass(frozen=True)
class Prepared:
    """Neighbours that were read, and are not attended to yet."""

    calls: tuple[Call, ...]  # that read them
    # lets tokens read from now on attend to them; called where the sequence is read
    put: Callable[[], None]


Prepare = Callable[[Sequence[Tokens], int], Prepared]
"""Reads the neighbours of the window that begins after so many tokens, without changing what is
attended to now.
"""


class NeighbourModel(Protocol):
    """A model that reads neighbours, on any engine: it opens sequences and records its calls."""

    tokenizer: Any

    def open(self, tokens: int, neighbour_tokens: int = 0) -> SequenceReader:
        """Return a reader with room for a sequence of `tokens` and neighbours of `neighbour_tokens`
        in all.
        """

    def tracing(self) -> AbstractContextManager[Trace]:
        """Record every call made inside the block into the list it yields."""

    def synchronize(self) -> None:
        """Wait for the device."""


class DecoderModel:
    """What each `NeighbourModel` over the engine's decoder takes from it."""

    def __init__(self, lm: LM) -> None:
        self.lm = lm
        self.tokenizer = lm.tokenizer
        self.tracing = lm.tracing
        self.synchronize = lm.synchronize


class SequenceReader(ABC):
    """One sequence as it is read: a cache of its tokens and the neighbours that new tokens attend
    to.
    """

    def __init__(self, lm: Traced) -> None:
        self.lm = lm
        self.length = 0  # tokens read
        self.note = lm.note  # adds a call that was made elsewhere (a retrieval) to the trace

    @abstractmethod
    def attach(self, neighbours: Sequence[Tokens]) -> None:
        """Let tokens read from now on attend to these neighbours, and no more to those attached
        before.
        """

    @abstractmethod
    def read(self, ids: Tokens) -> Tensor:
        """Read the next tokens of the sequence; the logits after each: (token, vocab)."""

    @abstractmethod
    def decode(self, logits: Tensor, tokens: int) -> list[int]:
        """Greedy continuation by that many tokens after logits (vocab,); the last of them is not
        read yet.
        """

    def decode_with(
        self, step: Callable[[Tokens], Tensor], logits: Tensor, tokens: int, past: int
    ) -> list[int]:
        """Decode by a function that reads tokens and returns their logits; the first step attends
        to `past` tokens.
        """
        started = time.perf_counter()
        ids = [likeliest(logits)]
        while len(ids) < tokens:
            ids.append(likeliest(step(ids[-1:])[-1]))
        if steps := len(ids) - 1:
            self.note(
                Call(
                    "decode",
                    (1,),
                    (past,),
                    logits=(1,),
                    steps=steps,
                    seconds=time.perf_counter() - started,
                )
            )
        return ids


class PreparingReader(SequenceReader):
    """A reader that can read neighbours before their window begins."""

    @abstractmethod
    def prepare(self, neighbours: Sequence[Tokens], length: int) -> Prepared:
        """See `Prepare`. One other thread may call it during `read` and `decode`."""

    def attach(self, neighbours: Sequence[Tokens]) -> None:
        prepared = self.prepare(neighbours, self.length)
        for call in prepared.calls:
            self.note(call)
        prepared.put()


class CachedReader(PreparingReader):
    """A reader over the engine's decoder: the whole cache is attended to, neighbours in it or not."""

    lm: LM

    def __init__(self, lm: LM, cache: KVCache) -> None:
        super().__init__(lm)
        self._cache = cache

    def read(self, ids: Tokens) -> Tensor:
        row = Row(ids, range(self.length, self.length + len(ids)), (Span(0, self._cache.length),))
        [logits] = self.lm.extend(
            self._cache, [row], stage="read", logits_at=[range(len(ids))]
        ).logits
        self.length += len(ids)
        return logits

    def decode(self, logits: Tensor, tokens: int) -> list[int]:
        ids = self.lm.generate(self._cache, logits, self.length, Limits(tokens, ignore_stop=True))
        self.length += len(ids) - 1
        return ids
