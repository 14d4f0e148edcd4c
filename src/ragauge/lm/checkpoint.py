"""Checkpoints in the hub's folder layout: config.json beside safetensors (or .bin) files, sharded or whole."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.errors import UserError
from ragauge.lm.decoder import Weights
from ragauge.lm.families import family


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json, the end-of-text ids of generation_config.json added to it."""
    path = folder / "config.json"
    config = _read_json(path)
    if "model_type" not in config:
        raise UserError(f"{path}: no 'model_type'; is this a checkpoint in the hub's layout?")
    generation = folder / "generation_config.json"
    if generation.exists():
        config["eos_token_id"] = _read_json(generation).get("eos_token_id", config.get("eos_token_id"))
    return config


def read_shape(folder: Path) -> Shape:
    """The decoder's shape from config.json alone; raises UnsupportedError for a family that is not known."""
    config = read_config(folder)
    try:
        shape: Shape = family(config["model_type"], str(folder / "config.json")).shape(config)
    except KeyError as missing:
        raise UserError(f"{folder / 'config.json'}: the key {missing} is missing") from None
    return shape


def read_weights(folder: Path, dtype: torch.dtype, device: torch.device) -> Weights:
    """All weights of the checkpoint, in the decoder's own layout."""
    model_type = read_config(folder)["model_type"]
    tensors = {name: t.to(device=device, dtype=dtype) for name, t in _tensors(folder)}
    try:
        weights: Weights = family(model_type).weights(tensors, read_shape(folder))
    except KeyError as missing:
        raise UserError(f"{folder}: the checkpoint has no tensor {missing}; is it whole?") from None
    return weights


def random_weights(shape: Shape, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Weights:
    """Weights of the right sizes with random values, for timing shapes whose checkpoint is not at hand."""
    from ragauge.lm.families._random import draw

    return draw(shape, dtype, device, seed)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; a checkpoint folder needs it") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid JSON ({error})") from None
    return data


def _tensors(folder: Path) -> Iterable[tuple[str, Tensor]]:
    """Every tensor by name: safetensors where there are any, else .bin through the weights-only loader."""
    from safetensors import SafetensorError

    safe, pickled = sorted(folder.glob("*.safetensors")), sorted(folder.glob("*.bin"))
    if not safe and not pickled:
        raise UserError(f"{folder}: no *.safetensors and no *.bin file")
    _check_shards(folder, {p.name for p in safe or pickled})
    for path in safe or pickled:
        try:
            yield from _read_safetensors(path) if safe else _read_bin(path)
        except (SafetensorError, RuntimeError, EOFError, OSError) as error:
            raise UserError(f"{path}: truncated or damaged ({error})") from None


def _check_shards(folder: Path, present: set[str]) -> None:
    for index in (folder / "model.safetensors.index.json", folder / "pytorch_model.bin.index.json"):
        if index.exists() and index.name.split(".")[1] in {name.rsplit(".", 1)[1] for name in present}:
            missing = sorted(set(_read_json(index)["weight_map"].values()) - present)
            if missing:
                raise UserError(f"{folder}: {index.name} names files that are missing: {', '.join(missing)}")


def _read_safetensors(path: Path) -> Iterable[tuple[str, Tensor]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (not a mapping)
            yield name, file.get_tensor(name)


def _read_bin(path: Path) -> Iterable[tuple[str, Tensor]]:
    yield from torch.load(path, map_location="cpu", weights_only=True, mmap=True).items()
