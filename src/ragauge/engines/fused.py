"""All layers for a few tokens in one compiled call, where that was measured to be fastest.

One token through a small decoder takes some forty operators a layer, and calling them takes longer
than what most of them compute. This replaces `Decoder.run_layers`; results differ in rounding only.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.engines.kernels import compiled
from ragauge.engines.layout import Part
from ragauge.engines.quantization import storage
from ragauge.engines.rope import Rotation
from ragauge.engines.weights import Layer, Norm


class FusedLayers:
    """The layers of one decoder, as `compiled.c` reads them."""

    def __init__(
        self, layers: Sequence[Layer], matrices: Sequence[Sequence[compiled.Matrix]], shape: Shape
    ) -> None:
        self._shape = shape
        norms = [
            [x if x is None else x.weight.float().contiguous() for x in _norms(layer)]
            for layer in layers
        ]
        self._referenced = (matrices, norms)  # what the arguments point to
        self._layers = (compiled.LayerArguments * len(layers))(
            *(
                compiled.LayerArguments(
                    *four, *(None if x is None else x.data_ptr() for x in own), heads, kv_heads
                )
                for four, own, heads, kv_heads in zip(
                    matrices, norms, shape.heads, shape.kv_heads, strict=True
                )
            )
        )

    def read(
        self, x: Tensor, angles: Rotation, parts: Sequence[Part], layers: tuple[int, int] | None
    ) -> Tensor:
        """States (token, d_model) through all layers or a range of them; keys and values join the
        caches.
        """
        first, last = layers or (0, len(self._layers))
        states = x.float().clone(memory_format=torch.contiguous_format)
        cos, sin = (part.float().contiguous() for part in angles)
        tokens = [
            compiled.Token(index, *run)
            for index, part in enumerate(parts)
            for run in part.layout.runs or ()
        ]
        caches = []
        for layer in range(first, last):
            for cache in (part.cache for part in parts):
                k = storage(cache.k[layer])
                v = storage(cache.v[layer])
                scales = (k[1].data_ptr(), v[1].data_ptr()) if len(k) > 1 else (None, None)
                kind = compiled.KINDS[k[0].dtype]
                caches.append(
                    compiled.Cache(k[0].data_ptr(), v[0].data_ptr(), *scales, k[0].shape[1], kind)
                )
        failed = compiled.call(
            "through",
            ctypes.byref(self._layers, first * ctypes.sizeof(compiled.LayerArguments)),
            last - first,
            (compiled.Cache * len(caches))(*caches),
            len(parts),
            (compiled.Token * len(tokens))(*tokens),
            len(tokens),
            states,
            cos,
            sin,
            self._shape.d_model,
            self._shape.head_dim,
            self._shape.norm_eps,
        )
        if failed:
            raise MemoryError(f"a pass over {len(tokens)} tokens")
        return states.to(x.dtype)


def fuse(layers: Sequence[Layer], shape: Shape) -> FusedLayers | None:
    """None for layers that `compiled.c` does not compute: with a bias of scores, LayerNorm, no
    gate, in float16, with other norms or rotations in some layers.
    """
    if (
        shape.position != "rope"
        or not shape.gated
        or shape.activation != "silu"
        or shape.qkv_clip is not None
    ):
        return None
    if (
        shape.norm_place != "before"
        or shape.qk_norm_joint
        or shape.local_theta is not None
        or shape.unrotated
    ):
        return None
    norms = [norm for layer in layers for norm in _norms(layer) if norm is not None]
    if shape.head_dim % compiled.LANES or any(n.kind != "rms" or n.bias is not None for n in norms):
        return None
    matrices = [
        [
            matrix
            for linear in (x.qkv, x.out, x.up, x.down)
            if (matrix := linear.for_compiled()) is not None
        ]
        for x in layers
    ]
    return (
        FusedLayers(layers, matrices, shape) if all(len(four) == 4 for four in matrices) else None
    )


def _norms(layer: Layer) -> tuple[Norm | None, ...]:
    return layer.attention_norm, layer.mlp_norm, layer.q_norm, layer.k_norm


def is_fusable(parts: Sequence[Part]) -> bool:
    """Whether `compiled.c` can compute the attention of such a pass."""
    return not torch.is_grad_enabled() and all(
        p.layout.runs is not None
        and p.observe is None
        and p.cache.plain
        and p.cache.dtype in compiled.KINDS
        for p in parts
    )
