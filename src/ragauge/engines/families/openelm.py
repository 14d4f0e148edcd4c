"""OpenELM (Mehta et al. 2024): head counts and MLP widths that grow with depth, normed queries and keys."""

from __future__ import annotations

from typing import Any

from ragauge.cost.shape import Shape
from ragauge.engines.decoder import Layer, Linear, Weights
from ragauge.engines.families._parts import Tensors, eos_ids, linear, norm, refuse

MODEL_TYPES = ("openelm",)
NORM_EPS = 1e-6  # fixed in the released model code


def shape(config: dict[str, Any]) -> Shape:
    """The shape that an OpenELMConfig describes."""
    refuse(config, "ffn_with_glu", True)
    refuse(config, "normalize_qk_projections", True)
    refuse(config, "activation_fn_name", "swish", "silu")
    width, divisor = config["model_dim"], config["ffn_dim_divisor"]
    return Shape(
        family="openelm",
        vocab=config["vocab_size"],
        d_model=width,
        heads=tuple(config["num_query_heads"]),
        kv_heads=tuple(config["num_kv_heads"]),
        head_dim=config["head_dim"],
        ffn=tuple(make_divisible(m * width, divisor) for m in config["ffn_multipliers"]),
        gated=True,
        max_context=config["max_context_length"],
        position="rope",
        norm_eps=NORM_EPS,
        rope_theta=float(config["rope_freq_constant"]),
        tied=config["share_input_output_layers"],
        qk_norm=True,
        eos=eos_ids(config),
    )


def make_divisible(value: float, divisor: int) -> int:
    """The multiple of `divisor` nearest to `value`, not more than 10% below it."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


def weights(tensors: Tensors, shape: Shape) -> Weights:
    """Weights from a checkpoint's tensors by name; `proj_1` holds the gate's rows first."""
    embedding = tensors["transformer.token_embeddings.weight"]
    return Weights(
        embedding=embedding,
        layers=tuple(_layer(tensors, f"transformer.layers.{i}") for i in range(shape.layers)),
        norm=norm(tensors, "transformer.norm", "rms", NORM_EPS),
        head=tensors.keep(Linear(embedding if shape.tied else tensors["lm_head.weight"])),
    )


def _layer(tensors: Tensors, prefix: str) -> Layer:
    return Layer(
        attention_norm=norm(tensors, f"{prefix}.attn_norm", "rms", NORM_EPS),
        qkv=linear(tensors, f"{prefix}.attn.qkv_proj"),
        out=linear(tensors, f"{prefix}.attn.out_proj"),
        mlp_norm=norm(tensors, f"{prefix}.ffn_norm", "rms", NORM_EPS),
        up=linear(tensors, f"{prefix}.ffn.proj_1"),
        down=linear(tensors, f"{prefix}.ffn.proj_2"),
        q_norm=norm(tensors, f"{prefix}.attn.q_norm", "rms", NORM_EPS),
        k_norm=norm(tensors, f"{prefix}.attn.k_norm", "rms", NORM_EPS),
    )
