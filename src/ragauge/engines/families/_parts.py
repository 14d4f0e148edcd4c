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

    A tensor that is accessed twice is read twice; none is held, so that memory has one copy of the weights.
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
    return _Reader(tensors, shape, names).weights()


class _Reader:
    def __init__(self, tensors: Tensors, shape: Shape, names: Names) -> None:
        self.tensors, self.shape, self.names = tensors, shape, names
        bare = f"{names.embedding}.weight"
        self.root = "" if f"{names.root}{bare}" not in tensors and bare in tensors else names.root

    def weights(self) -> Weights:
        names, shape = self.names, self.shape
        embedding = self.tensors[f"{self.root}{names.embedding}.weight"]
        return Weights(
            embedding=embedding,
            layers=tuple(self.layer(i) for i in range(shape.layers)),
            norm=self.norm(f"{self.root}{names.norm}", shape.norm),
            head=self.tensors.store(Linear(embedding if shape.tied else self.tensors[f"{names.head}.weight"])),
            embedding_norm=self.norm(f"{self.root}{names.embedding_norm}", shape.norm)
            if names.embedding_norm
            else None,
        )

    def layer(self, index: int) -> Layer:
        names, prefix = self.names, f"{self.root}{self.names.layer.format(index)}."
        qkv, arrange = self.stacked(prefix, *names.qkv), names.arrange_qkv
        if arrange is not None:
            heads = self.shape.heads[index]
            qkv = Linear(arrange(qkv.weight, heads), None if qkv.bias is None else arrange(qkv.bias, heads))
        return Layer(
            attention_norm=self.norm(prefix + names.attention_norm, self.shape.norm),
            qkv=self.tensors.store(qkv),
            out=self.tensors.store(self.stacked(prefix, names.out)),
            mlp_norm=self.norm(prefix + names.mlp_norm, self.shape.norm),
            up=self.tensors.store(self.stacked(prefix, *names.up)),
            down=self.tensors.store(self.stacked(prefix, names.down)),
            q_norm=self.norm(prefix + names.q_norm, "rms") if names.q_norm else None,
            k_norm=self.norm(prefix + names.k_norm, "rms") if names.k_norm else None,
        )

    def stacked(self, prefix: str, *names: str) -> Linear:
        """Layers on the same input as one: their outputs side by side."""
        weights = [self.tensors[f"{prefix}{name}.weight"] for name in names]
        biases = [bias for name in names if (bias := self.tensors.get(f"{prefix}{name}.bias")) is not None]
        if len(names) == 1:
            return Linear(weights[0], biases[0] if biases else None)
        return Linear(torch.cat(weights), torch.cat(biases) if biases else None)

    def norm(self, name: str, kind: str) -> Norm:
        bias = self.tensors.get(f"{name}.bias")
        return Norm(self.tensors[f"{name}.weight"], bias, kind, self.shape.norm_eps)


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
