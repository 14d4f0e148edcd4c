"""Granite 3, dense: Llama with multipliers of embeddings, scores, residuals and logits."""

from dataclasses import replace

import torch
from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.engines.families import llama
from ragauge.engines.families._parts import Config

MODEL_TYPES = ("granite",)
NAMES = llama.NAMES


def shape(config: Config) -> Shape:
    """The shape that a Hugging Face GraniteConfig describes."""
    return replace(
        llama.llama_shape(config),
        family="granite",
        embedding_scale=float(config.get("embedding_multiplier", 1)),
    )


def convert(part: str, tensor: Tensor, shape: Shape, config: Config) -> Tensor:
    """Weights and biases with the multipliers of what they compute; scores are divided by
    sqrt(head_dim) later.
    """
    if part in ("out", "down"):
        return tensor * float(config.get("residual_multiplier", 1))
    if part == "norm":
        return tensor / float(config.get("logits_scaling", 1))
    if part == "qkv":
        rows = shape.heads[0] * shape.head_dim
        scale = float(config.get("attention_multiplier", 1)) * shape.head_dim**0.5
        tensor = torch.cat([tensor[:rows] * scale, tensor[rows:]])
    return tensor
