"""Weights that RETRO-fit adds to a decoder: their files (safetensors), and the differentiable pass
that trains them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ragauge.engines.decoder import Decoder, biased_attention
from ragauge.engines.lm import LM
from ragauge.engines.rope import alibi_bias
from ragauge.errors import UserError, error_line
from ragauge.io.files import replace_atomically
from ragauge.pipelines.reader import Tokens
from ragauge.pipelines.windows import CHUNK, Windows


@dataclass(frozen=True)
class NeighbourRows:
    """The neighbours of a sequence's windows, a row each, with padding at their ends."""

    ids: Tensor  # (row, token)
    real: Tensor  # (row, token): False for padding
    positions: Tensor  # (row, token), that end before 0
    first: Tensor  # (row,): the first place of the sequence that attends to the row
    # (token of the sequence, token of any row): real tokens of its own window's neighbours
    visible: Tensor


class TrainedWeights(nn.Module, ABC):
    """The weights that RETRO-fit adds to a decoder so that it reads neighbours in one mode."""

    mode: ClassVar[str]  # its name, in the file

    @abstractmethod
    def groups(self) -> Sequence[tuple[list[nn.Parameter], float]]:
        """Parameters with their share of the learning rate."""

    @classmethod
    @abstractmethod
    def fresh(cls, lm: LM, seed: int) -> Self:
        """Return a decoder's weights before they are trained."""

    @abstractmethod
    def states(self, decoder: Decoder, sequence: Tensor, rows: NeighbourRows) -> Tensor:
        """Return the last layer's states (token, width) of a sequence (token,) that reads
        neighbours.
        """

    def nll(
        self,
        decoder: Decoder,
        ids: Tokens,
        neighbours: Sequence[Sequence[Tokens]],
        windows: Windows,
    ) -> Tensor:
        """Negative log-likelihood of the tokens after the first query, in nats: (token - 64,),
        fp32, differentiable. The sequence `ids` is read in one pass with the neighbours of all its
        windows, texts by window.
        """
        device = decoder.weights.embedding.device
        sequence = torch.tensor(ids, device=device)
        read = [
            (window, text) for window, texts in enumerate(neighbours) for text in texts if len(text)
        ]
        if read:
            owner = torch.tensor([window for window, _ in read], device=device)
            first = torch.tensor([windows.first(window) for window, _ in read], device=device)
            window_of_token = torch.tensor(
                [windows.window_at(position) for position in range(len(sequence))], device=device
            )
            row_ids, real, positions = pad([text for _, text in read], device)
            visible = ((window_of_token[:, None] == owner)[:, :, None] & real).flatten(1)
            x = self.states(
                decoder, sequence, NeighbourRows(row_ids, real, positions, first, visible)
            )
        else:
            x = read_alone(
                decoder, sequence[None], torch.arange(len(sequence), device=device)[None]
            )[0]
        logits = decoder.logits(decoder.weights.norm(x[CHUNK - 1 : -1]))
        return F.cross_entropy(logits.float(), sequence[CHUNK:], reduction="none")

    def save(self, path: Path, **about: str) -> None:
        """Write the weights; `about` says which decoder they belong to."""
        tensors = {
            name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()
        }
        replace_atomically(path, save(tensors, {"mode": self.mode, **about}))

    @classmethod
    def load(cls, path: Path, lm: LM, model_sha256: str | None = None) -> Self:
        """Read a file.

        Raises:
            UserError: it is missing, damaged, or of another mode, decoder or size.
        """
        try:
            with safe_open(path, framework="pt") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path}: cannot be read as adapters: {error}") from error
        if about.get("mode") != cls.mode:
            raise UserError(f"{path}: trained for mode {about.get('mode')!r}, not {cls.mode!r}")
        if model_sha256 and about.get("model_sha256", model_sha256) != model_sha256:
            raise UserError(f"{path}: trained for another decoder ({about.get('model')})")
        weights = cls.fresh(lm, seed=0)
        try:
            weights.load_state_dict(tensors)
        except RuntimeError as error:
            sizes = f"of other sizes than mode {cls.mode!r} has on this decoder"
            raise UserError(f"{path}: {sizes}: {error_line(error, -1)}") from error
        return weights


def attend(
    decoder: Decoder,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    key_positions: Tensor,
    mask: Tensor | None = None,
) -> Tensor:
    """Attention of rows of queries over rows of keys: (row, token, width).

    Args:
        q: (row, token, head, dim).
        k, v: (row, key, kv_head, dim).
        positions, key_positions: (row, token) and (row, key).
        mask: which keys are visible, (row, token, key); default: all.
    """
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    visible = None if mask is None else mask[:, None]
    if decoder.slopes is None:
        mixed = F.scaled_dot_product_attention(
            q, k, v, attn_mask=visible, enable_gqa=q.shape[1] != k.shape[1]
        )
    else:
        bias = alibi_bias(decoder.slopes, positions, key_positions)
        mixed = biased_attention(
            q, k, v, bias if visible is None else bias.masked_fill(~visible, float("-inf"))
        )
    return mixed.transpose(1, 2).flatten(2)


def causal_mask(rows: int, width: int, device: torch.device) -> Tensor:
    """(row, token, token): a token sees those before it and itself."""
    return torch.ones(width, width, dtype=torch.bool, device=device).tril().expand(rows, -1, -1)


def read_alone(
    decoder: Decoder,
    ids: Tensor,
    positions: Tensor,
    add: Callable[[int, Tensor], Tensor | None] | None = None,
) -> Tensor:
    """States (row, token, width) of rows of tokens at positions (row, token); a token sees those
    before it in its row. `add`: cross-attention, as `Decoder.run_layers` takes it.
    """
    rotations = decoder.rotations(positions.flatten())
    causal = causal_mask(ids.shape[0], ids.shape[1], ids.device)

    def inner(index: int, normed: Tensor) -> Tensor:
        parts = decoder.split(index, decoder.weights.layers[index].qkv(normed), rotations[index])
        q, k, v = (part.unflatten(0, ids.shape) for part in parts)
        return attend(decoder, q, k, v, positions, positions, causal).flatten(0, 1)

    return decoder.run_layers(decoder.embed(ids.flatten()), inner, add).unflatten(0, ids.shape)


def pad(texts: Sequence[Tokens], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Neighbours as rows: ids, which of them are real, and positions that end before 0; each (row,
    token).
    """
    ids = pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
    positions = (
        torch.arange(ids.shape[1]) - torch.tensor([float(len(text)) for text in texts])[:, None]
    )
    return ids.to(device), (positions < 0).to(device), positions.to(device)
