"""What the checkpoint families share: where tensors are, and how a decoder's weights are read from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.engines.weights import Layer, Linear, Norm, Weights
from ragauge.errors import UserError


class Tensors(Mapping[str, Tensor]):
    """A checkpoint's tensors by name, each read when it is accessed, and how linear layers made of them are stored.

    A tensor that is accessed twice is read twice; none is cached, so that memory has one copy of the weights.
    """

    def __init__(self, readers: Mapping[str, Callable[[], Tensor]], store: Callable[[Linear], Linear]) -> None:
        """
        Args:
            readers: of each tensor, in the decoder's type and on its device.
            store: turns a layer in floating point into the one that stays in memory.
        """
        self._readers, self.store = readers, store

    def __getitem__(self, name: str) -> Tensor:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, name: object) -> bool:
        return name in self._readers


@dataclass(frozen=True)
class Names:
    """Names of a family's tensors, without `.weight` and `.bias`; layers on the same input are stacked into one."""

    embedding: str
    norm: str
    layer: str  # prefix of the names below, {} stands for the layer's number
    attention_norm: str
    qkv: tuple[str, ...]
    out: str
    mlp_norm: str
    up: tuple[str, ...]
    down: str
    q_norm: str | None = None
    k_norm: str | None = None
    embedding_norm: str | None = None
    head: str = "lm_head"  # where it is not tied to the embedding
    root: str = ""  # a prefix of all names but the head's, which checkpoints of the bare model leave out
    arrange_qkv: Callable[[Tensor, int], Tensor] | None = None  # (rows, heads) -> all query, key, then value rows


def read(tensors: Tensors, shape: Shape, names: Names) -> Weights:
    """A decoder's weights from a checkpoint's tensors; raises KeyError with the name of one that is missing."""
    bare = f"{names.embedding}.weight"
    root = "" if f"{names.root}{bare}" not in tensors and bare in tensors else names.root
    embedding = tensors[root + bare]
    return Weights(
        embedding=embedding,
        layers=tuple(_layer(tensors, shape, names, root, i) for i in range(shape.layers)),
        norm=_norm(tensors, root + names.norm, shape),
        head=tensors.store(Linear(embedding if shape.tied else tensors[f"{names.head}.weight"])),
        embedding_norm=_norm(tensors, root + names.embedding_norm, shape) if names.embedding_norm else None,
    )


def _layer(tensors: Tensors, shape: Shape, names: Names, root: str, index: int) -> Layer:
    prefix = f"{root}{names.layer.format(index)}."
    qkv = _stacked(tensors, prefix, *names.qkv)
    if names.arrange_qkv is not None:
        weight, bias = (None if x is None else names.arrange_qkv(x, shape.heads[index]) for x in (qkv.weight, qkv.bias))
        assert weight is not None
        qkv = Linear(weight, bias)
    return Layer(
        attention_norm=_norm(tensors, prefix + names.attention_norm, shape),
        qkv=tensors.store(qkv),
        out=tensors.store(_stacked(tensors, prefix, names.out)),
        mlp_norm=_norm(tensors, prefix + names.mlp_norm, shape),
        up=tensors.store(_stacked(tensors, prefix, *names.up)),
        down=tensors.store(_stacked(tensors, prefix, names.down)),
        q_norm=_norm(tensors, prefix + names.q_norm, shape, "rms") if names.q_norm else None,
        k_norm=_norm(tensors, prefix + names.k_norm, shape, "rms") if names.k_norm else None,
    )


def _stacked(tensors: Tensors, prefix: str, *names: str) -> Linear:
    """Layers on the same input as one: their outputs side by side."""
    weights = [tensors[f"{prefix}{name}.weight"] for name in names]
    biases = [bias for name in names if (bias := tensors.get(f"{prefix}{name}.bias")) is not None]
    if len(names) == 1:
        return Linear(weights[0], biases[0] if biases else None)
    return Linear(torch.cat(weights), torch.cat(biases) if biases else None)


def _norm(tensors: Tensors, name: str, shape: Shape, kind: str | None = None) -> Norm:
    return Norm(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"), kind or shape.norm, shape.norm_eps)


def eos_ids(config: Mapping[str, Any]) -> tuple[int, ...]:
    """`eos_token_id` as a tuple, whichever of the three ways the config writes it."""
    ids = config.get("eos_token_id")
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (ids,)


def refuse(config: Mapping[str, Any], key: str, *accepted: Any) -> None:
    """Raise UserError if a config has a value that the decoder does not support; the caller adds the place."""
    value = config.get(key)
    if value is not None and value not in accepted:
        choices = ", ".join(map(repr, accepted))
        raise UserError(f"{key}: {value!r} is not supported; supported: {choices}")
