"""All layers for a few tokens in one call of `kernels.compiled`, where that was measured to be fastest.

One token through a small decoder takes some forty operators a layer, and calling them takes longer than what most of
them compute. `Decoder.through` is what this stands for; results differ in rounding only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.engines.cache import KVCache
from ragauge.engines.kernels import compiled
from ragauge.engines.rounding import parts as tensors_of

if TYPE_CHECKING:
    from ragauge.engines.decoder import Layer, Norm, Part, Turn


class FusedLayers:
    """The layers of one decoder, as `compiled.c` takes them."""

    def __init__(self, layers: Sequence[Layer], matrices: Sequence[Sequence[compiled.Matrix]], shape: Shape) -> None:
        self._shape, self._held = shape, list[Any](matrices)
        self._layers = (compiled.LayerArguments * len(layers))(
            *(self._layer(index, layer, matrices[index]) for index, layer in enumerate(layers))
        )

    def _layer(self, index: int, layer: Layer, matrices: Sequence[compiled.Matrix]) -> compiled.LayerArguments:
        norms = [self._weight(n) for n in (layer.attention_norm, layer.mlp_norm, layer.q_norm, layer.k_norm)]
        return compiled.LayerArguments(*matrices, *norms, self._shape.heads[index], self._shape.kv_heads[index])

    def _weight(self, norm: Norm | None) -> int | None:
        if norm is None:
            return None
        self._held.append(weight := norm.weight.float().contiguous())
        return int(weight.data_ptr())

    def read(self, x: Tensor, turn: Turn, parts: Sequence[Part], layers: tuple[int, int] | None) -> Tensor:
        """States (token, d_model) through all layers or a range of them; keys and values join the caches."""
        first, last = layers or (0, len(self._layers))
        states = x.float().clone(memory_format=torch.contiguous_format)
        cos, sin = (angles.float().contiguous() for angles in turn)
        tokens = [compiled.Token(part, *run) for part, at in enumerate(parts) for run in at.layout.runs or ()]
        caches = [compiled.Cache(*_cache(part.cache, layer)) for layer in range(first, last) for part in parts]
        library = compiled.library()
        assert library is not None
        failed = library.through(
            ctypes.byref(self._layers, first * ctypes.sizeof(compiled.LayerArguments)),
            last - first,
            (compiled.Cache * len(caches))(*caches),
            len(parts),
            (compiled.Token * len(tokens))(*tokens),
            len(tokens),
            states.data_ptr(),
            cos.data_ptr(),
            sin.data_ptr(),
            self._shape.d_model,
            self._shape.head_dim,
            self._shape.norm_eps,
            torch.get_num_threads(),
        )
        if failed:
            raise MemoryError(f"a pass over {len(tokens)} tokens")
        return states.to(x.dtype)


def fused(layers: Sequence[Layer], shape: Shape) -> FusedLayers | None:
    """None for layers that `compiled.c` does not compute: with a bias of scores, LayerNorm, no gate, in float16."""
    if shape.position != "rope" or not shape.gated or shape.activation != "silu" or shape.qkv_clip is not None:
        return None
    norms = [n for x in layers for n in (x.attention_norm, x.mlp_norm, x.q_norm, x.k_norm) if n is not None]
    if shape.head_dim % compiled.LANES or any(n.kind != "rms" or n.bias is not None for n in norms):
        return None
    found = [[linear.compiled() for linear in (x.qkv, x.out, x.up, x.down)] for x in layers]
    matrices = [[matrix for matrix in of if matrix is not None] for of in found]
    if any(len(matrix) < len(of) for matrix, of in zip(matrices, found, strict=True)):
        return None
    return FusedLayers(layers, matrices, shape)


def takes(parts: Sequence[Part]) -> bool:
    """Whether `compiled.c` computes such a pass."""
    return not torch.is_grad_enabled() and all(
        p.layout.runs is not None and p.observe is None and _keeps(p.cache) for p in parts
    )


def _keeps(cache: KVCache) -> bool:
    return cache.plain and cache.dtype in compiled.KINDS


def _cache(cache: KVCache, layer: int) -> tuple[int | None, ...]:
    k, v = tensors_of(cache.k[layer]), tensors_of(cache.v[layer])
    scales = (k[1].data_ptr(), v[1].data_ptr()) if len(k) > 1 else (None, None)
    return (k[0].data_ptr(), v[0].data_ptr(), *scales, k[0].shape[1], compiled.KINDS[k[0].dtype])
