"""The base of engines with key-value caches: calls are checked and traced; offline ones can be
stored on disk.
"""

from __future__ import annotations

import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ragauge.cost.flop import call_macs
from ragauge.cost.hardware import precision
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call, Trace
from ragauge.engines.cache import KVCache
from ragauge.engines.passes import Ended, check_finite, likeliest
from ragauge.engines.protocol import (
    CallOptions,
    Capabilities,
    Capability,
    Extension,
    Limits,
    Response,
    Traced,
    read_and_generate,
)
from ragauge.engines.spans import Row, Span, in_place
from ragauge.engines.steps import CAPTURING
from ragauge.errors import UserError

if TYPE_CHECKING:
    from ragauge.engines.store import DocumentStore


class RecordedEngine(Traced, ABC):
    """The span level over two operations, `compute` and `decode`, that an engine defines."""

    # besides a tokenizer, on a model without sliding windows
    supported = frozenset({Capability.SPANS, Capability.FULL_ATTENTION})
    timed = True  # calls take time; those of shapes alone do not

    def __init__(
        self, shape: Shape, tokenizer: Any, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.shape = shape
        self.tokenizer = tokenizer
        self.dtype = dtype
        self.device = device
        self.max_context = shape.max_context
        self.token_at: list[float] = []  # see `SpanEngine.token_at`
        self.first_token_at: float | None = None
        self.peak_cache_bytes = 0
        self.cut = False
        self.precision = precision(dtype)
        self.documents: DocumentStore | None = None  # stores the results of offline calls
        self.finder: RecordedEngine | None = None  # see `SpanEngine.finder`
        self.template: str | None = None
        # of a finder: the engine whose traces record its calls
        self._answering: RecordedEngine | None = None
        self._caches: weakref.WeakSet[KVCache] = weakref.WeakSet()
        # prefetched neighbours add caches from a thread of their own
        self._counting = Lock()

    @abstractmethod
    def compute(self, cache: KVCache, rows: Sequence[Row], options: CallOptions) -> Extension:
        """Read the rows into the cache, which has room for them; return what the options name."""

    @abstractmethod
    def decode(
        self, cache: KVCache, ids: list[int], position: float, most: int, ended: Ended | None
    ) -> list[int]:
        """The response from `position` on that continues `ids`, whose last token is not in the
        cache yet. `ended` is called after each token, true where the response ends; None: at `most`
        tokens.
        """

    @property
    def capabilities(self) -> Capabilities:
        lacking = set[Capability]()
        if self.tokenizer is None:
            lacking.add(Capability.TEXT)
        if self.shape.shortest_window is not None:
            lacking.add(Capability.FULL_ATTENTION)
        return self.supported - lacking

    def respond(self, prompt: Sequence[int] | str, limits: Limits) -> Response:
        return read_and_generate(self, prompt, limits)

    def set_finder(self, finder: RecordedEngine | None, template: str | None = None) -> None:
        """Let another decoder find evidence: its calls and caches count in this one's traces and
        bytes; None: itself. Requests to it have a `template`; None: that of the prompts.

        Raises:
            UserError: its vocabulary differs, so that a prompt's tokens would be different text to
                it; tokens that one of the two has in addition do not matter.
        """
        if finder is not None:
            first, second = (engine.tokenizer.get_vocab() for engine in (finder, self))
            added = {*finder.tokenizer.get_added_vocab(), *self.tokenizer.get_added_vocab()}
            same_ids = all(second.get(token, number) == number for token, number in first.items())
            if not same_ids or {*first} - added != {*second} - added:
                raise UserError(
                    "the model that finds evidence and the one that answers have different vocabularies"
                )
            finder._answering = self
            finder.template = template
        self.finder = finder
        self.template = None

    @torch.inference_mode()
    def extend(self, cache: KVCache, rows: Sequence[Row], **options: Any) -> Extension:
        call_options = CallOptions(**options)
        self._check(cache, rows, call_options)
        recomputed = [slot for row in rows for slot in row.recomputed]
        cache.reserve(sum(len(r.ids) for r in rows) - len(recomputed))
        if recomputed:  # one span: forgetting thousands of slots one by one would be quadratic
            cache.forget_names(Span(min(recomputed), max(recomputed) + 1))
        is_storable = call_options.is_storable and cache.watch is None and not in_place(rows)
        if self.documents and is_storable:
            extension = self._extend_stored(self.documents, cache, rows, call_options)
        else:
            started = time.perf_counter()
            extension = self.compute(cache, rows, call_options)
            if is_storable and cache.stored_bits:
                for span in extension.spans:
                    cache.store(span)
            self._finish(_call(rows, call_options), started)
        check_finite(extension.last_logits, *extension.logp, *extension.logits)
        return extension

    @torch.inference_mode()
    def generate(
        self, cache: KVCache, logits: Tensor, position: float, limits: Limits
    ) -> list[int]:
        cache.reserve(limits.max_new_tokens)
        past = cache.length
        ids = [likeliest(logits)]
        most = self._begin_response(position, limits)
        started = time.perf_counter()
        # A fixed number of tokens on a GPU is not watched: the host waits once, for all of them.
        is_watched = self.timed and not (limits.ignore_stop and self.device.type == "cuda")
        ended = partial(self._ended, limits=limits)
        if len(ids) < most and not ended(ids):
            ids = self.decode(cache, ids, position, most, ended if is_watched else None)
        ids = self._end_response(ids, most, limits)
        if steps := cache.length - past:
            self._finish(Call("decode", (1,), (past,), logits=(1,), steps=steps), started)
        return ids

    @torch.inference_mode()
    def generate_by(
        self, choose: Callable[[list[int]], int], position: float, limits: Limits
    ) -> list[int]:
        ids = [choose([])]
        most = self._begin_response(position, limits)
        while len(ids) < most and not self._ended(ids, limits):
            ids.append(choose(ids))
            self._record_token_times(ids)
        return self._end_response(ids, most, limits)

    def _begin_response(self, position: float, limits: Limits) -> int:
        """Record the time of the first token; the most tokens that the response may have."""
        self.first_token_at = time.perf_counter()
        self.token_at = [self.first_token_at] if self.timed else []
        return min(limits.max_new_tokens, int(self.shape.max_context - position))

    def _end_response(self, ids: list[int], most: int, limits: Limits) -> list[int]:
        """The response without an end-of-text id; `cut` says whether only the context ended it."""
        self._record_token_times(ids)
        self.cut = (
            self.timed and len(ids) >= most < limits.max_new_tokens and not self._ended(ids, limits)
        )
        return ids[:-1] if not limits.ignore_stop and ids[-1] in self.shape.eos else ids

    def _ended(self, ids: Sequence[int], limits: Limits) -> bool:
        self._record_token_times(ids)
        if limits.ignore_stop or not self.timed:
            return False
        if ids[-1] in self.shape.eos:
            return True
        text = self.tokenizer.decode(ids, skip_special_tokens=True) if limits.stop else ""
        text = text.lstrip() if limits.skip_blanks else text
        return any(s in text for s in limits.stop)

    def _record_token_times(self, ids: Sequence[int]) -> None:
        if self.timed:
            self.token_at += [time.perf_counter()] * (len(ids) - len(self.token_at))

    def new_cache(self, capacity: int) -> KVCache:
        return self.track(KVCache(self.shape, capacity, self.dtype, self.device, self.precision.kv))

    def join(self, cache: KVCache, spans: Sequence[Span], extra: int) -> KVCache:
        return self.track(cache.select(spans, extra))

    def track(self, cache: KVCache) -> KVCache:
        """Count a cache's bytes among the engine's for as long as it lives."""
        with self._counting:
            self._caches.add(cache)
        return cache

    @property
    def cache_bytes(self) -> int:
        with self._counting:
            own = sum(c.bytes for c in self._caches)
        return own + (self.finder.cache_bytes if self.finder else 0)

    @contextmanager
    def tracing(self) -> Iterator[Trace]:
        self.peak_cache_bytes = self.cache_bytes
        with super().tracing() as trace:
            yield trace

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            with CAPTURING:
                torch.cuda.synchronize(self.device)

    def note(self, call: Call) -> None:
        if self._answering is None:
            super().note(call)
        else:
            same = self.shape == self._answering.shape
            self._answering.note(call if same else replace(call, macs=call_macs(call, self.shape)))

    def _finish(self, call: Call, started: float) -> None:
        if (self._answering or self)._trace is not None:
            self.synchronize()
            self._record(
                replace(call, seconds=time.perf_counter() - started) if self.timed else call
            )

    def _record(self, call: Call) -> None:
        engine = self._answering or self
        engine.peak_cache_bytes = max(engine.peak_cache_bytes, engine.cache_bytes)
        self.note(call)

    def _extend_stored(
        self, store: DocumentStore, cache: KVCache, rows: Sequence[Row], options: CallOptions
    ) -> Extension:
        """Load the rows that the store has, then read the others in one call and store them. The
        trace has one call of all rows, so that costs do not depend on what the store has.
        """
        keys = [store.key(cache, row, options.tree) for row in rows]
        found: dict[int, tuple[Span, Tensor | None]] = {}
        computing_s = 0.0
        started = time.perf_counter()
        # in the order in which a call reads them, so that slots are as if they were computed
        for number in sorted(range(len(rows)), key=lambda i: len(rows[i].ids)):
            key = keys[number]
            if key and (segment := store.load(key, cache, logp=options.logp)):
                found[number] = segment[:2]
                computing_s += segment[2]
        loading_s = time.perf_counter() - started
        missing = [i for i in range(len(rows)) if i not in found]
        seconds = 0.0
        if missing:
            read = self.compute(cache, [rows[i] for i in missing], options)
            if (self._answering or self)._trace is not None:
                self.synchronize()
            seconds = time.perf_counter() - started - loading_s
            store.save([keys[i] for i in missing], cache, read, seconds)
            logp = read.logp or [None] * len(missing)
            found.update(zip(missing, zip(read.spans, logp, strict=True), strict=True))
        call = _call(rows, options)
        if len(missing) < len(rows):
            counts = tuple(len(row.ids) if i in missing else 0 for i, row in enumerate(rows))
            computed = counts if missing else ()
            call = replace(call, loading_s=loading_s + seconds, computed=computed)
        self._record(replace(call, seconds=computing_s + seconds))
        spans, scores = zip(*(found[i] for i in range(len(rows))), strict=True)
        return Extension(spans, logp=scores if options.logp else ())

    def _check(self, cache: KVCache, rows: Sequence[Row], options: CallOptions) -> None:
        if options.tree and options.attention:
            raise ValueError("the attention of rows read as a tree cannot be observed")
        scored = options.last_logits or options.logp or any(options.logits_at)
        if options.layers and options.layers[1] < self.shape.layers and scored:
            raise ValueError("logits need the last layer")
        unsupported = options.attention or options.tree or cache.head_positions is not None
        if unsupported and in_place(rows):
            raise ValueError(
                "rows in place cannot be a tree, be observed, or go to a cache with slots by head"
            )
        for row in rows:
            if row.slots is not None and list(row.positions) != sorted(row.positions):
                raise ValueError("positions of a row in place must ascend")
            if not len(row.ids):
                raise UserError("a segment of the prompt has no tokens")
            if row.positions[-1] >= self.shape.max_context:
                raise UserError(
                    f"the prompt reaches position {row.positions[-1]:.0f}; the model's context is "
                    f"{self.shape.max_context} tokens"
                )


def _call(rows: Sequence[Row], options: CallOptions) -> Call:
    logits_at = options.logits_at or [()] * len(rows)
    lengths = tuple(len(row.ids) for row in rows)
    logits = tuple(
        options.last_logits + len(at) + (length - 1) * options.logp
        for length, at in zip(lengths, logits_at, strict=True)
    )
    again = tuple(len(row.recomputed) for row in rows)
    return Call(
        options.stage,
        lengths,
        tuple(row.past_length - count for row, count in zip(rows, again, strict=True)),
        options.offline,
        options.parallel and len(rows) > 1,
        logits if options.logp or options.last_logits or options.logits_at else (),
        layers=options.layers,
        again=again if any(again) else (),
    )
