"""A decoder's weights in its own layout: linear layers, norms, layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.engines.kernels import operations
from ragauge.engines.kernels.compiled import Matrix


@dataclass(frozen=True)
class Linear:
    """A matrix in floating point, with a bias or without."""

    weight: Tensor  # (out, in)
    bias: Tensor | None = None

    def for_compiled(self) -> Matrix | None:
        """The matrix as `compiled.c` reads it; None if it cannot."""
        return Matrix.of(self.weight, self.bias)

    def split_rows(self, rows: int) -> Sequence[Linear]:
        """Layers of at most this many rows each, whose outputs side by side are this one's; 8-bit
        ones stay whole.
        """
        if not self.weight.is_floating_point():
            return [self]
        weights = self.weight.split(rows)
        biases = [None] * len(weights) if self.bias is None else self.bias.split(rows)
        return list(map(Linear, weights, biases))

    def __call__(self, x: Tensor) -> Tensor:
        return operations.project(x, self.weight, self.bias)


@dataclass(frozen=True)
class Norm:
    weight: Tensor  # (width,), or (head, dim) of all heads together
    bias: Tensor | None = None
    kind: str = "rms"  # "rms", "layer" or "none", which changes nothing
    eps: float = 1e-5

    def __call__(self, x: Tensor) -> Tensor:
        if self.kind == "rms":
            return operations.rms_norm(x, self.weight, self.eps)
        if self.kind == "none":
            return x
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


IDENTITY = Norm(torch.empty(0), kind="none")


@dataclass(frozen=True)
class Layer:
    attention_norm: Norm
    qkv: Linear  # rows: all query heads, all key heads, all value heads
    out: Linear
    mlp_norm: Norm
    up: Linear  # rows: the gate and then the value where the MLP is gated
    down: Linear
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    attention_post_norm: Norm = IDENTITY  # of what the attention and the MLP add
    mlp_post_norm: Norm = IDENTITY


@dataclass(frozen=True)
class Weights:
    embedding: Tensor  # (vocab, d_model)
    layers: tuple[Layer, ...]
    norm: Norm
    head: Linear  # rows: the vocabulary; in floating point the embedding itself where tied
    embedding_norm: Norm = IDENTITY
