"""Llama and its kin: Llama-2, Llama-3, Vicuna, LongAlpaca, SmolLM2, Mistral, Qwen2."""

import math
from collections.abc import Mapping
from typing import Any

from ragauge.cost.shape import Shape
from ragauge.engines.families._parts import Names, eos_ids, refuse
from ragauge.errors import UserError

MODEL_TYPES = ("llama", "mistral", "qwen2")
NAMES = Names(
    embedding="model.embed_tokens",
    norm="model.norm",
    layer="model.layers.{}",
    attention_norm="input_layernorm",
    qkv=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    out="self_attn.o_proj",
    mlp_norm="post_attention_layernorm",
    up=("mlp.gate_proj", "mlp.up_proj"),
    down="mlp.down_proj",
)


def shape(config: dict[str, Any]) -> Shape:
    """The shape that a Hugging Face LlamaConfig (Mistral, Qwen2) describes."""
    refuse(config, "hidden_act", "silu")
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    theta, scale, divisors = _rope(config, dim)
    # the decoder has plain attention alone: tokens within which a sliding window hides nothing
    windowed = config["model_type"] == "mistral" or config.get("use_sliding_window", False)
    trained = config["max_position_embeddings"]
    return Shape(
        family="llama",
        vocab=config["vocab_size"],
        d_model=config["hidden_size"],
        heads=(heads,) * layers,
        kv_heads=(config.get("num_key_value_heads") or heads,) * layers,
        head_dim=dim,
        ffn=(config["intermediate_size"],) * layers,
        gated=True,
        max_context=min(trained, config.get("sliding_window") or trained) if windowed else trained,
        position="rope",
        norm_eps=config["rms_norm_eps"],
        rope_theta=theta,
        rope_scale=scale,
        rope_divisors=divisors,
        tied=config.get("tie_word_embeddings", False),
        bias=bool(config.get("attention_bias")) and bool(config.get("mlp_bias")),
        attention_bias=bool(config.get("attention_bias")) or config["model_type"] == "qwen2",
        eos=eos_ids(config),
    )


def _rope(config: dict[str, Any], dim: int) -> tuple[float, float, tuple[float, ...]]:
    """(theta, linear scale, divisors of the frequencies) from either place in a config."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ("default", "linear", "llama3"):
        raise UserError(f"rope type {kind!r} is not supported; supported: default, linear, llama3")
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    divisors = _llama3_divisors(rope, theta, dim) if kind == "llama3" else ()
    return theta, float(rope.get("factor", 1.0)) if kind == "linear" else 1.0, divisors


def _llama3_divisors(rope: Mapping[str, Any], theta: float, dim: int) -> tuple[float, ...]:
    """What Llama 3.1 and later divide each rotary frequency by: 1 for short waves, `factor` for long ones, and between
    them the inverse of a line through both (Hugging Face's `rope_type` llama3)."""
    factor, low, high = (float(rope[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = float(rope["original_max_position_embeddings"])
    divisors = []
    for i in range(0, dim, 2):
        waves = trained * theta ** (-i / dim) / (2 * math.pi)  # in the context that the model was trained on first
        smooth = min(max((waves - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - smooth) / factor + smooth))
    return tuple(divisors)
