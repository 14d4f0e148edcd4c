"""RETRO's weights: random ones, for latency, those of a checkpoint that `ragauge fetch` converted, or a user's file."""

from __future__ import annotations

import json
import pickle
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from ragauge import assets
from ragauge.errors import UserError
from ragauge.generation.readers import Checkpoint
from ragauge.generation.retro_model.architecture import RetroNetwork
from ragauge.generation.sizes import PAPER, Sizes
from ragauge.io.files import file_sha256


def random_retro(sizes: Sizes = PAPER, seed: int = 0, device: str = "cpu") -> RetroNetwork:
    """RETRO with random weights, for latency; on the meta device without any."""
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(seed)
        model = RetroNetwork(sizes).eval()
        for name, parameter in model.named_parameters():
            if name.endswith(("q.weight", "k.weight")):  # scores are not scaled: keep them near 1
                parameter.data.mul_(0.25)
    return model


def make_retro(checkpoint: Checkpoint) -> RetroNetwork:
    """RETRO of a checkpoint's own sizes; or at the paper's with a user's weights or random ones.

    The vocabulary of the paper's sizes grows to that of the database's tokenizer.

    Raises:
        UserError: as `load_retro` and `read_folder`.
    """
    if (folder := released(checkpoint)) is not None:
        return read_folder(folder, checkpoint.device)
    sizes = replace(PAPER, vocab=max(PAPER.vocab, checkpoint.vocabulary))
    if checkpoint.weights is not None:
        return load_retro(checkpoint.weights, sizes, checkpoint.device)
    return random_retro(sizes, checkpoint.seed).to(checkpoint.device)


def released(checkpoint: Checkpoint) -> Path | None:
    """The folder of the model where that is a RETRO, unless weights of another file are given. Raises UserError."""
    own = checkpoint.weights is None and checkpoint.model and assets.is_retro(checkpoint.model)
    return assets.resolve(checkpoint.model) if own else None


def read_folder(folder: Path, device: str = "cpu") -> RetroNetwork:
    """RETRO of a folder that `ragauge fetch` converted. Raises UserError if it is damaged."""
    try:
        stated = json.loads((folder / "config.json").read_bytes())
        sizes = Sizes(**{f.name: _frozen(stated[f.name]) for f in fields(Sizes)})
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{folder}/config.json: not the sizes of a RETRO ({type(error).__name__})") from None
    return load_retro(folder / "model.safetensors", sizes, device)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def origin(checkpoint: Checkpoint) -> str:
    """Names the weights of `make_retro`, by their hash or the seed. Raises UserError: they cannot be had."""
    if released(checkpoint) is not None:
        return str(assets.describe(checkpoint.model)["sha256"])
    weights = checkpoint.weights
    if weights is None:
        return f"random, seed {checkpoint.seed}"
    if not weights.is_file():
        raise UserError(f"--weights: no such file: {weights}")
    return file_sha256(weights)


def load_retro(path: Path, sizes: Sizes = PAPER, device: str = "cpu") -> RetroNetwork:
    """RETRO with the weights of a user's file, safetensors or a state dictionary of torch, by our names of tensors.

    Raises:
        UserError: no such file, damaged, holding more than tensors, or of other names or sizes.
    """
    from safetensors.torch import load_file

    try:
        state = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except pickle.UnpicklingError:
        raise UserError(f"{path}: refused: it is damaged, or holds more than tensors, which could run code") from None
    except (SafetensorError, RuntimeError, EOFError, OSError) as error:
        raise UserError(f"{path}: truncated or damaged ({str(error).splitlines()[0]})") from None
    model = random_retro(sizes, device="meta")
    try:
        model.load_state_dict(state, assign=True)
    except (RuntimeError, AttributeError) as error:
        raise UserError(f"{path}: not the tensors of this architecture: {' '.join(str(error).split())[:300]}") from None
    return model.to(device)
