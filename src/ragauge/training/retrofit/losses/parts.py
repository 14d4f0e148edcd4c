"""What the losses of all forms share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.engines.decoder import Decoder
from ragauge.generation.reader import Tokens
from ragauge.generation.retrofit.streams import attend, lower_triangle
from ragauge.generation.windows import CHUNK, Windows

Neighbours = Sequence[Sequence[Tokens]]
"""Of each window."""


def rows(neighbours: Neighbours) -> tuple[list[int], list[Tokens]]:
    """(window, text) of every neighbour with text."""
    read = [(window, text) for window, found in enumerate(neighbours) for text in found if len(text)]
    return [window for window, _ in read], [text for _, text in read]


def token_nll(decoder: Decoder, x: Tensor, sequence: Tensor) -> Tensor:
    """See `Trainable.nll`, from the last layer's states (token, width)."""
    logits = decoder.logits(decoder.weights.norm(x[CHUNK - 1 : -1]))
    return F.cross_entropy(logits.float(), sequence[CHUNK:], reduction="none")


def seen(owners: Sequence[int], real: Tensor, count: int, windows: Windows) -> Tensor:
    """(token of the sequence, token of any neighbour): True for real tokens of its own window's neighbours.

    Args:
        owners: the window of each row of neighbours.
        real: (row, token).
        count: tokens of the sequence.
    """
    mine = torch.tensor([windows.of(place) for place in range(count)], device=real.device)
    owner = torch.tensor(list(owners), device=real.device)
    return ((mine[:, None] == owner)[:, :, None] & real).flatten(1)


class Causal:
    """Self-attention of a sequence alone, as `Decoder.through` takes it."""

    def __init__(self, decoder: Decoder, count: int) -> None:
        self.decoder, self.places = decoder, torch.arange(count, device=decoder.weights.embedding.device)
        self.turn, self.mask = decoder.rotation(self.places), lower_triangle(1, count, self.places.device)

    def __call__(self, index: int, normed: Tensor) -> Tensor:
        qkv = self.decoder.weights.layers[index].qkv(normed)
        q, k, v = (part[None] for part in self.decoder.split(index, qkv, self.turn))
        return attend(self.decoder, q, k, v, self.places[None], self.places[None], self.mask)[0]
