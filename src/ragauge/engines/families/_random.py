"""Random weights of any shape, in the decoder's own layout."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.engines.weights import Layer, Linear, Norm, Weights


def draw(
    shape: Shape, dtype: torch.dtype, device: torch.device, seed: int, store: Callable[[Linear], Linear]
) -> Weights:
    """Normal weights scaled by 1/sqrt(fan-in), so that activations neither vanish nor overflow in any dtype."""
    d, dim = shape.d_model, shape.head_dim
    # no values on the meta device; drawing them would load torch's compiler, for seconds
    generator = None if device.type == "meta" else torch.Generator(device=device).manual_seed(seed)

    def matrix(rows: int, columns: int) -> Tensor:
        values = torch.empty(rows, columns, dtype=dtype, device=device)
        return values if generator is None else values.normal_(0, columns**-0.5, generator=generator)

    def linear(rows: int, columns: int, bias: bool) -> Linear:
        zeros = torch.zeros(rows, dtype=dtype, device=device) if bias else None
        return store(Linear(matrix(rows, columns), zeros))

    def norm(width: int, kind: str = shape.norm) -> Norm:
        ones = torch.ones(width, dtype=dtype, device=device)
        return Norm(ones, torch.zeros_like(ones) if shape.norm_bias else None, kind, shape.norm_eps)

    def layer(i: int) -> Layer:
        return Layer(
            attention_norm=norm(d),
            qkv=linear((shape.heads[i] + 2 * shape.kv_heads[i]) * dim, d, shape.bias or shape.attention_bias),
            out=linear(d, shape.heads[i] * dim, shape.bias),
            mlp_norm=norm(d),
            up=linear((2 if shape.gated else 1) * shape.ffn[i], d, shape.bias),
            down=linear(d, shape.ffn[i], shape.bias),
            q_norm=norm(dim, "rms") if shape.qk_norm else None,
            k_norm=norm(dim, "rms") if shape.qk_norm else None,
        )

    embedding = matrix(shape.vocab, d)
    return Weights(
        embedding=embedding,
        layers=tuple(layer(i) for i in range(shape.layers)),
        norm=norm(d),
        head=store(Linear(embedding if shape.tied else matrix(shape.vocab, d))),
        embedding_norm=norm(d) if shape.embedding_norm else None,
    )
