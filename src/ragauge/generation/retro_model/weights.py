"""RETRO's weights: random ones, for latency, or those of a user's file."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError

from ragauge.errors import UserError
from ragauge.generation.retro_model.architecture import Retro
from ragauge.generation.sizes import PAPER, Sizes
from ragauge.io.folders import file_sha256


def random_retro(sizes: Sizes = PAPER, seed: int = 0, device: str = "cpu") -> Retro:
    """RETRO with random weights, for latency; on the meta device without any."""
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(seed)
        model = Retro(sizes).eval()
        for name, parameter in model.named_parameters():
            if name.endswith(("q.weight", "k.weight")):  # scores are not scaled: keep them near 1
                parameter.data.mul_(0.25)
    return model


def make_retro(weights: Path | None, seed: int, vocabulary: int, device: str = "cpu") -> Retro:
    """RETRO at the paper's sizes with a user's weights, or random ones; UserError as of `load_retro`.

    Args:
        vocabulary: of the tokenizer; where it is larger than the paper's, that of the model grows to it.
    """
    sizes = replace(PAPER, vocab=max(PAPER.vocab, vocabulary))
    return load_retro(weights, sizes, device) if weights else random_retro(sizes, seed).to(device)


def origin(weights: Path | None, seed: int) -> str:
    """Names the weights of `make_retro`, by their file's hash or the seed. Raises UserError: no such file."""
    if weights is None:
        return f"random, seed {seed}"
    if not weights.is_file():
        raise UserError(f"--weights: no such file: {weights}")
    return file_sha256(weights)


def load_retro(path: Path, sizes: Sizes = PAPER, device: str = "cpu") -> Retro:
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
