"""MPT: ALiBi, layer norms, no biases anywhere."""

from __future__ import annotations

from typing import Any

from ragauge.cost.shape import Shape
from ragauge.engines.decoder import Layer, Linear, Weights
from ragauge.engines.families._parts import Tensors, eos_ids, linear, norm, refuse
from ragauge.engines.rope import alibi_slopes

MODEL_TYPES = ("mpt",)


def shape(config: dict[str, Any]) -> Shape:
    """The shape that a Hugging Face MptConfig describes."""
    attention = config.get("attn_config") or {}
    refuse(attention, "alibi", True)
    refuse(attention, "attn_type", "multihead_attention")
    refuse(attention, "prefix_lm", False)
    refuse(attention, "qk_ln", False)
    refuse(attention, "softmax_scale", None)
    refuse(config, "no_bias", True)
    refuse(config, "logit_scale", None)
    refuse(config, "tie_word_embeddings", True)
    layers, heads, width = config["n_layers"], config["n_heads"], config["d_model"]
    return Shape(
        family="mpt",
        vocab=config["vocab_size"],
        d_model=width,
        heads=(heads,) * layers,
        kv_heads=(heads,) * layers,
        head_dim=width // heads,
        ffn=(int(config.get("expansion_ratio", 4)) * width,) * layers,
        gated=False,
        max_context=config["max_seq_len"],
        position="alibi",
        norm="layer",
        norm_eps=config.get("layer_norm_epsilon", 1e-5),
        activation="gelu",
        alibi_slopes=alibi_slopes(heads, attention.get("alibi_bias_max", 8)),
        tied=True,
        qkv_clip=attention.get("clip_qkv") or None,
        eos=eos_ids(config),
    )


def weights(tensors: Tensors, shape: Shape) -> Weights:
    """Weights from a checkpoint's tensors by name."""
    embedding = tensors["transformer.wte.weight"]
    return Weights(
        embedding=embedding,
        layers=tuple(_layer(tensors, f"transformer.blocks.{i}", shape) for i in range(shape.layers)),
        norm=norm(tensors, "transformer.norm_f", "layer", shape.norm_eps),
        head=tensors.keep(Linear(embedding)),
    )


def _layer(tensors: Tensors, prefix: str, shape: Shape) -> Layer:
    return Layer(
        attention_norm=norm(tensors, f"{prefix}.norm_1", "layer", shape.norm_eps),
        qkv=linear(tensors, f"{prefix}.attn.Wqkv"),
        out=linear(tensors, f"{prefix}.attn.out_proj"),
        mlp_norm=norm(tensors, f"{prefix}.norm_2", "layer", shape.norm_eps),
        up=linear(tensors, f"{prefix}.ffn.up_proj"),
        down=linear(tensors, f"{prefix}.ffn.down_proj"),
    )
