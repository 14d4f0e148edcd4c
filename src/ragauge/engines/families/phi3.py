"""Phi-3 and Phi-4, dense: Llama with fused projections and, in the mini models, heads that are
rotated in part.
"""

from dataclasses import replace

import torch
from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.engines.families import llama
from ragauge.engines.families._parts import Config, windows
from ragauge.errors import UserError

MODEL_TYPES = ("phi3",)
NAMES = replace(llama.NAMES, qkv=("self_attn.qkv_proj",), up=("mlp.gate_up_proj",))


def shape(config: Config) -> Shape:
    """The shape that a Hugging Face Phi3Config describes."""
    shape = llama.llama_shape({**config, **llama.WITHOUT_BIASES}, partial=True)
    window = config.get("sliding_window")
    if (shape.rotary_dim or 0) % 2:
        raise UserError(
            f"partial_rotary_factor: rotates {shape.rotary_dim} numbers of a head, which are no pairs"
        )
    by_layer = windows(config, window, lambda _: window is not None)
    return replace(shape, family="phi3", windows=by_layer)


def convert(part: str, tensor: Tensor, shape: Shape, config: Config) -> Tensor:
    """Rows of queries and keys in the order in which the decoder rotates a head: halves of what is
    rotated in both halves of the head, before what is not.
    """
    if part != "qkv" or shape.rotary_dim is None:
        return tensor
    rotated, rest = torch.arange(shape.head_dim).tensor_split([shape.rotary_dim])
    halves = zip(rotated.chunk(2), rest.chunk(2), strict=True)
    order = torch.cat([torch.cat(half) for half in halves])
    by_head = tensor.unflatten(0, (-1, shape.head_dim))
    turned = shape.heads[0] + shape.kv_heads[0]
    return torch.cat([by_head[:turned, order], by_head[turned:]]).flatten(0, 1)
