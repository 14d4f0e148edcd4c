"""Random weights of any shape, in the decoder's own layout."""

from __future__ import annotations

import torch
from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.engines.decoder import Layer, Linear, Norm, Weights
from ragauge.engines.int8 import Keep


def draw(shape: Shape, dtype: torch.dtype, device: torch.device, seed: int, keep: Keep) -> Weights:
    """Normal weights scaled by 1/sqrt(fan-in), so that activations neither vanish nor overflow in any dtype."""
    generator = None if device.type == "meta" else torch.Generator(device=device).manual_seed(seed)
    return _Drawer(shape, dtype, device, generator, keep).weights()


class _Drawer:
    def __init__(
        self,
        shape: Shape,
        dtype: torch.dtype,
        device: torch.device,
        generator: torch.Generator | None,
        keep: Keep,
    ) -> None:
        self.shape, self.dtype, self.device, self.generator, self.keep = shape, dtype, device, generator, keep

    def weights(self) -> Weights:
        shape = self.shape
        embedding = self.matrix(shape.vocab, shape.d_model)
        return Weights(
            embedding=embedding,
            layers=tuple(self.layer(i) for i in range(shape.layers)),
            norm=self.norm(shape.d_model),
            head=self.keep(Linear(embedding if shape.tied else self.matrix(shape.vocab, shape.d_model))),
            embedding_norm=self.norm(shape.d_model) if shape.embedding_norm else None,
        )

    def layer(self, i: int) -> Layer:
        shape, d, dim = self.shape, self.shape.d_model, self.shape.head_dim
        qkv_bias = shape.bias or shape.attention_bias
        return Layer(
            attention_norm=self.norm(d),
            qkv=self.linear((shape.heads[i] + 2 * shape.kv_heads[i]) * dim, d, qkv_bias),
            out=self.linear(d, shape.heads[i] * dim, shape.bias),
            mlp_norm=self.norm(d),
            up=self.linear((2 if shape.gated else 1) * shape.ffn[i], d, shape.bias),
            down=self.linear(d, shape.ffn[i], shape.bias),
            q_norm=self.norm(dim, "rms") if shape.qk_norm else None,
            k_norm=self.norm(dim, "rms") if shape.qk_norm else None,
        )

    def linear(self, rows: int, columns: int, bias: bool) -> Linear:
        zeros = torch.zeros(rows, dtype=self.dtype, device=self.device) if bias else None
        return self.keep(Linear(self.matrix(rows, columns), zeros))

    def matrix(self, rows: int, columns: int) -> Tensor:
        values = torch.empty(rows, columns, dtype=self.dtype, device=self.device)
        if self.generator is None:  # no values on the meta device; asking for them loads torch's compiler, for seconds
            return values
        return values.normal_(0, columns**-0.5, generator=self.generator)

    def norm(self, width: int, kind: str | None = None) -> Norm:
        ones = torch.ones(width, dtype=self.dtype, device=self.device)
        zeros = torch.zeros_like(ones) if self.shape.norm_bias else None
        return Norm(ones, zeros, kind or self.shape.norm, self.shape.norm_eps)
