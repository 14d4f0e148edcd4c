"""Caches that are compressed before the question is read, or after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from ragauge.cost.trace import Call
from ragauge.engines.protocol import Capability, Extension, Limits, Response, Row, Span, SpanEngine
from ragauge.methods.base.method import plain_row, read_and_generate, unit_row
from ragauge.methods.base.wrapper import EngineAround
from ragauge.methods.compressors.base import Budget, Compressor, Context
from ragauge.methods.prompts import unit_steps

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.cache import KVCache
    from ragauge.methods.base.method import Compress


@runtime_checkable
class Compressible(Protocol):
    """A prepared state whose documents can be compressed before the question is known."""

    def compressed(self, compress: Compress) -> Self:
        """Copy the state with fewer tokens a head; this one stays as it is."""
        ...


@dataclass(frozen=True)
class Press:
    """Removes the share `ratio` of tokens that a compressor scores lowest."""

    engine: SpanEngine
    compressor: Callable[[], Compressor]  # makes one for each compression
    ratio: float
    budget: Budget | None = None  # None: the compressor's own

    def document(
        self, cache: KVCache, before: Sequence[Span], span: Span, ids: Sequence[int]
    ) -> KVCache:
        """Compress a document that was read behind `before`, offline, into a cache of its own. Its
        queries, where the compressor needs them, come from reading it once more: stored documents
        have none.
        """
        compressor = self.compressor()
        start = sum(map(len, before))
        apart = self.engine.join(cache, [*before, span], 0)
        watch = compressor.watch()
        if watch is not None:
            scratch = self.engine.join(cache, before, len(ids))
            scratch.watch = watch
            places = unit_steps(start, len(ids))
            if Capability.WEIGHTS in self.engine.capabilities:
                places = apart.positions[start : apart.length].tolist()
            self.engine.extend(
                scratch, [Row(ids, places, _all(start))], stage="compress", offline=True
            )
        context = Context(self.engine, apart, Span(start, apart.length), ids, offline=True)
        return self.compress(context, compressor)

    def compress(self, context: Context, compressor: Compressor) -> KVCache:
        """Copy the tokens with the largest scores of each head into a cache, traced as "compress"."""
        count = max(1, int(len(context.span) * (1 - self.ratio)))
        started = time.perf_counter()
        scores = (
            compressor.scores(context) if Capability.WEIGHTS in self.engine.capabilities else None
        )
        # its own calls are traced
        started = time.perf_counter() if compressor.reads_text else started
        if scores is None:
            slots = [[list(range(count))] * heads for heads in self.engine.shape.kv_heads]
        else:
            slots = _largest(scores, count, self.budget or compressor.budget)
        slots = [[[context.span.start + i for i in chosen] for chosen in heads] for heads in slots]
        cache = context.cache.select_by_head(slots)
        if scores is not None:
            compressor.fit(context, cache, slots)
        if compressor.contiguous:
            cache.move(Span(0, cache.length), unit_steps(0, cache.length))
        seconds = time.perf_counter() - started
        context.engine.note(
            Call("compress", (), (), offline=context.offline, macs=0, seconds=seconds)
        )
        return cache


def _largest(scores: Sequence[Tensor], count: int, budget: Budget) -> list[list[list[int]]]:
    """Find the slots (layer, kv_head, slot) of the largest scores, `count` a head on average. Every
    head, every layer or all of them have the same share, by `budget`.
    """
    import torch

    if budget == "head":
        return [s.topk(count, -1).indices.sort(-1).values.tolist() for s in scores]
    if budget == "layer":
        return [layer for s in scores for layer in _largest([s], count, "all")]
    flat = torch.cat([s.flatten() for s in scores])
    chosen = torch.zeros_like(flat, dtype=torch.bool)
    chosen[flat.topk(min(len(flat), count * sum(len(s) for s in scores))).indices] = True
    masks = chosen.split([s.numel() for s in scores])
    return [
        [row.nonzero()[:, 0].tolist() for row in m.view_as(s)]
        for m, s in zip(masks, scores, strict=True)
    ]


def _all(length: int) -> tuple[Span, ...]:
    return (Span(0, length),) if length else ()


class AfterPrompt(EngineAround):
    """Compresses the whole prompt once it is read: everything that its last row attends to."""

    press: Press  # of the question being answered
    compressor: Compressor | None = None

    def extend(self, cache: KVCache, rows: Sequence[Row], **options: Any) -> Extension:
        """See `SpanEngine.extend`."""
        answering = len(rows) == 1 and not options.get("offline")
        self.compressor = self.press.compressor() if answering else None
        cache.watch = self.compressor.watch() if self.compressor else None
        read = self.engine.extend(cache, rows, **options)
        cache.watch = None
        return read

    def generate(
        self, cache: KVCache, logits: Tensor, position: float, limits: Limits
    ) -> list[int]:
        """See `SpanEngine.generate`."""
        assert self.compressor is not None
        smaller = self.press.compress(
            Context(self.engine, cache, Span(0, cache.length), (), False), self.compressor
        )
        at = float(smaller.length) if self.compressor.contiguous else position
        roomy = self.engine.join(smaller, _all(smaller.length), limits.max_new_tokens)
        return self.engine.generate(roomy, logits, at, limits)


@dataclass(eq=False)
class BeforeQuestion(EngineAround):
    """Compresses everything in a plain prompt before its question, and reads the question over the
    rest.
    """

    press: Press
    question: int  # tokens at a prompt's end that are read after the compression

    def respond(self, prompt: Sequence[int] | str, limits: Limits) -> Response:
        """See `Engine.respond`."""
        engine = self.engine
        ids = engine.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else list(prompt)
        split = len(ids) - self.question
        compressor = self.press.compressor()
        cache = engine.new_cache(split)
        cache.watch = compressor.watch()
        engine.extend(cache, [plain_row(ids[:split])], stage="prompt")
        cache.watch = None
        smaller = self.press.compress(
            Context(engine, cache, Span(0, split), ids[:split], offline=False), compressor
        )
        cache = engine.join(smaller, _all(smaller.length), self.question + limits.max_new_tokens)
        row = unit_row(ids[split:], split, _all(smaller.length))
        return Response(read_and_generate(engine, cache, row, limits))
