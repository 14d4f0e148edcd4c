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

import torch
from torch import Tensor

from ragauge.engines import LM, KVCache, Row, Span
from ragauge.errors import UserError
from ragauge.generation.reader import CachedReader, Decoding, KeptStates, Prepared, Tokens
from ragauge.generation.retrofit.placement import Placement


class JointDecoding(Decoding):
    """A decoder that reads neighbours itself, or as `adapted` does: the same decoder with trained adapters."""

    def __init__(self, lm: LM, adapted: LM | None = None, form: Placement | None = None) -> None:
        super().__init__(lm)
        self.form, self.adapted = form or Placement(), adapted

    def open(self, tokens: int, neighbour_tokens: int = 0) -> JointReader:
        """See `Decoding.open`."""
        return JointReader(self.form, self.lm, tokens + neighbour_tokens, self.adapted)


class JointReader(CachedReader):
    """A sequence and its current neighbours in one cache: the neighbours' slots first, then the sequence's.

    So the keys of every read are a view of the cache, and decoding between two retrievals is plain decoding.
    Neighbours are read into caches of their own, which another thread may do, and copied from there. A chunk that an
    earlier window found as well is not read again.
    """

    def __init__(self, form: Placement, lm: LM, capacity: int, adapted: LM | None = None) -> None:
        super().__init__(lm, lm.new_cache(capacity))
        self.form = form
        self._reads = adapted or lm  # whose decoder reads neighbours
        self._front = 0  # slots of the neighbours
        self._sink: KVCache | None = None  # the sequence's first token
        self._kept: KeptStates[KVCache] = KeptStates()

    def prepare(self, neighbours: Sequence[Tokens], length: int) -> Prepared:
        """See `PreparingReader.prepare`. Raises UserError if there is no token yet to read neighbours behind.

        Two threads may be here at once, at the first window: traces and caches are each call's own.
        """
        lm = LM(self._reads.decoder, self._reads.tokenizer)
        texts = [tuple(ids) for ids in neighbours if len(ids)]
        if self.form.sink and self._sink is None:
            raise UserError("neighbours are read behind the sequence's first token; the sequence is empty")
        last = 0 if self.form.reach is None else max(0, length - self.form.reach)
        with lm.tracing() as trace:
            states = self._kept.of(
                [(last, ids) for ids in texts], lambda places: self._read(lm, [texts[i] for i in places], last)
            )
        cache = lm.new_cache(sum(map(len, texts)))
        for state in states:
            cache.append(state, Span(0, state.length))
        return Prepared(tuple(trace), lambda: self._put(cache, Span(0, cache.length)))

    def _read(self, lm: LM, texts: Sequence[Tokens], last: int) -> list[KVCache]:
        """Each neighbour's keys and values, in a cache of its own; they end before position `last`."""
        cache = self._behind_the_sink(lm, sum(map(len, texts)))
        sink = cache.length
        rows = [Row(ids, range(last - len(ids), last), (Span(0, sink),) if sink else ()) for ids in texts]
        read = lm.extend(cache, rows, stage="neighbours", parallel=True)
        return [lm.join(cache, [span], 0) for span in read.spans]

    def read(self, ids: Tokens) -> Tensor:
        """See `Reader.read`."""
        logits = super().read(ids)
        if self._sink is None:
            self._sink = self._cache.select([Span(0, 1)])
        return logits

    def _behind_the_sink(self, lm: LM, tokens: int) -> KVCache:
        """A cache of the sequence's first token, or of none, with room for `tokens`."""
        if not self.form.sink:
            return lm.new_cache(tokens)
        assert self._sink is not None
        return lm.join(self._sink, [Span(0, 1)], tokens)

    @torch.inference_mode()
    def _put(self, source: KVCache, new: Span) -> None:
        """Make these slots of a cache the neighbours in front of the sequence."""
        if len(new) == self._front:
            _copy(source, new, self._cache, Span(0, self._front))
            return
        own = Span(self._front, self._cache.length)
        joined = self.lm.join(source, [new], max(len(own), self._cache.capacity - len(new)))
        joined.append(self._cache, own)
        self._cache, self._front = joined, len(new)
        self._cache.bias = None
        if self.form.bias and self._front:
            self._cache.add_bias(Span(0, self._front), self.form.bias)


def _copy(source: KVCache, span: Span, cache: KVCache, target: Span) -> None:
    """Copy a span of slots over those of another cache, as many; biases stay with their slots."""
    cache.copy(source, slice(span.start, span.stop), slice(target.start, target.stop))
    cache.positions[target.start : target.stop] = source.positions[span.start : span.stop]
