"""`Reading`: the segments of a prompt graph as they are read into a cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from ragauge.engines.protocol import Extension, Limits, Row, Span, SpanEngine
from ragauge.errors import UserError
from ragauge.methods.base.method import read_and_generate
from ragauge.methods.prompts import PREAMBLE, TASK, Name, Prompt, PromptGraph, unit_segment

if TYPE_CHECKING:
    from ragauge.engines.cache import KVCache

PREAMBLE_REST: Name = ("preamble", 1)  # of a preamble whose first token is a segment of its own


@dataclass(eq=False)
class Reading:
    """Reads the segments of a graph into a cache, ancestors first, each attending to its ancestors'
    spans.
    """

    engine: SpanEngine
    graph: PromptGraph
    cache: KVCache
    spans: dict[Name, Span] = field(default_factory=dict)  # the slots of every segment read so far

    def rewind(self) -> None:
        """Remove biases, and tokens that other readings of the cache appended after this one's last
        segment.
        """
        self.cache.truncate(max((span.stop for span in self.spans.values()), default=0))
        self.cache.drop_bias()

    def again(self) -> Reading:
        """Copy the reading, to continue from here; this one can be continued again later."""
        self.rewind()
        return Reading(self.engine, PromptGraph(self.graph), self.cache, dict(self.spans))

    def read(self, names: Sequence[Name], **options: Any) -> Extension:
        """Read segments that do not see each other: in one call, or one by one if `parallel` is
        false.
        """
        options.setdefault("parallel", True)
        groups = [names] if options["parallel"] else [[name] for name in names]
        parts = [
            self.engine.extend(self.cache, [self._row(name) for name in group], **options)
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
        """Copy these segments alone into a cache with room for more; the same cache if they are all
        there is.
        """
        selected = sorted((self.spans[name], name) for name in names)
        if sum(len(span) for span, _ in selected) == self.cache.length:
            return self
        cache = self.engine.join(self.cache, [span for span, _ in selected], room)
        edges = pairwise(accumulate((len(span) for span, _ in selected), initial=0))
        spans = {name: Span(*edge) for (_, name), edge in zip(selected, edges, strict=True)}
        return Reading(self.engine, self.graph, cache, spans)

    def generate(
        self, ids: Sequence[int], start: float, parents: Iterable[Name], limits: Limits
    ) -> list[int]:
        """Read the last segment, its tokens from position `start` on, below its parents, and
        generate after it.
        """
        self.graph.add(unit_segment(TASK, ids, start, parents))
        return read_and_generate(self.engine, self.cache, self._row(TASK), limits, "task")

    def past_of(self, name: Name) -> tuple[Name, ...]:
        """List the cached segments that this one attends to: its ancestors without pruned ones."""
        return tuple(a for a in self.graph.ancestors[name] if a in self.spans)

    def _row(self, name: Name) -> Row:
        segment = self.graph[name]
        context = self.engine.shape.max_context
        tokens = len(segment.ids)
        if tokens > context:  # squeezed positions could hide it
            raise UserError(
                f"{name[0]} {name[1]} has {tokens} tokens; the model's context is {context} tokens"
            )
        return Row(segment.ids, segment.positions, tuple(self.spans[a] for a in self.past_of(name)))


def read_preamble(
    engine: SpanEngine,
    prompt: Prompt,
    room: int,
    *,
    offline: bool = True,
    first_apart: bool = False,
) -> Reading:
    """Read the preamble into a cache with room for more. `first_apart`: its first token, the begin
    of text where there is one, is a segment of its own.
    """
    ids = prompt.preamble
    first = 1 if first_apart else len(ids)
    reading = Reading(engine, PromptGraph(), engine.new_cache(len(ids) + room))
    reading.graph.add(unit_segment(PREAMBLE, ids[:first], 0))
    if ids[first:]:
        reading.graph.add(unit_segment(PREAMBLE_REST, ids[first:], first, (PREAMBLE,)))
    for name in list(reading.graph.segments):
        reading.read([name], stage="preamble", offline=offline)
    return reading
