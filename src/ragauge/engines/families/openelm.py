"""OpenELM (Mehta et al. 2024): head counts and MLP widths that grow with depth, normed queries and
keys.
"""

from ragauge.cost.shape import Shape
from ragauge.engines.families._parts import Config, Names, eos_ids, refuse

MODEL_TYPES = ("openelm",)
NORM_EPS = 1e-6  # fixed in the released model code
NAMES = Names(
    embedding="transformer.token_embeddings",
    norm="transformer.norm",
    layer="transformer.layers.{}",
    attention_norm="attn_norm",
    qkv=("attn.qkv_proj",),
    q_norm="attn.q_norm",
    k_norm="attn.k_norm",
    out="attn.out_proj",
    mlp_norm="ffn_norm",
    up=("ffn.proj_1",),  # the gate's rows first
    down="ffn.proj_2",
)


def shape(config: Config) -> Shape:
    """The shape that an OpenELMConfig describes."""
    refuse(config, "ffn_with_glu", True)
    refuse(config, "normalize_qk_projections", True)
    refuse(config, "activation_fn_name", "swish", "silu")
    width = config["model_dim"]
    divisor = config["ffn_dim_divisor"]
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
