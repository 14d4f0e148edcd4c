"""Llama and its kin: Llama-2, Llama-3, Vicuna, LongAlpaca, SmolLM2, Mistral, Qwen2."""

from dataclasses import replace
from typing import Any

from ragauge.cost.shape import Shape
from ragauge.engines.families._parts import Config, Names, eos_ids, refuse, windows
from ragauge.engines.frequencies import rope_fields, trained_context

MODEL_TYPES = ("llama", "mistral", "qwen2")
WINDOW = 4096
FIRST_SLIDING_LAYER = 28  # of Qwen where a config does not say
WITHOUT_BIASES = {"attention_bias": False, "mlp_bias": False}  # whatever a config says
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


def shape(config: Config) -> Shape:
    """The shape that a Hugging Face LlamaConfig, MistralConfig or Qwen2Config describes."""
    if config["model_type"] == "qwen2":
        return qwen_shape({**config, "attention_bias": False}, attention_bias=True)
    if config["model_type"] == "llama":
        return llama_shape(config)
    refuse(config, "layer_types", None)
    window = config.get("sliding_window", WINDOW)
    by_layer = windows(config, window, lambda _: window is not None)
    return replace(llama_shape({**config, **WITHOUT_BIASES}), windows=by_layer)


def qwen_shape(config: Config, **changes: Any) -> Shape:
    """The shape of Qwen2 and Qwen3, which have windows from a layer on where `use_sliding_window`
    says so; `changes` are fields of the shape.
    """
    window = config.get("sliding_window", WINDOW) if config.get("use_sliding_window") else None
    first = config.get("max_window_layers", FIRST_SLIDING_LAYER)
    by_layer = windows(config, window, lambda layer: window is not None and layer >= first)
    return replace(llama_shape({**config, "mlp_bias": False}), windows=by_layer, **changes)


def llama_shape(config: Config, **positions: Any) -> Shape:
    """The shape that a config of Llama's keys describes; `positions`: see `rope_fields`."""
    refuse(config, "hidden_act", "silu")
    layers = config["num_hidden_layers"]
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    bias = bool(config.get("attention_bias"))
    return Shape(
        family="llama",
        vocab=config["vocab_size"],
        d_model=config["hidden_size"],
        heads=(heads,) * layers,
        kv_heads=(config.get("num_key_value_heads") or heads,) * layers,
        head_dim=dim,
        ffn=(config["intermediate_size"],) * layers,
        gated=True,
        max_context=trained_context(config),
        position="rope",
        norm_eps=config["rms_norm_eps"],
        **rope_fields(config, dim, **positions),
        tied=bool(config.get("tie_word_embeddings")),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=bool(config.get("mlp_bias")),
        eos=eos_ids(config),
    )
