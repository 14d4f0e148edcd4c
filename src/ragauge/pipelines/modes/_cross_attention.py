"""Gated cross-attention in torch: reading neighbours, the weights that training adds, and their
loss (docs/piperag.md).

As in RETRO (Borgeaud et al., 2022) a window's tokens attend to all tokens of all its neighbours, in
a softmax of its own; the gates begin at zero (Alayrac et al., 2022). The encoder is causal, as the
layers that it is copied from, and sees the neighbour alone. Keys have the places before the
window's first, so that no distance is negative.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ragauge.cost.flop import call_macs
from ragauge.cost.trace import Call
from ragauge.engines.decoder import Decoder
from ragauge.engines.lm import LM
from ragauge.engines.rope import Rotation, rotate
from ragauge.engines.weights import Layer, Linear, Norm
from ragauge.pipelines.modes._trained import NeighbourRows, TrainedWeights, attend, pad, read_alone
from ragauge.pipelines.reader import CachedReader, DecoderModel, Prepared, Tokens

WEIGHT_SHARE = 0.1
GATE_SHARE = 5.0  # of the learning rate: copied weights need little change, gates begin at zero

PER_LAYER = ("heads", "kv_heads", "ffn")  # sizes of a decoder's shape

EncodedNeighbours = tuple[Tensor, Tensor, Tensor]
"""Keys, rotated, and values (token, kv_head, dim) of all neighbours' tokens, and their positions
(token,).
"""


@dataclass(frozen=True)
class Cross:
    """Cross-attention of one layer, between its self-attention and its MLP."""

    query_norm: Norm
    memory_norm: Norm  # of the encoder's states
    q: Linear  # rows: all query heads
    kv: Linear  # rows: all key heads, all value heads
    out: Linear
    gate: Tensor  # (1,)
    q_norm: Norm | None = None
    k_norm: Norm | None = None

    @classmethod
    def from_layer(cls, layer: Layer, query_rows: int) -> Cross:
        """Return a copy of a layer's self-attention, of whose packed projections the first rows are
        those of queries.
        """
        q, kv = (
            Linear(layer.qkv.weight[part], None if layer.qkv.bias is None else layer.qkv.bias[part])
            for part in (slice(query_rows), slice(query_rows, None))
        )
        gate = torch.zeros(1, device=layer.out.weight.device)
        norm = layer.attention_norm
        return cls(norm, norm, q, kv, layer.out, gate, layer.q_norm, layer.k_norm)

    def memory(self, decoder: Decoder, states: Tensor, positions: Tensor) -> EncodedNeighbours:
        """Keys and values of the encoder's states (token, width) of tokens at positions (token,)."""
        k, v = self.kv(self.memory_norm(states)).chunk(2, -1)
        return (
            _heads(decoder, k, self.k_norm, decoder.rotations(positions)[0]),
            _heads(decoder, v),
            positions,
        )

    def added(
        self,
        decoder: Decoder,
        x: Tensor,
        positions: Tensor,
        memory: EncodedNeighbours,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Return the term added to the states (token, width) of tokens at positions (token,), under
        a mask (token, key).
        """
        q = _heads(
            decoder, self.q(self.query_norm(x)), self.q_norm, decoder.rotations(positions)[0]
        )
        k, v, key_positions = (part[None] for part in memory)
        visible = None if mask is None else mask[None]
        mixed = attend(decoder, q[None], k, v, positions[None], key_positions, visible)[0]
        return self.gate.tanh() * self.out(mixed)


@dataclass(frozen=True)
class AddedLayers:
    encoder: tuple[Layer, ...]
    cross: tuple[Cross, ...]  # of the layers that have it, in order


def encode(decoder: Decoder, layers: Sequence[Layer], ids: Tensor, positions: Tensor) -> Tensor:
    """States (row, token, width) of neighbours (row, token), each read by itself; padding is at
    their ends.
    """
    return read_alone(
        Decoder(decoder.shape, replace(decoder.weights, layers=tuple(layers))), ids, positions
    )


def _heads(
    decoder: Decoder, projected: Tensor, norm: Norm | None = None, rotation: Rotation | None = None
) -> Tensor:
    """(token, rows) -> (token, head, dim), clamped, normed and rotated as the decoder's own are."""
    clip = decoder.shape.qkv_clip
    parts = (projected if clip is None else projected.clamp(-clip, clip)).unflatten(
        -1, (-1, decoder.shape.head_dim)
    )
    parts = parts if norm is None else norm(parts)
    return parts if rotation is None else rotate(parts, *rotation)


class CrossDecoder(DecoderModel):
    """A decoder with the weights of its cross-attention."""

    def __init__(self, lm: LM, weights: CrossWeights) -> None:
        super().__init__(lm)
        layers = _mapped(weights.layers(lm.dtype), lambda _, weight: weight.detach())
        # by layer
        self.cross: Mapping[int, Cross] = dict(zip(weights.places, layers.cross, strict=True))
        self.encoder = layers.encoder

    def open(self, tokens: int, neighbour_tokens: int = 0) -> CrossReader:
        """See `NeighbourModel.open`; neighbours take no room in the cache."""
        return CrossReader(self, tokens)


class CrossReader(CachedReader):
    """A sequence in a cache, and the encoding of its current neighbours.

    No call counts cross-attention's queries.
    """

    def __init__(self, model: CrossDecoder, capacity: int) -> None:
        super().__init__(model.lm, model.lm.new_cache(capacity))
        self._model = model

    @torch.inference_mode()
    def prepare(self, neighbours: Sequence[Tokens], length: int) -> Prepared:
        texts = [ids for ids in neighbours if len(ids)]
        if not texts:
            return Prepared((), lambda: self._put({}))
        model = self._model
        lm = self.lm
        started = time.perf_counter()
        ids, real, positions = pad(texts, lm.device)
        states = encode(lm.decoder, model.encoder, ids, positions)[real]
        key_positions = (positions + length)[real]
        memory = {
            layer: cross.memory(lm.decoder, states, key_positions)
            for layer, cross in model.cross.items()
        }
        lm.synchronize()
        lengths = tuple(map(len, texts))
        shape = lm.shape
        call = Call("neighbours", lengths, (0,) * len(texts), parallel=len(texts) > 1)
        # multiply-accumulates of the encoder and of keys and values, without padding
        encoder: dict[str, Any] = {
            key: getattr(shape, key)[: len(model.encoder)] for key in PER_LAYER
        }
        rows = sum(2 * shape.kv_heads[layer] * shape.head_dim for layer in model.cross)
        macs = call_macs(call, replace(shape, **encoder)) + sum(lengths) * rows * shape.d_model
        call = replace(call, macs=macs, seconds=time.perf_counter() - started)
        return Prepared((call,), lambda: self._put(memory))

    def _put(self, memory: Mapping[int, EncodedNeighbours]) -> None:
        def add(layer: int, x: Tensor, positions: Tensor) -> Tensor | None:
            if layer not in memory:
                return None
            return self._model.cross[layer].added(self.lm.decoder, x, positions, memory[layer])

        self._cache.cross_attention = add if memory else None


class CrossWeights(TrainedWeights):
    """Encoder and cross-attention of a decoder: fp32 copies of its weights, by their place in
    `AddedLayers`.
    """

    mode = "cross_attention"

    def __init__(self, decoder: Decoder, places: Sequence[int], encoder_layers: int = 2) -> None:
        """Copy a decoder's layers.

        Args:
            decoder: whose weights are copied.
            places: layers that get cross-attention, counted from 0.
            encoder_layers: how many of the first layers the encoder gets.
        """
        super().__init__()
        layers = decoder.weights.layers
        self.places = tuple(sorted(set(places)))
        shape = decoder.shape
        crosses = tuple(
            Cross.from_layer(layers[index], shape.heads[index] * shape.head_dim)
            for index in self.places
        )
        self._copied = AddedLayers(layers[:encoder_layers], crosses)
        self.weights = nn.ParameterDict()
        _mapped(self._copied, self._copy)

    @classmethod
    def fresh(cls, lm: LM, seed: int) -> CrossWeights:
        """See `TrainedWeights.fresh`; copies depend on no seed."""
        return cls(lm.decoder, cross_layers(lm.shape.layers))

    def layers(self, dtype: torch.dtype) -> AddedLayers:
        """Return all that is added, differentiable in the weights."""
        return _mapped(self._copied, lambda name, _: self.weights[name].to(dtype))

    def groups(self) -> list[tuple[list[nn.Parameter], float]]:
        gates = [weight for name, weight in self.weights.items() if name.endswith("gate")]
        rest = [weight for name, weight in self.weights.items() if not name.endswith("gate")]
        return [(rest, WEIGHT_SHARE), (gates, GATE_SHARE)]

    def states(self, decoder: Decoder, sequence: Tensor, rows: NeighbourRows) -> Tensor:
        layers = self.layers(decoder.weights.embedding.dtype)
        crosses = dict(zip(self.places, layers.cross, strict=True))
        encoded = encode(decoder, layers.encoder, rows.ids, rows.positions)[rows.real]
        keys_at = (rows.positions + rows.first[:, None])[rows.real]
        visible = rows.visible[:, rows.real.flatten()]
        # tokens with neighbours: a softmax over nothing has no gradient
        readers = visible.any(1).nonzero()[:, 0]
        mask = visible[readers]

        def add(index: int, x: Tensor) -> Tensor | None:
            if index not in crosses:
                return None
            memory = crosses[index].memory(decoder, encoded, keys_at)
            added = crosses[index].added(decoder, x[readers], readers, memory, mask)
            return torch.zeros_like(x).index_add(0, readers, added)

        positions = torch.arange(len(sequence), device=sequence.device)
        return read_alone(decoder, sequence[None], positions[None], add)[0]

    def _copy(self, name: str, tensor: Tensor) -> Tensor:
        self.weights[name] = nn.Parameter(tensor.detach().clone().float())
        return tensor


def cross_layers(layers: int) -> tuple[int, ...]:
    """Return the layers that get cross-attention: the last of each third of the decoder."""
    return tuple(sorted({max(0, part * layers // 3 - 1) for part in (1, 2, 3)}))


def _mapped(value: Any, change: Callable[[str, Tensor], Tensor], name: str = "") -> Any:
    """Return a tree of dataclasses and tuples with every tensor in it changed, given its place:
    field names, joined by _.
    """
    if isinstance(value, Tensor):
        return change(name, value) if value.numel() else value  # empty: of an absent norm
    if isinstance(value, tuple):
        return tuple(_mapped(part, change, f"{name}_{number}") for number, part in enumerate(value))
    if not is_dataclass(value) or isinstance(value, type):
        return value
    changed = {}
    for field in fields(value):
        part = getattr(value, field.name)
        changed[field.name] = _mapped(part, change, f"{name}_{field.name}".lstrip("_"))
    return replace(value, **changed)
