"""RETRO-fit by gated chunked cross-attention: some layers of a decoder attend to an encoding of the neighbours.

As in RETRO (Borgeaud et al., 2022) a window's tokens attend to all tokens of all its neighbours, in a softmax apart
from that over their past, between self-attention and MLP; `windows.py` says which tokens are of which window. Without
neighbours nothing is added. The weights are those of `retrofit/cross_weights.py`; untrained ones add nothing either.

Positions. A neighbour ends where its window begins: queries have their own place in the sequence, keys the places
before the window's first, so that distances are bounded and none is negative, as in the decoder's self-attention.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ragauge.cost.flop import call_macs
from ragauge.cost.trace import Call
from ragauge.engines import LM
from ragauge.generation.reader import CachedReader, Decoding, Prepared, Tokens
from ragauge.generation.retrofit.cross_weights import Cross, CrossWeights, Memory, encode, mapped
from ragauge.generation.retrofit.streams import packed


class CrossDecoding(Decoding):
    """A decoder with the weights of its cross-attention."""

    def __init__(self, lm: LM, weights: CrossWeights) -> None:
        super().__init__(lm)
        parts = mapped(weights.parts(lm.dtype), lambda _, weight: weight.detach())
        self.cross: Mapping[int, Cross] = dict(zip(weights.layers, parts.cross, strict=True))  # by layer
        self.encoder = parts.encoder

    def open(self, tokens: int, neighbour_tokens: int = 0) -> CrossReader:
        """See `Decoding.open`; neighbours take no room in the cache."""
        return CrossReader(self, tokens)

    @torch.inference_mode()
    def read_neighbours(self, texts: Sequence[Tokens], length: int) -> tuple[Mapping[int, Memory], Call]:
        """By layer, what a window that begins after `length` tokens attends to, and the call that read it.

        Other threads may read the sequence meanwhile.
        """
        decoder = self.lm.decoder
        started = time.perf_counter()
        ids, real, positions = packed(texts, self.lm.device)
        states = encode(decoder, self.encoder, ids, positions)[real]
        places = (positions + length)[real]
        memory = {layer: cross.memory(decoder, states, places) for layer, cross in self.cross.items()}
        self.synchronize()
        lengths = tuple(map(len, texts))
        call = Call("neighbours", lengths, (0,) * len(texts), parallel=len(texts) > 1)
        return memory, replace(call, macs=self._macs(call), seconds=time.perf_counter() - started)

    def _macs(self, call: Call) -> int:
        """Multiply-accumulates of encoder and keys and values, without padding."""
        shape, layers = self.lm.shape, len(self.encoder)
        sizes: dict[str, Any] = {name: getattr(shape, name)[:layers] for name in ("heads", "kv_heads", "ffn")}
        rows = sum(2 * shape.kv_heads[layer] * shape.head_dim for layer in self.cross)
        return call_macs(call, replace(shape, **sizes)) + sum(call.lengths) * rows * shape.d_model


class CrossReader(CachedReader):
    """A sequence in a cache, and the encoding of its current neighbours beside it.

    The trace counts the multiply-accumulates of cross-attention's queries nowhere: its calls are the decoder's.
    """

    def __init__(self, model: CrossDecoding, capacity: int) -> None:
        super().__init__(model.lm, model.lm.new_cache(capacity))
        self._model = model

    def prepare(self, neighbours: Sequence[Tokens], length: int) -> Prepared:
        """See `PreparingReader.prepare`."""
        texts = [ids for ids in neighbours if len(ids)]
        if not texts:
            return Prepared((), lambda: self._put({}))
        memory, call = self._model.read_neighbours(texts, length)
        return Prepared((call,), lambda: self._put(memory))

    def _put(self, memory: Mapping[int, Memory]) -> None:
        decoder = self.lm.decoder

        def beside(layer: int, x: Tensor, positions: Tensor) -> Tensor | None:
            if layer not in memory:
                return None
            return self._model.cross[layer].added(decoder, x, positions, memory[layer])

        self._cache.cross_attention = beside if memory else None
