"""OLMo 2: Llama with norms after attention and MLP in place of before, and a norm of all query and
of all key heads.
"""

from dataclasses import replace

from ragauge.cost.shape import Shape
from ragauge.engines.families import llama
from ragauge.engines.families._parts import Config

MODEL_TYPES = ("olmo2",)
NAMES = replace(
    llama.NAMES,
    attention_norm=None,
    mlp_norm=None,
    attention_post_norm="post_attention_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
    q_norm="self_attn.q_norm",
    k_norm="self_attn.k_norm",
)


def shape(config: Config) -> Shape:
    """The shape that a Hugging Face Olmo2Config describes."""
    return replace(
        llama.llama_shape({**config, "mlp_bias": False}),
        family="olmo2",
        norm_place="after",
        qk_norm_joint=True,
    )
