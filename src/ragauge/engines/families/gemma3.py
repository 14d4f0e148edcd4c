"""Gemma 3, text: norms before and after attention and MLP; a sliding window and a rotary base in
most layers.
"""

from dataclasses import replace

from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.engines.families import llama
from ragauge.engines.families._parts import Config, refuse, windows
from ragauge.errors import UserError

MODEL_TYPES = ("gemma3_text",)
WINDOW = 4096  # where a config does not say
PATTERN = 6  # every sixth layer has no window
THETA = 1e6
LOCAL_THETA = 1e4
HEAD_DIM = SCORE_SCALE = 256
NAMES = replace(
    llama.NAMES,
    attention_post_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
    q_norm="self_attn.q_norm",
    k_norm="self_attn.k_norm",
)


def shape(config: Config) -> Shape:
    """The shape that a Hugging Face Gemma3TextConfig describes."""
    refuse(config, "hidden_activation", "gelu_pytorch_tanh")
    refuse(config, "attn_logit_softcapping", None)
    refuse(config, "use_bidirectional_attention", False)
    by_layer = config.get("rope_parameters") or {}
    pattern = config.get("sliding_window_pattern", PATTERN)
    local = by_layer.get("sliding_attention") or {}
    refuse(local, "rope_type", "default")
    if not by_layer.keys() <= {"full_attention", "sliding_attention"}:
        raise UserError("rope_parameters: must be those of full_attention and of sliding_attention")
    if by_layer:  # would be scaled further
        refuse(config, "rope_scaling", None)
    scaling = config.get("rope_scaling") or by_layer.get("full_attention") or {}
    refuse(scaling, "rope_type", "default", "linear")  # its checkpoints have no other
    if scaling and "rope_type" not in scaling:  # transformers reads no "type" here
        raise UserError(f"rope_scaling: {scaling!r} has no rope_type")
    config = {
        "head_dim": HEAD_DIM,
        "tie_word_embeddings": True,
        **config,
        "hidden_act": None,
        "mlp_bias": False,
    }
    return replace(
        llama.llama_shape(config, default_theta=THETA, others=("rope_local_base_freq",)),
        family="gemma3",
        norm_place="both",
        activation="gelu_tanh",
        local_theta=float(
            local.get("rope_theta") or config.get("rope_local_base_freq", LOCAL_THETA)
        ),
        windows=windows(
            config, config.get("sliding_window", WINDOW), lambda layer: (layer + 1) % pattern != 0
        ),
        embedding_scale=config["hidden_size"] ** 0.5,
        logit_cap=config.get("final_logit_softcapping"),
        qk_norm=True,
    )


def convert(part: str, tensor: Tensor, shape: Shape, config: Config) -> Tensor:
    """Norms as the factors that they are, stored as less than one; queries' with the scale of
    scores.
    """
    if not part.endswith("norm"):
        return tensor
    scale = (shape.head_dim / config.get("query_pre_attn_scalar", SCORE_SCALE)) ** 0.5
    return (1 + tensor) * (scale if part == "q_norm" else 1)
