"""Llama and its kin: Llama-2, Llama-3, Vicuna, LongAlpaca, SmolLM2, Mistral, Qwen2."""

from typing import Any

from ragauge.cost.shape import Shape
from ragauge.engines.families._parts import Names, eos_ids, refuse
from ragauge.engines.frequencies import rope_fields, trained_context

MODEL_TYPES = ("llama", "mistral", "qwen2")
WINDOW = 4096  # of Mistral and Qwen2 where a config does not state one
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
    # the decoder has plain attention alone: tokens within which a sliding window hides nothing
    windowed = config["model_type"] == "mistral" or config.get("use_sliding_window", False)
    trained = trained_context(config)
    biased = config["model_type"] not in ("mistral", "qwen2") and bool(config.get("attention_bias"))
    return Shape(
        family="llama",
        vocab=config["vocab_size"],
        d_model=config["hidden_size"],
        heads=(heads,) * layers,
        kv_heads=(config.get("num_key_value_heads") or heads,) * layers,
        head_dim=dim,
        ffn=(config["intermediate_size"],) * layers,
        gated=True,
        max_context=min(trained, config.get("sliding_window", WINDOW) or trained) if windowed else trained,
        position="rope",
        norm_eps=config["rms_norm_eps"],
        **rope_fields(config, dim),
        tied=config.get("tie_word_embeddings", False),
        attention_bias=biased or config["model_type"] == "qwen2",
        output_bias=biased,
        mlp_bias=config["model_type"] == "llama" and bool(config.get("mlp_bias")),
        eos=eos_ids(config),
    )
