"""The sizes of RETRO, apart from its weights: costs need no more."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    vocab: int = 32128  # t5-base
    layers: int = 12
    width: int = 1536
    heads: int = 12
    ffn: int = 6144
    cross: tuple[int, ...] = (5, 8, 11)  # decoder layers with chunked cross-attention
    encoder_layers: int = 2
    encoder_width: int = 896
    encoder_heads: int = 14
    encoder_ffn: int = 3584
    encoder_cross: tuple[int, ...] = (1,)  # encoder layers that attend to the decoder's states
    # distances of key and query that have a relative bias of their own, by kind of attention
    buckets: int = 1024
    cross_buckets: int = 192
    encoder_buckets: int = 256
    encoder_cross_buckets: int = 192


PAPER = Sizes()
