"""Rows of tokens through the torch decoder: batched by length, long ones in chunks, and what is asked of each."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ragauge.engines.cache import KVCache
from ragauge.engines.decoder import Decoder, Part
from ragauge.engines.layout import Layout, following, lay_out, lay_out_in_place, lay_out_tree
from ragauge.engines.observation import AttentionMean
from ragauge.engines.protocol import Extension, Observed, Row, Span

BATCH_TOKENS = 4096  # new tokens of one forward pass over several rows
ROPE_CHUNK = 8192  # new tokens of one forward pass over one long row
MASK_CHUNK = 512  # the same where the mask is a matrix of its own (head, query, key) in fp32: ALiBi, rows in place
LOGIT_CHUNK = 512  # positions whose vocabulary logits are held at one time

Arrangement = Callable[[Sequence[Row], KVCache], Layout]


@dataclass(frozen=True)
class CallOptions:
    """The options of one call, complete with their defaults; see `ExtendOptions`."""

    stage: str = ""
    offline: bool = False
    parallel: bool = False
    last_logits: bool = False
    logp: bool = False
    logits_at: Sequence[Sequence[int]] = ()
    attention: Observed | None = None
    tree: bool = False
    layers: tuple[int, int] | None = None

    @property
    def spans_alone(self) -> bool:
        """Whether only the cache's new content is asked for (and log-probabilities, which a store keeps)."""
        return not (self.last_logits or self.logits_at or self.attention or self.layers)


@dataclass(frozen=True)
class Piece:
    """New tokens of one pass; its result is their states (token, d_model)."""

    x: Tensor  # (token, d_model): what the first of the layers reads
    part: Part
    layers: tuple[int, int] | None = None


@dataclass(frozen=True)
class Head:
    """States whose logits are wanted; its result is (token, vocab)."""

    hidden: Tensor  # (token, d_model), normed


Result = TypeVar("Result")
Requests = Generator[Piece | Head, Tensor, Result]
"""A call as its requests, one after another; it is sent the result of each before it makes the next."""


class Passes:
    """Forward passes of one decoder."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.shape = decoder, decoder.shape
        self.device = decoder.weights.embedding.device

    def extend(self, cache: KVCache, rows: Sequence[Row], asked: CallOptions) -> Extension:
        """Read the rows into the cache; see `SpanEngine.extend`."""
        return self.alone(self.reading(cache, rows, asked))

    def alone(self, requests: Requests[Result]) -> Result:
        """What a call returns when its requests are answered one after another."""
        try:
            request = next(requests)
            while True:
                request = requests.send(self._answered(request))
        except StopIteration as end:
            result: Result = end.value
            return result

    def decoding(
        self, cache: KVCache, ids: list[int], position: float, most: int, ended: Callable[[Sequence[int]], bool] | None
    ) -> Requests[list[int]]:
        """The requests of `RecordedEngine.decode`, a token at a time."""
        while len(ids) < most and not (ended and ended(ids)):
            past = cache.length
            layout = Layout(past, (1,), (past,), True, None, None, None, runs=following(past, 1))
            at = torch.tensor([position + len(ids) - 1], dtype=torch.float32, device=self.device)
            x = self.decoder.embedded(torch.tensor(ids[-1:], device=self.device))
            states = yield Piece(x, Part(at, cache, layout))
            logits = yield Head(self.decoder.weights.norm(states))
            ids.append(int(logits[0].argmax()))
        return ids

    def reading(self, cache: KVCache, rows: Sequence[Row], asked: CallOptions) -> Requests[Extension]:
        """The requests of `extend`."""
        watch = None
        if asked.attention:
            first, last = asked.layers or (0, self.shape.layers)
            watch = AttentionMean(last - first, asked.attention, rows, self.device)
        spans: dict[int, Span] = {}
        states: dict[int, Tensor] = {}
        for batch in _batches(rows, self._chunk(rows)):
            for index, part, span in (yield from self._batch(cache, rows, batch, watch, asked)):
                spans[index], states[index] = span, part
        order = range(len(rows))
        return (yield from self._answer(rows, [spans[i] for i in order], [states[i] for i in order], asked, watch))

    def _answered(self, request: Piece | Head) -> Tensor:
        if isinstance(request, Head):
            return self.decoder.logits(request.hidden)
        return self.decoder.read(request.x, [request.part], request.layers)

    def piece(
        self,
        cache: KVCache,
        rows: Sequence[Row],
        batch: Sequence[int],
        watch: AttentionMean | None = None,
        asked: CallOptions = CallOptions(),
    ) -> Piece:
        """The request of one pass over the rows' tokens, packed."""
        positions = torch.tensor([p for r in rows for p in r.positions], dtype=torch.float32, device=self.device)
        layout = _arrangement(rows, asked)(rows, cache)
        observe = watch.observer(layout, batch) if watch else None
        if rows[0].states is None:
            ids = torch.tensor([t for r in rows for t in r.ids], device=self.device)
            x = self.decoder.embedded(ids)
        else:
            x = torch.cat([r.states for r in rows if r.states is not None])
        return Piece(x, Part(positions, cache, layout, observe), asked.layers)

    def _chunk(self, rows: Sequence[Row]) -> int:
        masked = self.shape.position == "alibi" or any(r.slots is not None for r in rows)
        return MASK_CHUNK if masked else ROPE_CHUNK

    def _batch(
        self, cache: KVCache, rows: Sequence[Row], batch: Sequence[int], watch: AttentionMean | None, asked: CallOptions
    ) -> Requests[list[tuple[int, Tensor, Span]]]:
        """One batch of rows (or the chunks of one long row) through the decoder: (row index, states, span) of each."""
        chunk, start = self._chunk(rows), cache.length
        if len(batch) == 1:
            row = rows[batch[0]]
            parts = []
            for piece in _pieces(row, cache, chunk) if len(row.ids) > chunk else [row]:
                states = yield self.piece(cache, [piece], batch, watch, asked)
                parts.append(states)
            span = Span(start, cache.length) if row.slots is None else Span(min(row.slots), max(row.slots) + 1)
            return [(batch[0], torch.cat(parts) if len(parts) > 1 else parts[0], span)]
        states = yield self.piece(cache, [rows[i] for i in batch], batch, watch, asked)
        found = []
        for index, part in zip(batch, states.split([len(rows[i].ids) for i in batch]), strict=True):
            found.append((index, part, Span(start, start + part.shape[0])))
            start += part.shape[0]
        return found

    def _answer(
        self,
        rows: Sequence[Row],
        spans: list[Span],
        states: list[Tensor],
        asked: CallOptions,
        watch: AttentionMean | None,
    ) -> Requests[Extension]:
        whole = asked.layers is None or asked.layers[1] == self.shape.layers
        final = [self.decoder.weights.norm(h) for h in states] if whole else []
        return Extension(
            tuple(spans),
            (yield Head(torch.stack([h[-1] for h in final]))) if asked.last_logits else None,
            self._logp(rows, final) if asked.logp else (),
            watch.means() if watch else (),
            tuple(self.decoder.logits(h[list(at)]) for h, at in zip(final, asked.logits_at, strict=True))
            if any(asked.logits_at)
            else (),
            tuple(states) if asked.layers else (),
        )

    def _logp(self, rows: Sequence[Row], states: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Log-probability of every token of a row but its first."""
        before = torch.cat([h[:-1] for h in states])
        targets = torch.tensor([t for r in rows for t in r.ids[1:]], dtype=torch.long, device=self.device)
        parts = [
            self.decoder.log_probabilities(h, t)
            for h, t in zip(before.split(LOGIT_CHUNK), targets.split(LOGIT_CHUNK), strict=True)
        ]
        return torch.cat(parts).split([len(r.ids) - 1 for r in rows])


def _arrangement(rows: Sequence[Row], asked: CallOptions) -> Arrangement:
    if rows[0].slots is not None:
        return lay_out_in_place
    return lay_out_tree if asked.tree else lay_out


def _batches(rows: Sequence[Row], chunk: int) -> Iterator[list[int]]:
    """Row indices by passes: similar lengths together, up to BATCH_TOKENS a pass; long rows and rows in place alone."""
    budget = min(BATCH_TOKENS, chunk)
    if any(row.slots is not None for row in rows):
        yield from ([index] for index in range(len(rows)))
        return
    batch: list[int] = []
    for index in sorted(range(len(rows)), key=lambda i: len(rows[i].ids)):
        if batch and sum(len(rows[i].ids) for i in batch) + len(rows[index].ids) > budget:
            yield batch
            batch = []
        batch.append(index)
    yield batch


def _pieces(row: Row, cache: KVCache, chunk: int) -> Iterator[Row]:
    """A long row as chunks, each attending to the row's past and to the chunks before it."""
    first = cache.length
    for start in range(0, len(row.ids), chunk):
        done = (Span(first, cache.length),) if start else ()
        part = slice(start, start + chunk)
        slots = None if row.slots is None else row.slots[part]
        states = None if row.states is None else row.states[part]
        yield Row(row.ids[part], row.positions[part], (*row.past, *done), slots, states)
