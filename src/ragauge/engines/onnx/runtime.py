"""What decoders in ONNX share: attention with a cache as input, the cache's slots, what a folder was exported from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ragauge.errors import UserError
from ragauge.io.files import replace_atomically

BLOCK = 256  # slots by which a cache grows, so that attention does not cover a cache that is mostly empty
HIDDEN = float(np.finfo(np.float32).min)  # added to scores of slots that hold nothing; -inf would make rows of NaN

TOKENS = torch.export.Dim("tokens", min=1, max=1 << 16)
SLOTS = torch.export.Dim("slots", min=0, max=1 << 20)


def causal(tokens: int) -> Tensor:
    """What is added to the scores (token, token) of new tokens."""
    places = torch.arange(tokens)
    return torch.where(places[None] > places[:, None], HIDDEN, 0.0)


def attend(
    q: Tensor, k: Tensor, v: Tensor, past_k: Tensor, past_v: Tensor, cached_bias: Tensor, own_bias: Tensor
) -> Tensor:
    """Attention of (head, token, dim) over cached slots and over the new tokens: (token, width).

    Nothing of the cache is joined: scores of cached and of new keys are computed apart and put together before the
    softmax. Heads that share keys are rows of one product, so that keys are read once.

    Args:
        q: queries, scaled.
        k, v: of the new tokens, (kv_head, token, dim).
        past_k, past_v: (kv_head, slot, dim).
        cached_bias, own_bias: added to scores (kv_head, heads that share it, token, slot or token).
    """
    heads, tokens, dim = q.shape
    kv = k.shape[0]
    grouped = q.reshape(kv, heads // kv * tokens, dim)
    own = (grouped @ k.transpose(1, 2)).view(kv, heads // kv, tokens, tokens) + own_bias
    cached = (grouped @ past_k.transpose(1, 2)).view(kv, heads // kv, tokens, -1) + cached_bias
    weights = torch.cat([cached, own], -1).softmax(-1).view(kv, heads // kv * tokens, -1)
    slots = past_k.shape[1]
    mixed = weights[:, :, :slots] @ past_v + weights[:, :, slots:] @ v
    return mixed.view(heads, tokens, dim).transpose(0, 1).reshape(tokens, heads * dim)


def write_origin(folder: Path, origin: Mapping[str, Any]) -> None:
    """Record what a folder's graphs come from; written last, it also marks the folder as complete."""
    replace_atomically(folder / "about.json", (json.dumps(dict(origin), indent=1) + "\n").encode())


def check_origin(folder: Path, origin: Mapping[str, Any]) -> dict[str, Any]:
    """What `write_origin` wrote. Raises UserError if it is missing or differs from `origin`."""
    path = folder / "about.json"
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read; `ragauge export` writes it ({type(error).__name__})") from None
    for key, value in origin.items():
        if found.get(key) != value:
            raise UserError(f"{path}: {key} is {found.get(key)}, not {value}: exported from something else")
    return found


def past_sizes(session: Any) -> dict[str, tuple[int, int]]:
    """(heads, dim) of the cached keys and values that a graph takes, by name, in order."""
    past = (node for node in session.get_inputs() if node.name.startswith("past_"))
    return {node.name.removeprefix("past_"): (node.shape[0], node.shape[2]) for node in past}


class Slots:
    """Cached keys and values by name, (head, slot, dim) each, under a mask that says which slots hold something."""

    def __init__(self, sizes: Mapping[str, tuple[int, int]], slots: int = 0) -> None:
        self.past = {name: np.zeros((heads, slots, dim), np.float32) for name, (heads, dim) in sizes.items()}
        self.mask = np.full(slots, HIDDEN, np.float32)
        self.positions = np.zeros(slots, np.float32)

    @property
    def attended(self) -> int:
        """Slots that new tokens attend to."""
        return int((self.mask > HIDDEN).sum())

    @property
    def bytes(self) -> int:
        """Of keys and values."""
        return sum(states.nbytes for states in self.past.values())

    def feeds(self, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        """The graph's inputs of these names; default: all."""
        return {f"past_{name}": self.past[name] for name in names or self.past} | {"mask": self.mask}

    def put(
        self, names: Iterable[str], new: Sequence[np.ndarray], slot: int, first: float = 0.0, bias: float = 0.0
    ) -> None:
        """Write new keys and values, (head, token, dim) each, to the slots from `slot` on, and let them be seen.

        Args:
            first: the first token's position.
            bias: added to the scores of these slots.
        """
        count = new[0].shape[1]
        for name, states in zip(names, new, strict=True):
            self.past[name][:, slot : slot + count] = states
        self.mask[slot : slot + count] = bias
        self.positions[slot : slot + count] = np.arange(count) + first

    def reserve(self, slots: int) -> None:
        """Make room for so many slots in all."""
        if slots <= len(self.mask):
            return
        more = -(-slots // BLOCK) * BLOCK - len(self.mask)
        self.mask = np.concatenate([self.mask, np.full(more, HIDDEN, np.float32)])
        self.positions = np.concatenate([self.positions, np.zeros(more, np.float32)])
        for name, old in self.past.items():
            self.past[name] = np.concatenate([old, np.zeros((old.shape[0], more, old.shape[2]), np.float32)], 1)
