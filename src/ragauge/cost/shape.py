"""The shape of a decoder: the sizes that its cost depends on, without its weights."""

from dataclasses import dataclass

from pydantic import ConfigDict, with_config


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder-only transformer. Per-layer tuples have one entry a layer (OpenELM varies
    them).
    """

    family: str  # a file of engines/families
    vocab: int  # rows of the output matrix
    d_model: int  # width of the residual stream
    heads: tuple[int, ...]  # query heads of each layer
    kv_heads: tuple[int, ...]  # key-value heads of each layer
    head_dim: int
    ffn: tuple[int, ...]  # inner width of each layer's MLP
    gated: bool  # three MLP matrices (gate, up, down) instead of two
    max_context: int  # tokens; positions beyond it were not trained
    position: str  # "rope" or "alibi"
    norm: str = "rms"  # "rms" or "layer"
    # attention and MLP; "after" them, before their results are added; or "both"
    norm_place: str = "before"
    norm_eps: float = 1e-5
    activation: str = "silu"  # "silu" or "gelu" or "gelu_tanh"
    rope_theta: float = 10000.0
    rope_scale: float = 1.0  # positions are divided by it (linear scaling)
    # one a rotary frequency, which is divided by it (Llama 3)
    rope_divisors: tuple[float, ...] = ()
    rope_attention_factor: float = 1.0  # rotated queries and keys are multiplied by it (YaRN)
    rotary_dim: int | None = None  # numbers of each head that are rotated (Phi-4-mini); None: all
    # rope_theta, unscaled, of the layers with a window; None: as in the others
    local_theta: float | None = None
    unrotated: tuple[int, ...] = ()  # layers without positions (SmolLM3)
    # latest tokens that a token of each layer attends to; 0: all; (): all in every layer
    windows: tuple[int, ...] = ()
    alibi_slopes: tuple[float, ...] = ()  # one a head
    tied: bool = True  # the output matrix is the embedding
    bias: bool = False  # linear layers carry biases
    attention_bias: bool = False  # the query, key and value projections carry biases (Qwen2)
    output_bias: bool = False  # attention's output projection carries one (Llama)
    mlp_bias: bool = False
    norm_bias: bool = False  # layer norms carry biases
    embedding_norm: bool = False  # a norm after the embedding (BLOOM)
    embedding_scale: float = 1.0  # embeddings are multiplied by it (Gemma, Granite)
    logit_cap: float | None = None  # logits are limited to it: cap * tanh(logit / cap)
    qk_norm: bool = False  # RMSNorm of every query and key head (OpenELM, Qwen3)
    # RMSNorm of all query heads together, and of all key heads (OLMo 2)
    qk_norm_joint: bool = False
    qkv_clip: float | None = None  # queries, keys and values are clamped to this (MPT)
    eos: tuple[int, ...] = ()  # ids that end a response

    @property
    def layers(self) -> int:
        return len(self.heads)

    def window(self, layer: int) -> int | None:
        """Latest tokens, its own included, that a token attends to in a layer; None: all that the
        context can have.
        """
        window = self.windows[layer] if self.windows else 0
        return window if 0 < window < self.max_context else None

    @property
    def shortest_window(self) -> int | None:
        """The window of the layer with the shortest one; None where all layers attend to all
        tokens.
        """
        return (
            min(filter(None, map(self.window, range(self.layers))), default=None)
            if self.windows
            else None
        )

    def is_local(self, layer: int) -> bool:
        """Whether a layer has the rotary base of layers with a window."""
        return self.local_theta is not None and bool(self.windows) and self.windows[layer] > 0

    def is_rotated(self, layer: int) -> bool:
        """Whether queries and keys of a layer are rotated by their positions."""
        return self.position == "rope" and layer not in self.unrotated
