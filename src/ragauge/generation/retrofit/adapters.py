"""What training adds to joint attention: low-rank changes to how neighbours are read; the decoder stays as it is.

The projections to queries, keys and values that read a neighbour get a low-rank term (LoRA; Hu et al., 2022) and an
offset. Own tokens are read by the decoder's own weights, so that without neighbours nothing changes at all; the terms
decide alone how neighbours present themselves: an offset of keys weighs them against own tokens, head by head.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ragauge.engines import LM
from ragauge.engines.decoder import Decoder, Linear, Weights
from ragauge.errors import UserError
from ragauge.io.records import replace_atomically

FORM = "joint"
RANK = 8

M = TypeVar("M", bound=nn.Module)


class Adapters(nn.Module):
    """One low-rank term and one offset a layer; all zero at first, so that nothing changes."""

    def __init__(self, weights: Weights, rank: int = RANK, seed: int = 0) -> None:
        super().__init__()
        if rank < 1:
            raise UserError(f"rank: must be at least 1, not {rank}")
        self.rank = rank
        draw = torch.Generator().manual_seed(seed)
        self.down, self.up, self.offset = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()
        for layer in weights.layers:
            rows, width = layer.qkv.weight.shape
            self.down.append(torch.randn(rank, width, generator=draw) * width**-0.5)
            self.up.append(torch.zeros(rows, rank))
            self.offset.append(torch.zeros(rows))
        self.to(weights.embedding.device)

    def added(self, index: int, x: Tensor) -> Tensor:
        """What is added to a layer's projections of neighbours' states (token, width) -> (token, rows)."""
        low = (x.float() @ self.down[index].t()) @ self.up[index].t() + self.offset[index]
        return low.to(x.dtype)

    def groups(self) -> list[dict[str, Any]]:
        """Parameters by their share of the learning rate."""
        return [{"params": list(self.parameters()), "share": 1.0}]

    @torch.no_grad()
    def merged(self, lm: LM) -> LM:
        """A decoder that reads neighbours so, of the same shape; it shares all other weights with `lm`."""
        assert lm.decoder is not None
        weights = lm.decoder.weights
        layers = tuple(replace(layer, qkv=self._merged(index, layer.qkv)) for index, layer in enumerate(weights.layers))
        return LM(Decoder(lm.shape, replace(weights, layers=layers)), lm.tokenizer)

    def _merged(self, index: int, frozen: Linear) -> Linear:
        change = self.up[index] @ self.down[index]
        offset = self.offset[index] if frozen.bias is None else self.offset[index] + frozen.bias
        return Linear((frozen.weight + change).to(frozen.weight.dtype), offset.to(frozen.weight.dtype))

    def save(self, path: Path, **about: str) -> None:
        """Write a safetensors file whose metadata say what the adapters belong to."""
        save_trained(self, path, FORM, {"rank": str(self.rank), **about})

    @classmethod
    def load(cls, path: Path, lm: LM, model_sha256: str | None = None) -> Adapters:
        """The adapters of a file.

        Raises:
            UserError: no such file, damaged, of another form, of another model or of other sizes than the decoder's.
        """
        assert lm.decoder is not None
        about, tensors = read_trained(path, FORM, model_sha256)
        rank = about.get("rank", "")
        if not rank.isdecimal():
            raise UserError(f"{path}: no adapters: its metadata name no rank")
        return load_into(cls(lm.decoder.weights, int(rank)), tensors, path)


def save_trained(module: nn.Module, path: Path, form: str, about: dict[str, str]) -> None:
    """Write what was trained as a safetensors file whose metadata say what it is and belongs to."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    replace_atomically(path, save(tensors, {"form": form, **about}))


def read_trained(path: Path, form: str, model_sha256: str | None) -> tuple[dict[str, str], dict[str, Tensor]]:
    """(metadata, tensors) of a file of what was trained for a form of reading neighbours.

    Raises:
        UserError: no such file, damaged, of another form or of another model.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: cannot be read as adapters: {error}") from error
    if about.get("form") != form:
        raise UserError(f"{path}: trained for the form {about.get('form')}, not {form}")
    if model_sha256 and about.get("model_sha256", model_sha256) != model_sha256:
        raise UserError(f"{path}: trained for another decoder ({about.get('model', 'of another checkpoint')})")
    return about, tensors


def load_into(made: M, tensors: dict[str, Tensor], path: Path) -> M:
    """The module with a file's tensors in it; UserError where they are not of its sizes."""
    try:
        made.load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise UserError(f"{path}: of other sizes than the decoder's: {first}") from None
    return made
