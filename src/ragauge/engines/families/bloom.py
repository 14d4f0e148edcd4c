"""BLOOM and BLOOMZ: ALiBi, layer norms with biases, a norm after the embedding."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.engines.decoder import Layer, Linear, Weights
from ragauge.engines.families._parts import Tensors, eos_ids, linear, norm, refuse
from ragauge.engines.rope import alibi_slopes

MODEL_TYPES = ("bloom",)
TRAINED_CONTEXT = 2048  # ALiBi has no limit of its own; the released models were trained on this many tokens


def shape(config: dict[str, Any]) -> Shape:
    """The shape that a Hugging Face BloomConfig describes."""
    refuse(config, "apply_residual_connection_post_layernorm", False)
    refuse(config, "tie_word_embeddings", True)
    layers = config.get("n_layer") or config["num_hidden_layers"]
    heads = config.get("n_head") or config["num_attention_heads"]
    width = config.get("hidden_size") or config["n_embed"]
    return Shape(
        family="bloom",
        vocab=config["vocab_size"],
        d_model=width,
        heads=(heads,) * layers,
        kv_heads=(heads,) * layers,
        head_dim=width // heads,
        ffn=(4 * width,) * layers,
        gated=False,
        max_context=config.get("seq_length", TRAINED_CONTEXT),
        position="alibi",
        norm="layer",
        norm_eps=config.get("layer_norm_epsilon", 1e-5),
        activation="gelu_tanh",
        alibi_slopes=alibi_slopes(heads),
        tied=True,
        bias=True,
        norm_bias=True,
        embedding_norm=True,
        eos=eos_ids(config),
    )


def weights(tensors: Tensors, shape: Shape) -> Weights:
    """Weights from a checkpoint's tensors by name, with or without the `transformer.` prefix of the full model."""
    root = "transformer." if "transformer.ln_f.weight" in tensors else ""
    embedding = tensors[f"{root}word_embeddings.weight"]
    return Weights(
        embedding=embedding,
        layers=tuple(_layer(tensors, f"{root}h.{i}", shape, i) for i in range(shape.layers)),
        norm=norm(tensors, f"{root}ln_f", "layer", shape.norm_eps),
        head=tensors.keep(Linear(embedding)),
        embedding_norm=norm(tensors, f"{root}word_embeddings_layernorm", "layer", shape.norm_eps),
    )


def _layer(tensors: Tensors, prefix: str, shape: Shape, index: int) -> Layer:
    fused, heads = f"{prefix}.self_attention.query_key_value", shape.heads[index]
    qkv = Linear(_by_kind(tensors[f"{fused}.weight"], heads), _by_kind(tensors[f"{fused}.bias"], heads))
    return Layer(
        attention_norm=norm(tensors, f"{prefix}.input_layernorm", "layer", shape.norm_eps),
        qkv=tensors.keep(qkv),
        out=linear(tensors, f"{prefix}.self_attention.dense"),
        mlp_norm=norm(tensors, f"{prefix}.post_attention_layernorm", "layer", shape.norm_eps),
        up=linear(tensors, f"{prefix}.mlp.dense_h_to_4h"),
        down=linear(tensors, f"{prefix}.mlp.dense_4h_to_h"),
    )


def _by_kind(rows: Tensor, heads: int) -> Tensor:
    """BLOOM keeps each head's query, key and value together; the decoder wants all queries, all keys, all values."""
    grouped = rows.view(heads, 3, -1, *rows.shape[1:])
    return grouped.transpose(0, 1).reshape(rows.shape)
