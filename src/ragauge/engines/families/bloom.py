"""BLOOM and BLOOMZ: ALiBi, layer norms with biases, a norm after the embedding."""

from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.cost.shapes import alibi_slopes
from ragauge.engines.families._parts import Config, Names, eos_ids, refuse

MODEL_TYPES = ("bloom",)
# ALiBi has no limit of its own; the released models were trained on this many tokens
TRAINED_CONTEXT = 2048

NAMES = Names(
    root="transformer.",
    embedding="word_embeddings",
    embedding_norm="word_embeddings_layernorm",
    norm="ln_f",
    layer="h.{}",
    attention_norm="input_layernorm",
    qkv=("self_attention.query_key_value",),
    out="self_attention.dense",
    mlp_norm="post_attention_layernorm",
    up=("mlp.dense_h_to_4h",),
    down="mlp.dense_4h_to_h",
)


def shape(config: Config) -> Shape:
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
        bias=True,
        norm_bias=True,
        embedding_norm=True,
        eos=eos_ids(config),
    )


def convert(part: str, tensor: Tensor, shape: Shape, config: Config) -> Tensor:
    """Query rows, then key rows, then value rows, where the checkpoint has the three of each head
    together.
    """
    if part != "qkv":
        return tensor
    return (
        tensor.view(shape.heads[0], 3, -1, *tensor.shape[1:]).transpose(0, 1).reshape(tensor.shape)
    )
