"""The shape of a decoder: the sizes that its cost depends on, without its weights."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder-only transformer. Per-layer tuples have one entry a layer (OpenELM varies them)."""

    family: str  # "llama", "bloom", "mpt", "openelm"
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
    norm_eps: float = 1e-5
    activation: str = "silu"  # "silu" or "gelu" or "gelu_tanh"
    rope_theta: float = 10000.0
    rope_scale: float = 1.0  # positions are divided by it (linear scaling)
    rope_divisors: tuple[float, ...] = field(default=())  # one a rotary frequency, which is divided by it (Llama 3)
    rope_attention_factor: float = 1.0  # rotated queries and keys are multiplied by it (YaRN)
    rotary_dim: int | None = None  # numbers of each head that are rotated; None: all
    alibi_slopes: tuple[float, ...] = field(default=())  # one a head
    tied: bool = True  # the output matrix is the embedding
    bias: bool = False  # linear layers carry biases
    attention_bias: bool = False  # the query, key and value projections carry biases (Qwen2)
    output_bias: bool = False  # attention's output projection carries one (Llama)
    mlp_bias: bool = False
    norm_bias: bool = False  # layer norms carry biases
    embedding_norm: bool = False  # a norm after the embedding (BLOOM)
    qk_norm: bool = False  # RMSNorm of every query and key head (OpenELM)
    qkv_clip: float | None = None  # queries, keys and values are clamped to this (MPT)
    eos: tuple[int, ...] = ()  # ids that end a response

    @property
    def layers(self) -> int:
        return len(self.heads)
