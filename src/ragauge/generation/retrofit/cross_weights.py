"""What gated cross-attention adds to a decoder, and how it is trained; the decoder stays as it is.

An encoder of neighbours begins as a copy of the decoder's first layers, the cross-attention of a layer as a copy of its
self-attention: projections, norm and all. What cross-attention finds is multiplied with tanh of a gate that begins at
zero (Alayrac et al., 2022), so that before training the whole is the decoder alone. RETRO's own encoder reads in both
directions and sees the text that asks; here it is causal, as the layers that it is copied from, and sees the neighbour
alone, so that neighbours can be read before their window begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from ragauge.engines import LM
from ragauge.engines.decoder import Decoder
from ragauge.engines.rope import Rotation, rotate
from ragauge.engines.weights import Layer, Linear, Norm
from ragauge.errors import UserError
from ragauge.generation.retrofit.streams import attend, lower_triangle
from ragauge.generation.retrofit.trained import TrainedWeights, load_into, read_trained

CROSS_LAYERS, ENCODER_LAYERS = 3, 2
WEIGHT_SHARE, GATE_SHARE = 0.1, 5.0  # of the learning rate: copied weights need little change, gates begin at zero

T = TypeVar("T")
Memory = tuple[Tensor, Tensor, Tensor]
"""Keys, rotated, and values (token, kv_head, dim) of all neighbours' tokens, and their positions (token,)."""


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
    def of(cls, layer: Layer, query_rows: int) -> Cross:
        """As a layer's self-attention, of whose packed projections the first rows are those of queries."""
        q, kv = (_rows(layer.qkv, part) for part in (slice(query_rows), slice(query_rows, None)))
        gate = torch.zeros(1, device=layer.out.weight.device)
        norm = layer.attention_norm
        return cls(norm, norm, q, kv, layer.out, gate, layer.q_norm, layer.k_norm)

    def memory(self, decoder: Decoder, states: Tensor, at: Tensor) -> Memory:
        """What the encoder's states (token, width) of tokens at positions (token,) offer to be attended to."""
        k, v = self.kv(self.memory_norm(states)).chunk(2, -1)
        return _heads(decoder, k, self.k_norm, decoder.rotation(at)), _heads(decoder, v), at

    def added(self, decoder: Decoder, x: Tensor, at: Tensor, memory: Memory, mask: Tensor | None = None) -> Tensor:
        """What is added to the states (token, width) of tokens at positions (token,), under (token, key)."""
        q = _heads(decoder, self.q(self.query_norm(x)), self.q_norm, decoder.rotation(at))
        keys, values, keys_at = memory
        seen = None if mask is None else mask[None]
        mixed = attend(decoder, q[None], keys[None], values[None], at[None], keys_at[None], seen)[0]
        return self.gate.tanh() * self.out(mixed)


@dataclass(frozen=True)
class Parts:
    """All that is added."""

    encoder: tuple[Layer, ...]
    cross: tuple[Cross, ...]  # of the layers that have it, in order


class CrossWeights(TrainedWeights):
    """Encoder and cross-attention of a decoder, in training: fp32 copies of its weights, by their place in `Parts`."""

    form: ClassVar[str] = "cross_attention"

    def __init__(self, decoder: Decoder, layers: Sequence[int], encoder_layers: int = ENCODER_LAYERS) -> None:
        """
        Args:
            layers: those of the decoder that get cross-attention, counted from 0.
            encoder_layers: how many of the decoder's layers the encoder has.

        Raises:
            UserError: layers that the decoder does not have.
        """
        super().__init__()
        own = decoder.weights.layers
        if not layers or not all(0 <= index < len(own) for index in layers) or not 0 < encoder_layers <= len(own):
            raise UserError(
                f"cross-attention in layers {list(layers)} with {encoder_layers} of the encoder: the decoder has "
                f"{len(own)} layers"
            )
        self.layers = tuple(sorted(set(layers)))
        shape = decoder.shape
        crosses = tuple(Cross.of(own[index], shape.heads[index] * shape.head_dim) for index in self.layers)
        self._copied = Parts(own[:encoder_layers], crosses)
        self.weights = nn.ParameterDict()
        mapped(self._copied, self._own)

    def parts(self, dtype: torch.dtype) -> Parts:
        """All that is added, differentiable in the weights."""
        return mapped(self._copied, lambda place, _: self.weights[place].to(dtype))

    def groups(self) -> list[dict[str, Any]]:
        """See `TrainedWeights.groups`."""
        gates = [weight for place, weight in self.weights.items() if place.endswith("gate")]
        others = [weight for place, weight in self.weights.items() if not place.endswith("gate")]
        return [{"params": others, "share": WEIGHT_SHARE}, {"params": gates, "share": GATE_SHARE}]

    def sizes(self) -> dict[str, str]:
        """See `TrainedWeights.sizes`."""
        return {"layers": " ".join(map(str, self.layers)), "encoder_layers": str(len(self._copied.encoder))}

    @classmethod
    def load(cls, path: Path, lm: LM, model_sha256: str | None = None) -> CrossWeights:
        """The weights of a file.

        Raises:
            UserError: the file is missing or damaged, or belongs to another form, model or size of decoder.
        """
        about, tensors = read_trained(path, cls.form, model_sha256)
        numbers = [*about.get("layers", "").split(), about.get("encoder_layers", "")]
        if not all(number.isdecimal() for number in numbers):
            raise UserError(f"{path}: the metadata has no layers")
        *layers, encoder_layers = map(int, numbers)
        try:
            made = cls(lm.decoder, layers, encoder_layers)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        return load_into(made, tensors, path)

    def _own(self, place: str, tensor: Tensor) -> Tensor:
        self.weights[place] = nn.Parameter(tensor.detach().clone().float())
        return tensor


def cross_layers(layers: int, count: int = CROSS_LAYERS) -> tuple[int, ...]:
    """The layers that get cross-attention by default: the last ones of `count` equal parts of the decoder."""
    return tuple(sorted({max(0, (part + 1) * layers // count - 1) for part in range(count)}))


def encode(decoder: Decoder, layers: Sequence[Layer], ids: Tensor, positions: Tensor) -> Tensor:
    """States (row, token, width) of neighbours (row, token), each read by itself; padding is at their ends."""
    encoder = Decoder(decoder.shape, replace(decoder.weights, layers=tuple(layers)))
    rows, width = ids.shape
    turn, causal = encoder.rotation(positions.flatten()), lower_triangle(rows, width, ids.device)

    def inner(index: int, normed: Tensor) -> Tensor:
        parts = encoder.split(index, layers[index].qkv(normed), turn)
        q, k, v = (part.unflatten(0, (rows, width)) for part in parts)
        return attend(encoder, q, k, v, positions, positions, causal).flatten(0, 1)

    return encoder.run_layers(encoder.embed(ids.flatten()), inner).unflatten(0, (rows, width))


def mapped(value: T, change: Callable[[str, Tensor], Tensor], place: str = "") -> T:
    """A tree of dataclasses and tuples with every tensor in it changed, given its place: field names, joined by _."""
    made: Any = value
    if isinstance(value, Tensor):
        made = change(place, value)
    elif isinstance(value, tuple):
        made = tuple(mapped(part, change, f"{place}_{number}") for number, part in enumerate(value))
    elif is_dataclass(value) and not isinstance(value, type):
        inner = {field.name: getattr(value, field.name) for field in fields(value)}
        made = replace(value, **{n: mapped(part, change, f"{place}_{n}".lstrip("_")) for n, part in inner.items()})
    return made


def _rows(linear: Linear, part: slice) -> Linear:
    return Linear(linear.weight[part], None if linear.bias is None else linear.bias[part])


def _heads(decoder: Decoder, projected: Tensor, norm: Norm | None = None, turn: Rotation | None = None) -> Tensor:
    """(token, rows) -> (token, head, dim), clamped, normed and rotated as the decoder's own are."""
    clip = decoder.shape.qkv_clip
    parts = (projected if clip is None else projected.clamp(-clip, clip)).unflatten(-1, (-1, decoder.shape.head_dim))
    parts = parts if norm is None else norm(parts)
    return parts if turn is None else rotate(parts, *turn)
