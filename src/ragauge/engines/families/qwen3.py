"""Qwen3, dense: Llama with a norm of every query and key head."""

from dataclasses import replace

from ragauge.cost.shape import Shape
from ragauge.engines.families import llama
from ragauge.engines.families._parts import Config

MODEL_TYPES = ("qwen3",)
HEAD_DIM = 128  # where a config does not say; it does not follow from the width
NAMES = replace(llama.NAMES, q_norm="self_attn.q_norm", k_norm="self_attn.k_norm")


def shape(config: Config) -> Shape:
    """The shape that a Hugging Face Qwen3Config describes."""
    config = {"head_dim": HEAD_DIM, **config}
    return llama.qwen_shape(config, family="qwen3", qk_norm=True)
