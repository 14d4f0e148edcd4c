"""All layers for a few tokens in one compiled call, where that was measured to be fastest.

One token through a small decoder takes some forty operators a layer, and calling them takes longer
than what most of them compute. This replaces `Decoder.run_layers`; results differ in rounding only.
"""

import ctypes
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ragauge.cost.flop import Layers
from ragauge.cost.shape import Shape
from ragauge.engines.cache import KVCache
from ragauge.engines.kernels import compiled
from ragauge.engines.layout import Part
from ragauge.engines.rope import Rotation
from ragauge.engines.weights import Layer


class FusedLayers:
    """The layers of one decoder, as `compiled.c` reads them."""

    def __init__(
        self,
        layers: Sequence[Layer],
        matrices: Sequence[Sequence[compiled.Matrix | None]],
        shape: Shape,
    ) -> None:
        self._shape = shape
        self._referenced = list[Any](matrices)  # what the arguments point to
        arguments = []
        for layer, four, *heads in zip(layers, matrices, shape.heads, shape.kv_heads, strict=True):
            own = (layer.attention_norm, layer.mlp_norm, layer.q_norm, layer.k_norm)
            norms = [None if norm is None else norm.weight.float() for norm in own]
            self._referenced.append(norms)
            pointers = [None if weight is None else weight.data_ptr() for weight in norms]
            arguments.append(compiled.LayerArguments(*four, *pointers, *heads))
        self._layers = (compiled.LayerArguments * len(layers))(*arguments)
        # of each cache, the capacity for which its addresses are listed
        self._listed = WeakKeyDictionary[KVCache, tuple[int, list[compiled.Cache]]]()

    def read(self, x: Tensor, angles: Rotation, parts: Sequence[Part], layers: Layers) -> Tensor:
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
        by_cache = [self._addresses(part.cache)[first:last] for part in parts]
        caches = [cache for layer in zip(*by_cache, strict=True) for cache in layer]
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

    def _addresses(self, cache: KVCache) -> list[compiled.Cache]:
        """Where each layer's keys and values are; listed again when the cache has grown."""
        capacity, addresses = self._listed.get(cache, (0, []))
        if capacity != cache.capacity:
            addresses = []
            for k, v in zip(cache.k, cache.v, strict=True):
                kind = compiled.KINDS[k.dtype]
                addresses.append(compiled.Cache(k.data_ptr(), v.data_ptr(), k.shape[1], kind))
            self._listed[cache] = cache.capacity, addresses
        return addresses


def fuse(layers: Sequence[Layer], shape: Shape) -> FusedLayers | None:
    """None for layers that `compiled.c` does not compute: with a bias of scores, LayerNorm, no
    gate, in float16, with other norms or rotations in some layers.
    """
    expected = {
        "position": "rope",
        "gated": True,
        "activation": "silu",
        "qkv_clip": None,
        "norm": "rms",
        "norm_place": "before",
        "qk_norm_joint": False,
        "local_theta": None,
        "unrotated": (),
    }
    if shape.head_dim % compiled.LANES or not expected.items() <= vars(shape).items():
        return None
    matrices = []
    for layer in layers:
        four = [linear.for_compiled() for linear in (layer.qkv, layer.out, layer.up, layer.down)]
        if None in four:
            return None
        matrices.append(four)
    return FusedLayers(layers, matrices, shape)


def is_fusable(parts: Sequence[Part]) -> bool:
    """Whether `compiled.c` can compute the attention of such a pass."""
    return not torch.is_grad_enabled() and all(
        p.layout.runs is not None
        and p.observe is None
        and p.cache.plain
        and p.cache.dtype in compiled.KINDS
        for p in parts
    )
