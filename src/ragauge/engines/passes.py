"""Rows of tokens through the torch decoder: batched by length, long ones in chunks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ragauge.engines.cache import KVCache
from ragauge.engines.decoder import Decoder
from ragauge.engines.layout import Layout, Part, causal_runs, lay_out, lay_out_in_place, lay_out_tree
from ragauge.engines.observation import AttentionMean
from ragauge.engines.protocol import Extension, Observed
from ragauge.engines.spans import Row, Span

BATCH_TOKENS = 4096  # new tokens of one forward pass over several rows
ROPE_CHUNK = 8192  # new tokens of one forward pass over one long row
MASK_CHUNK = 512  # the same where the mask is a matrix of its own (head, query, key) in fp32: ALiBi, rows in place
LOGIT_CHUNK = 512  # positions whose vocabulary logits are in memory together


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
    def storable(self) -> bool:
        """Whether the call returns only what a document store has: the cache's new content and log-probabilities."""
        return not (self.last_logits or self.logits_at or self.attention or self.layers)


@dataclass(frozen=True)
class StatesRequest:
    """New tokens of one pass through the layers; its result is their states (token, d_model)."""

    x: Tensor  # (token, d_model): what the first of the layers reads
    part: Part
    layers: tuple[int, int] | None = None


@dataclass(frozen=True)
class LogitsRequest:
    """States whose logits are needed; its result is (token, vocab)."""

    hidden: Tensor  # (token, d_model), normed


Result = TypeVar("Result")
Requests = Generator[StatesRequest | LogitsRequest, Tensor, Result]
"""A call as its requests, one after another; it is sent the result of each before it makes the next."""


class Passes:
    """Forward passes of one decoder."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.shape = decoder, decoder.shape
        self.device = decoder.weights.embedding.device

    def run(self, requests: Requests[Result]) -> Result:
        """Answer a call's requests one after another, by themselves; return the call's result."""
        try:
            request = next(requests)
            while True:
                if isinstance(request, LogitsRequest):
                    answer = self.decoder.logits(request.hidden)
                else:
                    answer = self.decoder.read(request.x, [request.part], request.layers)
                request = requests.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result

    def decoding(
        self, cache: KVCache, ids: list[int], position: float, most: int, ended: Callable[[Sequence[int]], bool] | None
    ) -> Requests[list[int]]:
        """The requests of `RecordedEngine.decode`, a token at a time."""
        while len(ids) < most and not (ended and ended(ids)):
            past = cache.length
            layout = Layout(past, (1,), (past,), runs=causal_runs(past, 1))
            at = torch.tensor([position + len(ids) - 1], dtype=torch.float32, device=self.device)
            x = self.decoder.embed(torch.tensor(ids[-1:], device=self.device))
            states = yield StatesRequest(x, Part(at, cache, layout))
            logits = yield LogitsRequest(self.decoder.weights.norm(states))
            ids.append(int(logits[0].argmax()))
        return ids

    def reading(self, cache: KVCache, rows: Sequence[Row], options: CallOptions) -> Requests[Extension]:
        """The requests of `SpanEngine.extend`."""
        observed = None
        if options.attention:
            first, last = options.layers or (0, self.shape.layers)
            observed = AttentionMean(last - first, options.attention, rows, self.device)
        masked = self.shape.position == "alibi" or any(row.slots is not None for row in rows)
        chunk = MASK_CHUNK if masked else ROPE_CHUNK
        spans, states = [Span(0, 0)] * len(rows), [torch.empty(0)] * len(rows)
        for batch in _batches(rows, chunk):
            start = cache.length
            together = yield from self._read_batch(cache, rows, batch, chunk, observed, options)
            for index, part in zip(batch, together.split([len(rows[i].ids) for i in batch]), strict=True):
                spans[index], states[index] = rows[index].written(start), part
                start += len(part)
        return (yield from self._extension(rows, spans, states, options, observed))

    def _read_batch(
        self,
        cache: KVCache,
        rows: Sequence[Row],
        batch: Sequence[int],
        chunk: int,
        observed: AttentionMean | None,
        options: CallOptions,
    ) -> Generator[StatesRequest, Tensor, Tensor]:
        """The packed states of one batch of rows, or of the chunks of one long row."""
        together = [rows[i] for i in batch]
        if len(batch) > 1 or len(together[0].ids) <= chunk:
            return (yield self.request(cache, together, batch, observed, options))
        parts = []
        for piece in _chunks(together[0], cache, chunk):
            parts.append((yield self.request(cache, [piece], batch, observed, options)))  # noqa: PERF401 (a generator)
        return torch.cat(parts)

    def request(
        self,
        cache: KVCache,
        rows: Sequence[Row],
        batch: Sequence[int],
        observed: AttentionMean | None = None,
        options: CallOptions = CallOptions(),
    ) -> StatesRequest:
        """The request of one pass over the rows' tokens, packed."""
        positions = torch.tensor([p for r in rows for p in r.positions], dtype=torch.float32, device=self.device)
        if rows[0].slots is not None:
            layout = lay_out_in_place(rows, cache)
        else:
            layout = lay_out_tree(rows, cache) if options.tree else lay_out(rows, cache)
        observe = observed.observer(layout, batch) if observed else None
        if rows[0].states is None:
            x = self.decoder.embed(torch.tensor([t for r in rows for t in r.ids], device=self.device))
        else:
            x = torch.cat([r.states for r in rows if r.states is not None])
        return StatesRequest(x, Part(positions, cache, layout, observe), options.layers)

    def _extension(
        self,
        rows: Sequence[Row],
        spans: list[Span],
        states: list[Tensor],
        options: CallOptions,
        observed: AttentionMean | None,
    ) -> Requests[Extension]:
        to_last_layer = options.layers is None or options.layers[1] == self.shape.layers
        final = [self.decoder.weights.norm(h) for h in states] if to_last_layer else []
        return Extension(
            tuple(spans),
            (yield LogitsRequest(torch.stack([h[-1] for h in final]))) if options.last_logits else None,
            self._logp(rows, final) if options.logp else (),
            observed.means() if observed else (),
            tuple(self.decoder.logits(h[list(at)]) for h, at in zip(final, options.logits_at, strict=True))
            if any(options.logits_at)
            else (),
            tuple(states) if options.layers else (),
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


def _chunks(row: Row, cache: KVCache, chunk: int) -> Iterator[Row]:
    """A long row as chunks, each attending to the row's past and to the chunks before it."""
    first = cache.length
    for start in range(0, len(row.ids), chunk):
        before = (Span(first, cache.length),) if start else ()
        part = slice(start, start + chunk)
        slots = None if row.slots is None else row.slots[part]
        states = None if row.states is None else row.states[part]
        yield Row(row.ids[part], row.positions[part], (*row.past, *before), slots, states)
