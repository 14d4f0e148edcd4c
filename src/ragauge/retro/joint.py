"""RETRO-fit by chunked joint attention: any decoder attends to neighbours in the same softmax as to its own past.

The decoder itself makes the keys and values of a window's neighbours, and the window's tokens attend to them beside
their own past, as to any other cached tokens. No weight is added, so that it works without training. RETRO (Borgeaud et
al., 2022) has cross-attention layers of its own in this place; what is attended to, and by which tokens, is the same.

Positions. All neighbours of a window have the same positions and end where the sequence begins, as documents retrieved
for a prompt do, or, once the sequence has grown, `reach` tokens before the window: no key is farther away than that,
however long the sequence. Each neighbour is read behind the first token of the sequence (`sink`): decoders put much of
their attention on the first token they see, and neighbours that each had a first token of their own would draw it to
themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ragauge.cost.trace import Call
from ragauge.errors import UserError
from ragauge.lm import LM, KVCache, Limits, Row, Span
from ragauge.retro.reader import Tokens


@dataclass(frozen=True)
class JointAttention:
    """How neighbours are placed; `open` begins a sequence."""

    reach: int | None = None  # most tokens between a neighbour's end and its window; None: without bound
    sink: bool = True  # neighbours are read behind the sequence's first token
    bias: float = 0.0  # added to the attention scores of neighbours' keys, in nats

    def __post_init__(self) -> None:
        if self.reach is not None and self.reach < 0:
            raise UserError(f"reach: must be a number of tokens, not {self.reach}")

    def open(self, lm: LM, tokens: int, neighbour_tokens: int = 0, adapted: LM | None = None) -> JointReader:
        """A reader with room for a sequence of `tokens` and neighbours of `neighbour_tokens` in all.

        Args:
            adapted: reads the neighbours in the place of `lm`: the same decoder with trained adapters.
        """
        return JointReader(self, lm, tokens + 2 * neighbour_tokens, adapted)


class JointReader:
    """A sequence and its current neighbours in one cache: the neighbours' slots first, then the sequence's.

    So the keys of every read are a view of the cache, and decoding between two retrievals is plain decoding.
    """

    def __init__(self, form: JointAttention, lm: LM, capacity: int, adapted: LM | None = None) -> None:
        self.form, self.lm, self.adapted = form, lm, adapted
        self.length = 0
        self._cache = lm.new_cache(capacity)
        self._front = 0  # slots of the neighbours

    def attach(self, neighbours: Sequence[Tokens]) -> None:
        """See `Reader.attach`. Raises UserError where there is no token yet to read neighbours behind."""
        if self.form.sink and not self.length:
            raise UserError("neighbours are read behind the sequence's first token; the sequence is empty")
        rows = [self._row(ids) for ids in neighbours if len(ids)]
        end = self._cache.length
        if rows:
            self._read_neighbours(rows)
        self._bring_to_front(Span(end, self._cache.length))

    def read(self, ids: Tokens) -> Tensor:
        """See `Reader.read`."""
        row = Row(ids, range(self.length, self.length + len(ids)), (Span(0, self._cache.length),))
        [logits] = self.lm.extend(self._cache, [row], stage="read", logits_at=[range(len(ids))]).logits
        self.length += len(ids)
        return logits

    def decode(self, logits: Tensor, tokens: int) -> list[int]:
        """See `Reader.decode`."""
        ids = self.lm.generate(self._cache, logits, self.length, Limits(tokens, ignore_stop=True))
        self.length += len(ids) - 1
        return ids

    def note(self, call: Call) -> None:
        """See `Reader.note`."""
        self.lm.note(call)

    def _read_neighbours(self, rows: Sequence[Row]) -> None:
        if self.adapted is None:
            self.lm.extend(self._cache, rows, stage="neighbours", parallel=True)
            return
        with self.adapted.tracing() as trace:
            self.adapted.extend(self._cache, rows, stage="neighbours", parallel=True)
        for call in trace:
            self.lm.note(call)

    def _row(self, ids: Tokens) -> Row:
        last = 0 if self.form.reach is None else max(0, self.length - self.form.reach)
        past = (Span(self._front, self._front + 1),) if self.form.sink else ()
        return Row(ids, range(last - len(ids), last), past)

    def _bring_to_front(self, new: Span) -> None:
        """Make the neighbours in slots `new`, behind the sequence, those in front of it."""
        if len(new) == self._front:
            _copy(self._cache, new, Span(0, self._front))
            self._cache.truncate(new.start)
            return
        spans, free = [new, Span(self._front, new.start)], self._cache.capacity - self._cache.length
        self._cache = self.lm.join(self._cache, spans, free + self._front)
        self._front = len(new)
        self._cache.bias = None
        if self.form.bias and self._front:
            self._cache.add_bias(Span(0, self._front), self.form.bias)


def _copy(cache: KVCache, source: Span, target: Span) -> None:
    """Copy the slots of one span over those of another of the same length; biases stay with their slots."""
    for arena in (*cache.k, *cache.v):
        arena[:, target.start : target.stop] = arena[:, source.start : source.stop]
    cache.positions[target.start : target.stop] = cache.positions[source.start : source.stop]
