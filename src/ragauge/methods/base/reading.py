"""`Reading`: the segments of a prompt graph as they are read into a cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ragauge.engines.protocol import Extension, Limits, Row, Span, SpanEngine
from ragauge.errors import UserError
from ragauge.methods.base import generate
from ragauge.prompts import Name, PromptGraph

if TYPE_CHECKING:
    from ragauge.engines.cache import KVCache


class Reading:
    """Reads the segments of a graph into a cache, ancestors first, each attending to its ancestors' spans.

    `spans` has the slots of every segment read so far.
    """

    def __init__(
        self, engine: SpanEngine, graph: PromptGraph, cache: KVCache, spans: dict[Name, Span] | None = None
    ) -> None:
        self.engine, self.graph, self.cache = engine, graph, cache
        self.spans = dict(spans or {})

    def rewind(self) -> None:
        """Remove biases, and tokens that other readings of the cache appended after this one's last segment."""
        self.cache.truncate(max((span.stop for span in self.spans.values()), default=0))
        self.cache.bias = None

    def again(self) -> Reading:
        """Copy the reading, to continue from here; this one can be continued again later."""
        self.rewind()
        return Reading(self.engine, self.graph.copy(), self.cache, self.spans)

    def read(
        self,
        names: Sequence[Name],
        *,
        stage: str,
        offline: bool = False,
        parallel: bool = True,
        last_logits: bool = False,
        logp: bool = False,
        attention: bool = False,
    ) -> Extension:
        """Read segments that do not see each other: in one call, or one by one where not `parallel`."""
        groups = [names] if parallel else [[name] for name in names]
        parts = [
            self.engine.extend(
                self.cache,
                [self._row(name) for name in group],
                stage=stage,
                offline=offline,
                parallel=parallel,
                last_logits=last_logits,
                logp=logp,
                attention="all" if attention else None,
            )
            for group in groups
        ]
        spans = [span for part in parts for span in part.spans]
        self.spans.update(zip(names, spans, strict=True))
        return Extension(
            tuple(spans),
            parts[-1].last_logits,
            tuple(values for part in parts for values in part.logp),
            tuple(values for part in parts for values in part.attention),
        )

    def select(self, names: Iterable[Name], room: int) -> Reading:
        """Copy these segments alone into a cache with room for more; the same cache if they are all there is."""
        selected = sorted((self.spans[name], name) for name in names)
        if sum(len(span) for span, _ in selected) == self.cache.length:
            return self
        cache = self.engine.join(self.cache, [span for span, _ in selected], room)
        at, spans = 0, {}
        for span, name in selected:
            spans[name] = Span(at, at + len(span))
            at += len(span)
        return Reading(self.engine, self.graph, cache, spans)

    def generate(self, name: Name, limits: Limits) -> list[int]:
        """Read the last segment and generate after it."""
        read = self.read([name], stage="task", last_logits=True)
        return generate(self.engine, self.cache, read.last_logits, self.graph[name].positions[-1] + 1, limits)

    def past_of(self, name: Name) -> tuple[Name, ...]:
        """List the cached segments that this one attends to: its ancestors without pruned ones."""
        return tuple(a for a in self.graph.ancestors(name) if a in self.spans)

    def _row(self, name: Name) -> Row:
        segment, context = self.graph[name], self.engine.shape.max_context
        tokens = len(segment.ids)
        if tokens > context:  # squeezed positions could hide it
            raise UserError(f"{name[0]} {name[1]} has {tokens} tokens; the model's context is {context} tokens")
        return Row(segment.ids, segment.positions, tuple(self.spans[a] for a in self.past_of(name)))
