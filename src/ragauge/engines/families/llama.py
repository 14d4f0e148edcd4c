"""Llama and its kin: Llama-2, Llama-3, Vicuna, LongAlpaca, SmolLM2, Mistral, Qwen2."""

from typing import Any

from ragauge.cost.shape import Shape
from ragauge.engines.families._parts import Names, eos_ids, refuse, windows
from ragauge.engines.frequencies import rope_fields, trained_context

MODEL_TYPES = ("llama", "mistral", "qwen2")
WINDOW = 4096
FIRST_SLIDING_LAYER = 28  # of Mistral and Qwen where a config does not say
WITHOUT_BIASES = ("mistral", "qwen2", "phi3")  # whatever their configs say
MLP_BIASES = ("llama", "granite", "smollm3")  # as their configs say
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


def shape(config: dict[str, Any], **positions: Any) -> Shape:
    """The shape that a Hugging Face LlamaConfig (Mistral, Qwen2) describes; `positions`: see
    `rope_fields`.
    """
    refuse(config, "hidden_act", "silu")
    layers = config["num_hidden_layers"]
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    biased = config["model_type"] not in WITHOUT_BIASES and bool(config.get("attention_bias"))
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
        windows=_windows(config),
        tied=config.get("tie_word_embeddings", False),
        attention_bias=biased or config["model_type"] == "qwen2",
        output_bias=biased,
        mlp_bias=config["model_type"] in MLP_BIASES and bool(config.get("mlp_bias")),
        eos=eos_ids(config),
    )


def _windows(config: dict[str, Any]) -> tuple[int, ...]:
    """Each layer's window: Mistral has one in all layers, Qwen from a layer on where
    `use_sliding_window` says so.
    """
    kind = config["model_type"]
    window = config.get("sliding_window", WINDOW)
    if kind == "mistral":
        refuse(config, "layer_types", None)
        return windows(config, window, lambda _: window is not None)
    if kind not in ("qwen2", "qwen3"):
        return ()
    window = window if config.get("use_sliding_window") else None
    first = config.get("max_window_layers", FIRST_SLIDING_LAYER)
    return windows(config, window, lambda layer: window is not None and layer >= first)
