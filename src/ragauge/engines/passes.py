"""Rows of tokens through the torch decoder: batched by length, long ones in chunks, attention
observed on request.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from ragauge.cost.flop import Layers
from ragauge.engines.cache import KVCache, Watch
from ragauge.engines.decoder import Decoder, scores
from ragauge.engines.layout import Layout, Part, lay_out, lay_out_in_place, lay_out_tree
from ragauge.engines.protocol import CallOptions, Extension
from ragauge.engines.spans import Row, Span, in_place
from ragauge.errors import UserError

BATCH_TOKENS = 4096  # new tokens of one forward pass over several rows
ROPE_CHUNK = 8192  # new tokens of one forward pass over one long row
# the same where the mask is a matrix of its own (head, query, key) in fp32 (ALiBi, rows in place),
# or windows hide keys
MASK_CHUNK = 512
LOGIT_CHUNK = 512  # positions whose vocabulary logits are in memory together


class NotFiniteError(UserError):
    """A model computed numbers that are none, so that every choice by them is meaningless."""


@dataclass(frozen=True)
class StatesRequest:
    """New tokens of one pass through the layers; its result is their states (token, d_model)."""

    x: Tensor  # (token, d_model): what the first of the layers reads
    part: Part
    layers: Layers = None


@dataclass(frozen=True)
class LogitsRequest:
    """States whose logits are needed; its result is (token, vocab)."""

    hidden: Tensor  # (token, d_model), normed


def check_finite(*computed: Tensor | None) -> None:
    """Raise NotFiniteError if numbers that a model computed are NaN or infinite."""
    if not all(n is None or n.sum(dtype=torch.float32).isfinite() for n in computed):
        raise NotFiniteError(
            "the model's logits are not finite (NaN or infinite): its weights are damaged, or too "
            "large for the data type; try float32"
        )


def likeliest(logits: Tensor) -> int:
    """Return the token of the largest of the logits (vocab,).

    Raises:
        NotFiniteError: they are NaN.
    """
    # of a NaN, if there is one; a CPU takes five times as long in bfloat16
    token = int(logits.float().argmax())
    check_finite(logits[token])
    return token


Ended = Callable[[Sequence[int]], bool]
Result = TypeVar("Result")
Requests = Generator[StatesRequest | LogitsRequest, Tensor, Result]
"""A call as its requests, one after another; it is sent the result of each before it makes the
next.
"""


def run(decoder: Decoder, requests: Requests[Result]) -> Result:
    """Answer a call's requests one after another, by themselves; return the call's result."""
    try:
        request = next(requests)
        while True:
            if isinstance(request, LogitsRequest):
                answer = decoder.logits(request.hidden)
            else:
                answer = decoder.read(request.x, [request.part], request.layers)
            request = requests.send(answer)
    except StopIteration as end:
        return end.value


def decoding(
    decoder: Decoder,
    cache: KVCache,
    ids: list[int],
    position: float,
    most: int,
    ended: Ended | None,
) -> Requests[list[int]]:
    """The requests of `RecordedEngine.decode`, a token at a time."""
    device = cache.positions.device
    while len(ids) < most and not (ended and ended(ids)):
        past = cache.length
        layout = Layout(past, (1,), (past,), runs=((past, 0, past + 1),))
        at = torch.tensor([position + len(ids) - 1], dtype=torch.float32, device=device)
        x = decoder.embed(torch.tensor(ids[-1:], device=device))
        states = yield StatesRequest(x, Part(at, cache, layout))
        logits = yield LogitsRequest(decoder.weights.norm(states))
        ids.append(likeliest(logits[0]))
    return ids


@dataclass
class Reading:
    """One call of `SpanEngine.extend`, as its `requests`."""

    decoder: Decoder
    cache: KVCache
    rows: Sequence[Row]
    options: CallOptions

    def __post_init__(self) -> None:
        self.device = self.cache.positions.device
        # A row: weight of each key, the mean over layers and heads, summed over the observed
        # queries.
        self._attention = [
            torch.zeros(row.past_length + len(row.ids), device=self.device)
            for row in self.rows
            if self.options.attention
        ]

    def requests(self) -> Requests[Extension]:
        """Read the rows batch by batch, then make what the options name."""
        shape = self.decoder.shape
        window = shape.shortest_window
        last = max(row.positions[-1] for row in self.rows)
        is_hidden = window is not None and last >= window
        is_masked = shape.position == "alibi" or in_place(self.rows) or is_hidden
        chunk = MASK_CHUNK if is_masked else ROPE_CHUNK
        spans = [Span(0, 0)] * len(self.rows)
        states = [torch.empty(0)] * len(self.rows)
        for batch in _batches(self.rows, chunk):
            start = self.cache.length
            rows = [self.rows[i] for i in batch]
            if len(rows) == 1:
                parts = list[Tensor]()
                for piece in _chunks(rows[0], self.cache, chunk):
                    parts.append((yield self.request([piece], batch)))
                together = torch.cat(parts) if len(parts) > 1 else parts[0]
            else:
                together = yield self.request(rows, batch)
            split = together.split([len(row.ids) for row in rows])
            for index, row, part in zip(batch, rows, split, strict=True):
                spans[index] = row.written(start)
                states[index] = part
                start += len(part)
        return (yield from self._extension(spans, states))

    def request(self, rows: Sequence[Row], batch: Sequence[int]) -> StatesRequest:
        """The request of one pass over the tokens, packed, of these rows of the call or of a chunk
        of one.
        """
        flat = [position for row in rows for position in row.positions]
        positions = torch.tensor(flat, dtype=torch.float32, device=self.device)
        if rows[0].slots is not None:
            layout = lay_out_in_place(rows[0], self.cache)
        else:
            layout = (lay_out_tree if self.options.tree else lay_out)(rows, self.cache)
        observe = self._observer(layout, batch) if self.options.attention else None
        states = [row.states for row in rows if row.states is not None]
        if states:
            x = torch.cat(states)
        else:
            ids = [token for row in rows for token in row.ids]
            x = self.decoder.embed(torch.tensor(ids, device=self.device))
        return StatesRequest(x, Part(positions, self.cache, layout, observe), self.options.layers)

    def _observer(self, layout: Layout, batch: Sequence[int]) -> Watch:
        """The hook of one pass that adds up the rows' attention weights."""
        first_layer, last_layer = self.options.layers or (0, self.decoder.shape.layers)

        def observe(layer: int, q: Tensor, k: Tensor, bias: Tensor | None) -> None:
            for row, index in enumerate(batch):
                new = layout.lengths[row]
                past = layout.past[row]
                sums = self._attention[index]
                keys = new + past
                first = 0
                # none of a chunk that ends before the row does
                if self.options.attention == "last":
                    first = new - 1 if keys == len(sums) else new
                if first < new:
                    part = None if bias is None else bias[row : row + 1, :, first:new, :keys]
                    weights = _weights(q[row, :, first:new], k[row, :, :keys], part, past + first)
                    sums[:keys] += weights / (last_layer - first_layer)

        return observe

    def _extension(self, spans: list[Span], states: list[Tensor]) -> Requests[Extension]:
        options = self.options
        decoder = self.decoder
        to_last_layer = options.layers is None or options.layers[1] == decoder.shape.layers
        final = [decoder.weights.norm(h) for h in states] if to_last_layer else []
        last_logits = None
        if options.last_logits:
            last_logits = yield LogitsRequest(torch.stack([h[-1] for h in final]))
        logits = list[Tensor]()
        if any(options.logits_at):
            chosen = zip(final, options.logits_at, strict=True)
            logits = [decoder.logits(h[list(at)]) for h, at in chosen]
        observed = self._attention
        if options.attention == "all":
            observed = [
                total / len(row.ids) for total, row in zip(observed, self.rows, strict=True)
            ]
        return Extension(
            tuple(spans),
            last_logits,
            self._logp(final) if options.logp else (),
            tuple(observed),
            tuple(logits),
            tuple(states) if options.layers else (),
        )

    def _logp(self, states: Sequence[Tensor]) -> tuple[Tensor, ...]:
        before = torch.cat([h[:-1] for h in states]).split(LOGIT_CHUNK)
        ids = [token for row in self.rows for token in row.ids[1:]]
        targets = torch.tensor(ids, dtype=torch.long, device=self.device)
        pairs = zip(before, targets.split(LOGIT_CHUNK), strict=True)
        parts = [self.decoder.log_probabilities(h, t) for h, t in pairs]
        return torch.cat(parts).split([len(r.ids) - 1 for r in self.rows])


def _weights(q: Tensor, k: Tensor, bias: Tensor | None, before: int) -> Tensor:
    """Weights (key,) of queries (head, query, dim), the first with `before` keys before its own, on
    keys (kv_head, key, dim): the mean over heads, the sum over queries.
    """
    raw = scores(q[None], k[None], bias)[0]
    causal = torch.ones(raw.shape[-2:], dtype=torch.bool, device=raw.device).tril(before)
    return raw.masked_fill(~causal, float("-inf")).softmax(-1).mean(0).sum(0)


def _batches(rows: Sequence[Row], chunk: int) -> Iterator[list[int]]:
    """Row indices by passes: similar lengths together, up to BATCH_TOKENS a pass; long rows and
    rows in place alone.
    """
    alone = in_place(rows)
    budget = 0 if alone else min(BATCH_TOKENS, chunk)
    batch: list[int] = []
    tokens = 0
    for index in sorted(range(len(rows)), key=lambda i: 0 if alone else len(rows[i].ids)):
        tokens += len(rows[index].ids)
        if batch and tokens > budget:
            yield batch
            batch = []
            tokens = len(rows[index].ids)
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
