"""The engine: a decoder that knows token ids, real positions and caches, and writes down every call it makes."""

from __future__ import annotations

import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.cost.flop import call_macs
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call, Trace
from ragauge.engines.cache import KVCache
from ragauge.engines.decoder import Decoder, Observer, on_intel, scores
from ragauge.engines.layout import Layout, lay_out, lay_out_tree
from ragauge.engines.protocol import Capabilities, Capability, Extension, Limits, Observed, Response, Row, Span
from ragauge.engines.steps import StepsByCapacity
from ragauge.engines.store import DocumentStore
from ragauge.errors import UserError

BATCH_TOKENS = 4096  # new tokens of one forward pass over several rows
ROPE_CHUNK = 8192  # new tokens of one forward pass over one long row
ALIBI_CHUNK = 512  # the same where the mask is a matrix of its own (head, query, key) in fp32
LOGIT_CHUNK = 512  # positions whose vocabulary logits are held at one time

Arrangement = Callable[[Sequence[Row], KVCache], Layout]


class LM:
    """A decoder with its tokenizer. All calls run in inference mode and are recorded while `tracing`."""

    def __init__(self, decoder: Decoder, tokenizer: Any = None) -> None:
        self.decoder: Decoder | None = decoder
        self._init(decoder.shape, tokenizer, decoder.weights.embedding.dtype, decoder.weights.embedding.device)

    def _init(self, shape: Shape, tokenizer: Any, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.tokenizer, self.dtype, self.device = shape, tokenizer, dtype, device
        self.first_token_at: float | None = None  # time.perf_counter() when the last response's first token was known
        self.peak_cache_bytes = 0  # since tracing began
        self.documents: DocumentStore | None = None  # keeps offline calls on disk; None keeps none
        self.finder: LM | None = None  # finds the evidence that this one answers from; None does both
        self._answering: LM | None = None  # of a finder: whose traces its calls stand in
        self.steps: StepsByCapacity | None = None  # decoding as CUDA graphs
        if self.decoder is not None and device.type == "cuda":
            self.steps = StepsByCapacity(self.decoder)
        self._trace: Trace | None = None
        self._caches: weakref.WeakSet[KVCache] = weakref.WeakSet()

    def found_by(self, finder: LM) -> None:
        """Have another decoder find evidence: its calls stand in this one's traces, its caches count with this one's.

        Raises:
            UserError: it has another vocabulary, so that tokens of a prompt would be other text to it.
        """
        if finder.tokenizer.get_vocab() != self.tokenizer.get_vocab():
            raise UserError("the model that finds evidence has another vocabulary than the one that answers")
        self.finder, finder._answering = finder, self

    @property
    def capabilities(self) -> Capabilities:
        """See `Engine.capabilities`."""
        known = {Capability.TEXT} if self.tokenizer is not None else set()
        weights = {Capability.WEIGHTS} if self.decoder is not None else set()
        return frozenset({Capability.SPANS, Capability.ATTENTION, *known, *weights})

    @property
    def max_context(self) -> int:
        """See `Engine.max_context`."""
        return self.shape.max_context

    def respond(self, prompt: Sequence[int] | str, limits: Limits, *, stage: str = "prompt") -> Response:
        """See `Engine.respond`."""
        ids = self.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else list(prompt)
        cache = self.new_cache(len(ids) + limits.max_new_tokens)
        row = Row(ids, [float(i) for i in range(len(ids))])
        read = self.extend(cache, [row], stage=stage, last_logits=True)
        assert read.last_logits is not None
        return Response(self.generate(cache, read.last_logits[0], float(len(ids)), limits))

    # ---- caches

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache with room for `capacity` tokens."""
        return self._keep(KVCache(self.shape, capacity, self.dtype, self.device))

    def join(self, cache: KVCache, spans: Sequence[Span], extra: int) -> KVCache:
        """A cache of the spans' tokens side by side, with room for `extra` more."""
        return self._keep(cache.select(spans, extra))

    def _keep(self, cache: KVCache) -> KVCache:
        self._caches.add(cache)
        return cache

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values in all caches alive."""
        own = sum(c.bytes for c in self._caches) + (self.steps.bytes if self.steps else 0)
        return own + (self.finder.cache_bytes if self.finder else 0)

    # ---- traces

    @contextmanager
    def tracing(self) -> Iterator[Trace]:
        """Record every call made inside the block into the list it yields."""
        outer, self._trace = self._trace, []
        self.peak_cache_bytes = self.cache_bytes
        try:
            yield self._trace
        finally:
            self._trace = outer

    def synchronize(self) -> None:
        """Wait until the device has done all that it was asked to."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def note(self, call: Call) -> None:
        """Add a call that another model made (an encoder's) to the trace."""
        if self._answering is not None:
            own = call if self.shape == self._answering.shape else replace(call, macs=call_macs(call, self.shape))
            self._answering.note(own)
        elif self._trace is not None:
            self._trace.append(call)

    def _finish(self, call: Call, started: float) -> None:
        if (self._answering or self)._trace is not None:
            self.synchronize()
            self._record(replace(call, seconds=time.perf_counter() - started))

    def _record(self, call: Call) -> None:
        whole = self._answering or self
        whole.peak_cache_bytes = max(whole.peak_cache_bytes, whole.cache_bytes)
        self.note(call)

    # ---- calls

    @torch.inference_mode()
    def extend(
        self,
        cache: KVCache,
        rows: Sequence[Row],
        *,
        stage: str,
        offline: bool = False,
        parallel: bool = False,
        last_logits: bool = False,
        logp: bool = False,
        logits_at: Sequence[Sequence[int]] | None = None,
        attention: Observed | None = None,
        tree: bool = False,
    ) -> Extension:
        """Read the rows' tokens, each row attending to its past spans and to itself, into the cache.

        Args:
            stage: the name of the call in the trace.
            offline: whether it could be done before the query is known.
            parallel: whether the rows are independent paths.
            last_logits, logp, attention: what to return besides the spans.
            logits_at: the tokens of each row, counted from 0, whose logits to return.
            tree: attend over the cache in place, rows side by side under a mask, instead of gathering each row's keys:
                for rows that share a long past. It gives the same and cannot be observed by `attention`.

        Raises:
            ValueError: `tree` with `attention`.
            UserError: a row is empty or its last position is beyond the model's context.
        """
        if tree and attention:
            raise ValueError("the attention of rows read as a tree cannot be observed")
        self._check(rows)
        cache.reserve(sum(len(r.ids) for r in rows))
        places = logits_at or [()] * len(rows)
        counts = [last_logits + len(at) + (len(r.ids) - 1 if logp else 0) for r, at in zip(rows, places, strict=True)]
        logits = tuple(counts) if logp or last_logits or logits_at else ()
        lengths, past = tuple(len(r.ids) for r in rows), tuple(r.past_length for r in rows)
        call = Call(stage, lengths, past, offline, parallel and len(rows) > 1, logits)
        if self.documents and offline and not (last_logits or logits_at or attention):
            return self._extend_stored(self.documents, cache, rows, logp, tree, call)
        started = time.perf_counter()
        extension = self._extend(cache, rows, last_logits, logp, places, attention, tree)
        self._finish(call, started)
        return extension

    def _extend_stored(
        self, store: DocumentStore, cache: KVCache, rows: Sequence[Row], logp: bool, tree: bool, call: Call
    ) -> Extension:
        """`_extend`, from the store where it has the call's result, else kept there."""
        key = store.key(cache, rows, tree)
        found = store.load(key, cache, logp=logp) if key else None
        if found:
            self._record(replace(call, seconds=found.computing_s, loading_s=found.loading_s))
            return Extension(found.spans, logp=found.logp)
        started = time.perf_counter()
        extension = self._extend(cache, rows, False, logp, [()] * len(rows), None, tree)
        self._finish(call, started)
        if key:
            store.save(key, cache, extension.spans, extension.logp, time.perf_counter() - started)
        return extension

    def _check(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if not len(row.ids):
                raise UserError("a segment of the prompt has no tokens")
            if row.positions[-1] >= self.shape.max_context:
                raise UserError(
                    f"the prompt reaches position {row.positions[-1]:.0f}; the model's context is "
                    f"{self.shape.max_context} tokens"
                )

    def _extend(
        self,
        cache: KVCache,
        rows: Sequence[Row],
        last_logits: bool,
        logp: bool,
        places: Sequence[Sequence[int]],
        attention: Observed | None,
        tree: bool,
    ) -> Extension:
        assert self.decoder is not None
        watch = _AttentionMean(self.shape.layers, attention, rows, self.device) if attention else None
        spans: dict[int, Span] = {}
        hidden: dict[int, Tensor] = {}
        for batch in _batches(rows, ALIBI_CHUNK if self.shape.position == "alibi" else ROPE_CHUNK):
            for index, part, span in self._pass(cache, rows, batch, watch, lay_out_tree if tree else lay_out):
                spans[index] = span
                hidden[index] = part
        states = [hidden[i] for i in range(len(rows))]
        return Extension(
            tuple(spans[i] for i in range(len(rows))),
            self.decoder.logits(torch.stack([h[-1] for h in states])) if last_logits else None,
            self._logp(rows, states) if logp else (),
            watch.means() if watch else (),
            self._logits(states, places) if any(places) else (),
        )

    def _logits(self, states: Sequence[Tensor], places: Sequence[Sequence[int]]) -> tuple[Tensor, ...]:
        """Logits of some of each row's tokens: (place, vocab)."""
        assert self.decoder is not None
        return tuple(self.decoder.logits(h[list(at)]) for h, at in zip(states, places, strict=True))

    def _pass(
        self,
        cache: KVCache,
        rows: Sequence[Row],
        batch: Sequence[int],
        watch: _AttentionMean | None,
        arrange: Arrangement,
    ) -> Iterator[tuple[int, Tensor, Span]]:
        """One batch of rows (or the chunks of one long row) through the decoder: (row index, hidden, span) of each."""
        chunk = ALIBI_CHUNK if self.shape.position == "alibi" else ROPE_CHUNK
        if len(batch) == 1 and len(rows[batch[0]].ids) > chunk:
            first = cache.length
            pieces = _pieces(rows[batch[0]], cache, chunk)
            parts = [self._forward(cache, [piece], batch, watch, arrange) for piece in pieces]
            yield batch[0], torch.cat(parts), Span(first, cache.length)
            return
        start = cache.length
        hidden = self._forward(cache, [rows[i] for i in batch], batch, watch, arrange)
        for index, part in zip(batch, hidden.split([len(rows[i].ids) for i in batch]), strict=True):
            yield index, part, Span(start, start + part.shape[0])
            start += part.shape[0]

    def _forward(
        self,
        cache: KVCache,
        rows: Sequence[Row],
        batch: Sequence[int],
        watch: _AttentionMean | None,
        arrange: Arrangement = lay_out,
    ) -> Tensor:
        assert self.decoder is not None
        ids = torch.tensor([t for r in rows for t in r.ids], device=self.device)
        positions = torch.tensor([p for r in rows for p in r.positions], dtype=torch.float32, device=self.device)
        layout = arrange(rows, cache)
        observe = watch.observer(layout, batch) if watch else None
        return self.decoder.hidden(ids, positions, cache, layout, observe)

    def _logp(self, rows: Sequence[Row], states: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Log-probability of every token of a row but its first."""
        assert self.decoder is not None
        before = torch.cat([h[:-1] for h in states])
        targets = torch.tensor([t for r in rows for t in r.ids[1:]], dtype=torch.long, device=self.device)
        parts = [
            -F.cross_entropy(self.decoder.logits(h).float(), t, reduction="none")
            for h, t in zip(before.split(LOGIT_CHUNK), targets.split(LOGIT_CHUNK), strict=True)
        ]
        return torch.cat(parts).split([len(r.ids) - 1 for r in rows])

    # ---- generation

    @torch.inference_mode()
    def generate(self, cache: KVCache, logits: Tensor, position: float, limits: Limits) -> list[int]:
        """Greedy continuation of everything in the cache.

        Args:
            logits: (vocab,) of the first new token.
            position: position of that token; later ones follow by one each.

        Returns: the new token ids; an end-of-text id is left out, a token that completes a stop string is kept.
        """
        room = int(self.shape.max_context - position)
        cache.reserve(limits.max_new_tokens)
        past, started = cache.length, time.perf_counter()
        ids = [int(logits.argmax())]
        self.first_token_at = started = time.perf_counter()
        with _vector_kernels(self.device, self.dtype):
            most = min(limits.max_new_tokens, room)
            goes_on = len(ids) < most and not self._ended(ids, limits)
            recorded = self.steps and cache.bias is None and cache.beside is None
            if goes_on and self.steps and recorded and self.steps.ready(past + most - 1):
                ended = None if limits.ignore_stop else partial(self._ended, limits=limits)
                ids = self.steps.continued(cache, ids, position, most, ended)
            while len(ids) < most and not self._ended(ids, limits):
                ids.append(self._step(cache, ids[-1], position + len(ids) - 1))
        steps = cache.length - past
        if steps:
            self._finish(Call("decode", (1,), (past,), logits=(1,), steps=steps), started)
        return ids[:-1] if not limits.ignore_stop and ids[-1] in self.shape.eos else ids

    def _step(self, cache: KVCache, token: int, position: float) -> int:
        assert self.decoder is not None
        layout = Layout(cache.length, (1,), (cache.length,), True, None, None, None)
        ids = torch.tensor([token], device=self.device)
        at = torch.tensor([position], dtype=torch.float32, device=self.device)
        return int(self.decoder.logits(self.decoder.hidden(ids, at, cache, layout))[0].argmax())

    def _ended(self, ids: Sequence[int], limits: Limits) -> bool:
        if limits.ignore_stop:
            return False
        if ids[-1] in self.shape.eos:
            return True
        text = self.tokenizer.decode(ids, skip_special_tokens=True) if limits.stop else ""
        return any(s in text for s in limits.stop)


class ShapeLM(LM):
    """A decoder without weights: the same calls, recorded by their shapes alone; every score is zero, every token 0.

    Attention falls with depth into the prompt, so steeply that a document outweighs all that follow it: sorting by
    attention then never settles, and its trace is that of all its rounds, as on almost every real prompt.
    """

    def __init__(self, shape: Shape, tokenizer: Any = None) -> None:
        self.decoder = None
        self._init(shape, tokenizer, torch.float32, torch.device("meta"))

    def _finish(self, call: Call, started: float) -> None:
        self._record(call)

    def _extend(
        self,
        cache: KVCache,
        rows: Sequence[Row],
        last_logits: bool,
        logp: bool,
        places: Sequence[Sequence[int]],
        attention: Observed | None,
        tree: bool,
    ) -> Extension:
        spans = []
        for row in rows:
            spans.append(Span(cache.length, cache.length + len(row.ids)))
            cache.length += len(row.ids)
        return Extension(
            tuple(spans),
            torch.zeros(len(rows), 1) if last_logits else None,
            tuple(torch.zeros(len(r.ids) - 1) for r in rows) if logp else (),
            tuple(_falling(r.past_length + len(r.ids)) for r in rows) if attention else (),
            tuple(torch.zeros(len(at), 1) for at in places) if any(places) else (),
        )

    def _step(self, cache: KVCache, token: int, position: float) -> int:
        cache.length += 1
        return 0

    def _ended(self, ids: Sequence[int], limits: Limits) -> bool:
        return False


def _falling(keys: int) -> Tensor:
    """(key,): each entry more than all that follow it together. In fp64, in which that holds for about 900 keys."""
    return 0.45 ** torch.arange(keys, dtype=torch.float64)


class _AttentionMean:
    """Accumulates each row's attention weights over layers, heads and observed query tokens."""

    def __init__(self, layers: int, observed: Observed, rows: Sequence[Row], device: torch.device) -> None:
        self.layers, self.observed, self.rows = layers, observed, rows
        self.sums = [torch.zeros(r.past_length + len(r.ids), device=device) for r in rows]

    def observer(self, layout: Layout, batch: Sequence[int]) -> Observer:
        """The hook for one forward pass over these rows, or over a chunk of one of them."""

        def observe(layer: int, q: Tensor, k: Tensor, bias: Tensor | None) -> None:
            for row, index in enumerate(batch):
                new, keys = layout.lengths[row], layout.lengths[row] + layout.past[row]
                first = self._first(index, new, keys)
                if first < new:
                    weights = self._weights(q[row, :, first:new], k[row, :, :keys], bias, row, first, layout.past[row])
                    self.sums[index][:keys] += weights / self.layers

        return observe

    def _first(self, index: int, new: int, keys: int) -> int:
        """The first observed of a pass's `new` tokens: none of a chunk, where only the row's last token is."""
        if self.observed == "all":
            return 0
        return new - 1 if keys == len(self.sums[index]) else new

    @staticmethod
    def _weights(q: Tensor, k: Tensor, bias: Tensor | None, row: int, first: int, past: int) -> Tensor:
        """Weights (key,) of queries (head, query, dim) on keys (kv_head, key, dim): the heads' mean, queries' sum."""
        part = None if bias is None else bias[row : row + 1, :, first : first + q.shape[1], : k.shape[1]]
        raw = scores(q[None], k[None], part)[0]
        causal = torch.ones(raw.shape[-2:], dtype=torch.bool, device=raw.device).tril(past + first)
        return raw.masked_fill(~causal, float("-inf")).softmax(-1).mean(0).sum(0)

    def means(self) -> tuple[Tensor, ...]:
        if self.observed == "last":
            return tuple(self.sums)
        return tuple(total / len(row.ids) for total, row in zip(self.sums, self.rows, strict=True))


@contextmanager
def _vector_kernels(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Multiply half-precision matrices with one token by torch's own kernels on a CPU.

    oneDNN, which torch prefers and which is right for many tokens, takes 2 to 3 times as long for one; but not in
    bfloat16 on Intel's processors, where a vector product by oneDNN is the faster one.
    """
    if device.type != "cpu" or dtype == torch.float32 or (dtype == torch.bfloat16 and on_intel()):
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # setting the flag speaks of GPUs that are not there
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def _batches(rows: Sequence[Row], chunk: int) -> Iterator[list[int]]:
    """Row indices by passes: rows of like length together, up to BATCH_TOKENS a pass, long rows alone."""
    budget = min(BATCH_TOKENS, chunk)
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
        yield Row(row.ids[start : start + chunk], row.positions[start : start + chunk], (*row.past, *done))
