"""Pieces that the checkpoint families share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ragauge.engines.decoder import Linear, Norm
from ragauge.errors import UserError


class Tensors(Mapping[str, Tensor]):
    """A checkpoint's tensors by name, each read when it is asked for, and how linear layers made of them are kept.

    A tensor that is asked for twice is read twice; none is held, so that memory has one copy of the weights.
    """

    def __init__(self, readers: Mapping[str, Callable[[], Tensor]], keep: Callable[[Linear], Linear]) -> None:
        """
        Args:
            readers: of each tensor, in the decoder's type and on its device.
            keep: makes the layer that stays in memory of one in floating point.
        """
        self._readers, self.keep = readers, keep

    def __getitem__(self, name: str) -> Tensor:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def __contains__(self, name: object) -> bool:
        return name in self._readers


def linear(tensors: Tensors, name: str) -> Linear:
    """The linear layer `name` with its bias, where it has one."""
    return tensors.keep(_plain(tensors, name))


def stacked(tensors: Tensors, *names: str) -> Linear:
    """Several layers on the same input as one: their outputs side by side, one matrix product instead of several."""
    parts = [_plain(tensors, name) for name in names]
    biases = [p.bias for p in parts if p.bias is not None]
    return tensors.keep(Linear(torch.cat([p.weight for p in parts]), torch.cat(biases) if biases else None))


def _plain(tensors: Tensors, name: str) -> Linear:
    return Linear(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"))


def norm(tensors: Tensors, name: str, kind: str, eps: float) -> Norm:
    return Norm(tensors[f"{name}.weight"], tensors.get(f"{name}.bias"), kind, eps)


def eos_ids(config: Mapping[str, Any]) -> tuple[int, ...]:
    """`eos_token_id` as a tuple, whichever of the three ways the config writes it."""
    ids = config.get("eos_token_id")
    if ids is None:
        return ()
    return tuple(ids) if isinstance(ids, list) else (ids,)


def refuse(config: Mapping[str, Any], key: str, *accepted: Any) -> None:
    """Raise UserError if a config asks for something that the decoder does not have; who calls adds the place."""
    value = config.get(key)
    if value is not None and value not in accepted:
        choices = ", ".join(map(repr, accepted))
        raise UserError(f"{key}: {value!r} is not supported; supported: {choices}")
