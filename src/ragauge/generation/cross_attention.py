"""RETRO-fit by gated chunked cross-attention: some layers of a decoder attend to an encoding of the neighbours.

As in RETRO (Borgeaud et al., 2022) a window's tokens attend to all tokens of all its neighbours, in a softmax apart
from that over their past, between self-attention and MLP; which tokens are of which window says `windows.py`. Without
neighbours nothing is added. The weights are those of `cross_weights.py`; until they are trained, nothing is added
either.

Positions. A neighbour ends where its window begins: queries have their own place in the sequence, keys the places
before the window's first, so that distances are bounded and none is negative, as in the decoder's self-attention.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ragauge.cost.flop import call_macs
from ragauge.cost.trace import Call
from ragauge.engines import LM, KVCache
from ragauge.engines.decoder import Decoder
from ragauge.errors import UserError
from ragauge.generation.cross_weights import FORM, Cross, CrossWeights, encode, mapped
from ragauge.generation.reader import CachedReader, Prepared, Tokens
from ragauge.generation.streams import packed, turn

Memory = Mapping[int, tuple[Tensor, Tensor]]
"""Keys and values of all neighbours' tokens (token, kv_head, dim), by layer."""


@dataclass(frozen=True)
class CrossAttention:
    """The form; `open` begins a sequence."""

    name: str = field(default=FORM, init=False)

    def open(self, lm: LM, tokens: int, neighbour_tokens: int = 0, adapted: LM | None = None) -> CrossReader:
        """A reader with room for a sequence of `tokens`; neighbours take none of it.

        Raises:
            UserError: a decoder without cross-attention.
        """
        if not isinstance(lm, CrossLM):
            raise UserError("cross-attention: the decoder has none; give the weights that were trained for it")
        return CrossReader(lm, tokens)


class CrossCache(KVCache):
    """A sequence's cache, and beside it what its tokens attend to in layers with cross-attention."""

    memory: Memory | None = None


@dataclass(frozen=True)
class CrossDecoder(Decoder):
    """A decoder whose layers attend to the neighbours beside the cache, where there are any."""

    cross: Mapping[int, Cross] = field(default_factory=dict)  # by layer

    def attended(self, index: int, x: Tensor, positions: Tensor, cache: KVCache) -> Tensor:
        """See `Decoder.attended`."""
        if index not in self.cross or not isinstance(cache, CrossCache) or cache.memory is None:
            return x
        return x + self.cross[index].added(self, x, turn(self, positions), *cache.memory[index])


class CrossLM(LM):
    """A decoder with cross-attention. It shares all weights but those with the decoder that it was made of."""

    def __init__(self, lm: LM, weights: CrossWeights) -> None:
        assert lm.decoder is not None
        parts = mapped(weights.parts(lm.dtype), lambda _, weight: weight.detach())
        cross = dict(zip(weights.layers, parts.cross, strict=True))
        super().__init__(CrossDecoder(lm.shape, lm.decoder.weights, cross), lm.tokenizer)
        self.cross, self.encoder = cross, parts.encoder

    def new_cache(self, capacity: int) -> CrossCache:
        """See `LM.new_cache`."""
        cache = CrossCache(self.shape, capacity, self.dtype, self.device)
        self._keep(cache)
        return cache

    @torch.inference_mode()
    def read_neighbours(self, texts: Sequence[Tokens], length: int) -> tuple[Memory, Call]:
        """Keys and values of the neighbours of a window that begins after `length` tokens, and what that took.

        Other threads may read the sequence meanwhile.
        """
        assert self.decoder is not None
        started = time.perf_counter()
        ids, real, positions = packed(texts, self.device)
        states = encode(self.decoder, self.encoder, ids, positions)[real]
        places = turn(self.decoder, (positions + length)[real])
        memory = {layer: cross.keys_values(self.decoder, states, places) for layer, cross in self.cross.items()}
        self.synchronize()
        lengths = tuple(map(len, texts))
        call = Call("neighbours", lengths, (0,) * len(texts), parallel=len(texts) > 1)
        return memory, replace(call, macs=self._macs(call), seconds=time.perf_counter() - started)

    def _macs(self, call: Call) -> int:
        """Multiply-accumulates of encoder and keys and values, without padding."""
        layers = len(self.encoder)
        sizes = {name: getattr(self.shape, name)[:layers] for name in ("heads", "kv_heads", "ffn")}
        rows = 2 * self.shape.kv_heads[0] * self.shape.head_dim
        projected = sum(call.lengths) * len(self.cross) * rows * self.shape.d_model
        return call_macs(call, replace(self.shape, **sizes)) + projected


class CrossReader(CachedReader):
    """A sequence in a cache, and the encoding of its current neighbours beside it.

    The trace counts the multiply-accumulates of cross-attention's queries nowhere: its calls are the decoder's.
    """

    def __init__(self, lm: CrossLM, capacity: int) -> None:
        cache = lm.new_cache(capacity)
        super().__init__(lm, cache)
        self._reads, self._beside = lm, cache

    def prepare(self, neighbours: Sequence[Tokens], length: int) -> Prepared:
        """See `AheadReader.prepare`."""
        texts = [ids for ids in neighbours if len(ids)]
        if not texts:
            return Prepared((), lambda: self._put(None))
        memory, call = self._reads.read_neighbours(texts, length)
        return Prepared((call,), lambda: self._put(memory))

    def _put(self, memory: Memory | None) -> None:
        self._beside.memory = memory
