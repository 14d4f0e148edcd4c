"""MPT: ALiBi, layer norms, no biases anywhere."""

from ragauge.cost.shape import Shape
from ragauge.cost.shapes import alibi_slopes
from ragauge.engines.families._parts import Config, Names, eos_ids, refuse

MODEL_TYPES = ("mpt",)
NAMES = Names(
    embedding="transformer.wte",
    norm="transformer.norm_f",
    layer="transformer.blocks.{}",
    attention_norm="norm_1",
    qkv=("attn.Wqkv",),
    out="attn.out_proj",
    mlp_norm="norm_2",
    up=("ffn.up_proj",),
    down="ffn.down_proj",
)


def shape(config: Config) -> Shape:
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
    layers = config["n_layers"]
    heads = config["n_heads"]
    width = config["d_model"]
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
        qkv_clip=attention.get("clip_qkv") or None,
        eos=eos_ids(config),
    )
