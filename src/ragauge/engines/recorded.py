"""What engines with key-value caches share: calls are checked and traced; offline ones can be stored on disk."""

from __future__ import annotations

import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import torch
from torch import Tensor

from ragauge.cost.flop import call_macs
from ragauge.cost.hardware import Precision
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call, Trace
from ragauge.engines.cache import KVCache
from ragauge.engines.passes import CallOptions
from ragauge.engines.protocol import (
    Capabilities,
    Capability,
    ExtendOptions,
    Extension,
    Limits,
    Response,
    Row,
    Span,
    read_and_generate,
)
from ragauge.errors import UserError

if TYPE_CHECKING:
    from ragauge.engines.store import DocumentStore

Ended = Callable[[Sequence[int]], bool]


class RecordedEngine(ABC):
    """The span level over two operations, `compute` and `decode`, that an engine defines."""

    able: ClassVar[Capabilities] = frozenset({Capability.SPANS, Capability.ATTENTION})  # with a tokenizer or without
    timed: ClassVar[bool] = True  # calls take time; those of shapes alone do not

    def __init__(self, shape: Shape, tokenizer: Any, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.tokenizer, self.dtype, self.device = shape, tokenizer, dtype, device
        self.first_token_at: float | None = None  # time.perf_counter() when the last response's first token was known
        self.token_at: list[float] = []  # the same of each of its tokens; none where calls take no time
        self.peak_cache_bytes = 0  # since tracing began
        self.cut = False  # whether the last response ended because the context did
        self.precision = Precision(str(dtype).removeprefix("torch."))
        self.documents: DocumentStore | None = None  # keeps offline calls on disk; None keeps none
        self.finder: RecordedEngine | None = None  # finds the evidence that this one answers from; None does both
        self.template: str | None = None  # of a finder: how requests to it are wrapped; None: as the prompts are
        self._answering: RecordedEngine | None = None  # of a finder: whose traces its calls stand in
        self._trace: Trace | None = None
        self._caches: weakref.WeakSet[KVCache] = weakref.WeakSet()

    # ---- what an engine defines

    @abstractmethod
    def compute(self, cache: KVCache, rows: Sequence[Row], asked: CallOptions) -> Extension:
        """Read the rows into the cache, which has room for them, and return what is asked."""

    @abstractmethod
    def decode(self, cache: KVCache, ids: list[int], position: float, most: int, ended: Ended | None) -> list[int]:
        """The response that continues `ids`, whose last token is not in the cache yet.

        Args:
            position: of the response's first token.
            most: tokens of the whole response.
            ended: called after each token, true where the response ends; None: it has exactly `most` tokens.
        """

    # ---- the protocol

    @property
    def capabilities(self) -> Capabilities:
        """See `Engine.capabilities`."""
        return self.able - {Capability.TEXT} | ({Capability.TEXT} if self.tokenizer is not None else set())

    @property
    def max_context(self) -> int:
        """See `Engine.max_context`."""
        return self.shape.max_context

    def respond(
        self, prompt: Sequence[int] | str, limits: Limits, *, stage: str = "prompt", logp: bool = False
    ) -> Response:
        """See `Engine.respond`."""
        return read_and_generate(self, prompt, limits, stage, logp)

    def found_by(self, finder: RecordedEngine | None, template: str | None = None) -> None:
        """Let another decoder find evidence: its calls and caches count in this one's traces and bytes; None: itself.

        Tokens that one of the two vocabularies has in addition, such as a `[PAD]`, do not matter.

        Args:
            template: of requests to the finder; None: that of the prompts.

        Raises:
            UserError: its vocabulary differs, so that a prompt's tokens would be different text to it.
        """
        if finder is not None:
            if not _same_text(finder.tokenizer, self.tokenizer):
                raise UserError("the model that finds evidence and the one that answers have different vocabularies")
            finder._answering, finder.template = self, template
        self.finder, self.template = finder, None

    @torch.inference_mode()
    def extend(self, cache: KVCache, rows: Sequence[Row], **options: Unpack[ExtendOptions]) -> Extension:
        """See `SpanEngine.extend`."""
        asked = CallOptions(**options)
        self._check(cache, rows, asked)
        again = [slot for row in rows for slot in row.again]
        cache.reserve(sum(len(r.ids) for r in rows) - len(again))
        if again:  # one span: forgetting thousands of slots one by one would be quadratic
            cache.forget(Span(min(again), max(again) + 1))
        call = _call(rows, asked)
        if self.documents and asked.offline and asked.spans_alone and all(r.slots is None for r in rows):
            return self._extend_stored(self.documents, cache, rows, asked, call)
        started = time.perf_counter()
        extension = self.compute(cache, rows, asked)
        self._finish(call, started)
        return extension

    @torch.inference_mode()
    def generate(self, cache: KVCache, logits: Tensor, position: float, limits: Limits) -> list[int]:
        """See `SpanEngine.generate`."""
        room = int(self.shape.max_context - position)
        cache.reserve(limits.max_new_tokens)
        past = cache.length
        ids = [int(logits.argmax())]
        self.first_token_at = started = time.perf_counter()
        self.token_at = [started] if self.timed else []
        ended = partial(self._ended, limits=limits) if self._watches(limits) else None
        most = min(limits.max_new_tokens, room)
        if len(ids) < most and not (ended and ended(ids)):
            ids = self.decode(cache, ids, position, most, ended)
        self._clock(ids)
        self.cut = self._was_cut(ids, most, limits)
        steps = cache.length - past
        if steps:
            self._finish(Call("decode", (1,), (past,), logits=(1,), steps=steps), started)
        return ids[:-1] if not limits.ignore_stop and ids[-1] in self.shape.eos else ids

    @torch.inference_mode()
    def generate_by(self, choose: Callable[[list[int]], int], position: float, limits: Limits) -> list[int]:
        """See `SpanEngine.generate_by`."""
        most = min(limits.max_new_tokens, int(self.shape.max_context - position))
        ids = [choose([])]
        self.first_token_at = time.perf_counter()
        self.token_at = [self.first_token_at] if self.timed else []
        ended = partial(self._ended, limits=limits) if self._watches(limits) else None
        while len(ids) < most and not (ended and ended(ids)):
            ids.append(choose(ids))
            self._clock(ids)
        self.cut = self._was_cut(ids, most, limits)
        return ids[:-1] if not limits.ignore_stop and ids[-1] in self.shape.eos else ids

    # ---- caches

    def new_cache(self, capacity: int) -> KVCache:
        """See `SpanEngine.new_cache`."""
        return self.keep(KVCache(self.shape, capacity, self.dtype, self.device, self.precision.kv))

    def join(self, cache: KVCache, spans: Sequence[Span], extra: int) -> KVCache:
        """See `SpanEngine.join`."""
        return self.keep(cache.select(spans, extra))

    def keep(self, cache: KVCache) -> KVCache:
        """Count a cache's bytes among the engine's for as long as it lives."""
        self._caches.add(cache)
        return cache

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values in all caches alive."""
        return sum(c.bytes for c in self._caches) + (self.finder.cache_bytes if self.finder else 0)

    # ---- traces

    @contextmanager
    def tracing(self) -> Iterator[Trace]:
        """See `Engine.tracing`."""
        outer, self._trace = self._trace, []
        self.peak_cache_bytes = self.cache_bytes
        try:
            yield self._trace
        finally:
            self._trace = outer

    def synchronize(self) -> None:
        """Wait until the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def note(self, call: Call) -> None:
        """See `Engine.note`."""
        if self._answering is not None:
            own = call if self.shape == self._answering.shape else replace(call, macs=call_macs(call, self.shape))
            self._answering.note(own)
        elif self._trace is not None:
            self._trace.append(call)

    def _finish(self, call: Call, started: float) -> None:
        if (self._answering or self)._trace is not None:
            self.synchronize()
            self._record(replace(call, seconds=time.perf_counter() - started) if self.timed else call)

    def _record(self, call: Call) -> None:
        whole = self._answering or self
        whole.peak_cache_bytes = max(whole.peak_cache_bytes, whole.cache_bytes)
        self.note(call)

    # ---- within

    def _extend_stored(
        self, store: DocumentStore, cache: KVCache, rows: Sequence[Row], asked: CallOptions, call: Call
    ) -> Extension:
        """A call's result: loaded from the store, or computed and stored."""
        key = store.key(cache, rows, asked.tree)
        found = store.load(key, cache, logp=asked.logp) if key else None
        if found:
            self._record(replace(call, seconds=found.computing_s, loading_s=found.loading_s))
            return Extension(found.spans, logp=found.logp)
        started = time.perf_counter()
        extension = self.compute(cache, rows, asked)
        self._finish(call, started)
        if key:
            store.save(key, cache, extension.spans, extension.logp, time.perf_counter() - started)
        return extension

    def _check(self, cache: KVCache, rows: Sequence[Row], asked: CallOptions) -> None:
        if asked.tree and asked.attention:
            raise ValueError("the attention of rows read as a tree cannot be observed")
        scored = asked.last_logits or asked.logp or any(asked.logits_at)
        if asked.layers and asked.layers[1] < self.shape.layers and scored:
            raise ValueError("logits need the last layer")
        in_place = any(row.slots is not None for row in rows)
        if in_place and (asked.attention or asked.tree or cache.head_positions is not None):
            raise ValueError("rows in place cannot be a tree, be observed, or go to a cache with slots by head")
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

    def _was_cut(self, ids: Sequence[int], most: int, limits: Limits) -> bool:
        """Whether a response of at most `most` tokens ended only because the context did."""
        return self.timed and len(ids) >= most < limits.max_new_tokens and not self._ended(ids, limits)

    def _watches(self, limits: Limits) -> bool:
        """Whether `ended` is called after each token: not for a fixed number on a GPU, where the host waits once."""
        return self.timed and not (limits.ignore_stop and self.device.type == "cuda")

    def _clock(self, ids: Sequence[int]) -> None:
        """Record the time at which the response's new tokens became known."""
        if self.timed:
            self.token_at += [time.perf_counter()] * (len(ids) - len(self.token_at))

    def _ended(self, ids: Sequence[int], limits: Limits) -> bool:
        self._clock(ids)
        if limits.ignore_stop:
            return False
        if ids[-1] in self.shape.eos:
            return True
        text = self.tokenizer.decode(ids, skip_special_tokens=True) if limits.stop else ""
        return any(s in text for s in limits.stop)


def _same_text(one: Any, other: Any) -> bool:
    """Whether two tokenizers number the same tokens of text alike; added tokens may be those of one alone."""
    first, second = one.get_vocab(), other.get_vocab()
    added = {*one.get_added_vocab(), *other.get_added_vocab()}
    alike = all(second.get(token, number) == number for token, number in first.items())
    return alike and {*first} - added == {*second} - added


def _call(rows: Sequence[Row], asked: CallOptions) -> Call:
    """The record of a call."""
    places = asked.logits_at or [()] * len(rows)
    counts = [
        asked.last_logits + len(at) + (len(r.ids) - 1 if asked.logp else 0) for r, at in zip(rows, places, strict=True)
    ]
    again = tuple(len(r.again) for r in rows)
    return Call(
        asked.stage,
        tuple(len(r.ids) for r in rows),
        tuple(r.past_length - n for r, n in zip(rows, again, strict=True)),
        asked.offline,
        asked.parallel and len(rows) > 1,
        tuple(counts) if asked.logp or asked.last_logits or asked.logits_at else (),
        layers=asked.layers,
        again=again if any(again) else (),
    )
