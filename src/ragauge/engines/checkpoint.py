"""Checkpoints in the hub's folder layout: config.json beside safetensors (or .bin) files, sharded or whole."""

from __future__ import annotations

import math
import os
import pickle
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.engines.families import _random, family
from ragauge.engines.families._parts import Tensors, read
from ragauge.engines.int8 import linear_storage
from ragauge.engines.weights import Linear, Weights
from ragauge.errors import UserError
from ragauge.io.jsonl import read_object

T = TypeVar("T")
Reader = Callable[[], Tensor]
Size = tuple[int, ...]
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_transformer_layers")
MAX_LAYERS = 10_000
MAX_SIZE = 1 << 40  # of any size; what is beyond is a damaged file


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json, the end-of-text ids of generation_config.json added to it."""
    path = folder / "config.json"
    config = _read_json(path)
    if not isinstance(config.get("model_type"), str):
        raise UserError(f"{path}: no 'model_type'; is this a checkpoint in the hub's layout?")
    generation = folder / "generation_config.json"
    if generation.exists():
        config["eos_token_id"] = _read_json(generation).get("eos_token_id", config.get("eos_token_id"))
    return config


def read_shape(folder: Path, max_context: int | None = None) -> Shape:
    """The decoder's shape from config.json alone; raises UnsupportedError for a family that is not known.

    Args:
        max_context: tokens that the decoder is to read, in place of those that the model was trained on: RoPE and ALiBi
            extrapolate, learned absolute positions and a sliding window do not.
    """
    config, path = read_config(folder), folder / "config.json"
    kind = family(config["model_type"], str(path))
    try:
        _check_layers(config)
        shape: Shape = kind.shape(config)
        _check_shape(shape)
    except KeyError as missing:
        raise UserError(f"{path}: the key {missing} is missing") from None
    except UserError as error:
        raise type(error)(f"{path}: {error}") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise UserError(f"{path}: not the sizes of a {config['model_type']} model ({error})") from None
    return shape if max_context is None else _in_context(shape, config, max_context, path)


def _check_layers(config: dict[str, Any]) -> None:
    """Raise UserError if a config states no number of layers, or more than any model has."""
    for key in LAYER_KEYS:
        layers = config.get(key, 1)
        if type(layers) is not int or not 1 <= layers <= MAX_LAYERS:
            raise UserError(f"{key}: must be a whole number from 1 to {MAX_LAYERS:,}, not {str(layers)[:40]}")


def _check_shape(shape: Shape) -> None:
    """Raise UserError if a size is not one that a decoder can have."""
    for field in fields(shape):
        value, declared = getattr(shape, field.name), str(field.type).removeprefix("tuple[")
        if not declared.startswith(("int", "float")) or (value is None and "None" in declared):
            continue
        least = 0 if field.name == "eos" else 1
        for number in value if isinstance(value, tuple) else (value,):
            valid = type(number) is int and least <= number <= MAX_SIZE
            if declared.startswith("float"):
                valid = type(number) is int or (isinstance(number, float) and math.isfinite(number))
            if not valid:
                raise UserError(f"{field.name}: {str(number)[:40]!r} is not a valid size")


def _in_context(shape: Shape, config: dict[str, Any], tokens: int, path: Path) -> Shape:
    """The shape with a context of `tokens`."""
    if tokens > shape.max_context and shape.max_context < config.get("max_position_embeddings", 0):
        raise UserError(f"{path}: max_context {tokens}: the model has a sliding window of {shape.max_context}")
    return replace(shape, max_context=tokens)


def read_weights(folder: Path, dtype: torch.dtype, device: torch.device, weights: str = "full") -> Weights:
    """All weights of the checkpoint, in the decoder's own layout, read layer by layer.

    Args:
        weights: how matrices are stored, one of `cost.hardware.WEIGHTS`.

    Raises:
        UserError: a file or a tensor is missing, damaged or of another size than config.json says; a storage of
            matrices that is unknown or not available on the device.
    """
    shape = read_shape(folder)
    tensors = Tensors(_readers(folder, dtype, device), linear_storage(weights, device))
    try:
        found = read(tensors, shape, family(read_config(folder)["model_type"]).NAMES)
    except KeyError as missing:
        raise UserError(f"{folder}: the checkpoint has no tensor {missing}; is it whole?") from None
    except RuntimeError as error:
        raise UserError(f"{folder}: tensors of other sizes than config.json says ({_line(error)})") from None
    _check_sizes(folder, found, shape)
    return found


def random_weights(
    shape: Shape, dtype: torch.dtype, device: torch.device, seed: int = 0, weights: str = "full"
) -> Weights:
    """Weights of the right sizes with random values, for timing shapes whose checkpoint is not at hand."""
    return _random.draw(shape, dtype, device, seed, linear_storage(weights, device))


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path}: no such file; a checkpoint folder needs it")
    return read_object(path)


def _readers(folder: Path, dtype: torch.dtype, device: torch.device) -> dict[str, Reader]:
    """A function for each tensor, by its name, that reads it."""
    readers: dict[str, Reader] = {}
    for path in _files(folder):
        open_file = partial(_open_safetensors if path.suffix == ".safetensors" else _open_bin, path)
        for name, get in _undamaged(path, open_file).items():
            readers[name] = partial(_read_tensor, path, get, dtype, device)
    return readers


def _read_tensor(path: Path, get: Reader, dtype: torch.dtype, device: torch.device) -> Tensor:
    return _undamaged(path, get).to(device=device, dtype=dtype)


def _undamaged(path: Path, access: Callable[[], T]) -> T:
    """The result of an access to a file; raises UserError if the file is damaged."""
    try:
        return access()
    except (SafetensorError, RuntimeError, EOFError, OSError) as error:
        raise UserError(f"{path}: truncated or damaged ({_line(error)})") from None


def _files(folder: Path) -> list[Path]:
    """The checkpoint's files: safetensors where there are any, else .bin; one file, or the shards of an index.

    Other files of these suffixes in hub folders do not belong to it (`consolidated.safetensors`, `training_args.bin`).
    """
    for stem, suffix in (("model", "safetensors"), ("pytorch_model", "bin")):
        index, single = folder / f"{stem}.{suffix}.index.json", folder / f"{stem}.{suffix}"
        if single.exists():
            return [single]
        if index.exists():
            return _shards(index)
    raise UserError(f"{folder}: no model.safetensors and no pytorch_model.bin, whole or in shards with their index")


def _shards(index: Path) -> list[Path]:
    names = _read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names or not all(isinstance(name, str) for name in names.values()):
        raise UserError(f"{index}: no 'weight_map' of tensors to files")
    strange = [name for name in names.values() if name in ("", "..") or Path(name).name != name]
    if strange:
        raise UserError(f"{index}: names {_shortened(strange[0])!r}, which is not in this folder")
    paths = [index.parent / name for name in sorted(set(names.values()))]
    missing = [path.name for path in paths if not os.path.exists(path)]
    if missing:
        raise UserError(f"{index}: names files that are missing: {', '.join(map(_shortened, missing))}")
    return paths


def _shortened(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:80]}..."


def _open_safetensors(path: Path) -> dict[str, Reader]:
    file = safe_open(path, framework="pt")
    return {name: partial(file.get_tensor, name) for name in file.keys()}  # noqa: SIM118 (not a mapping)


def _open_bin(path: Path) -> dict[str, Reader]:
    """A state dictionary through torch's weights-only loader, which runs no code of the file."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError:  # torch's own message suggests loading it anyway
        raise UserError(f"{path}: refused: it is damaged, or holds more than tensors, which could run code") from None
    except Exception as error:  # a damaged pickle fails in any way
        raise UserError(f"{path}: truncated or damaged ({_line(error)})") from None
    if not isinstance(state, dict) or not all(isinstance(t, Tensor) for t in state.values()):
        raise UserError(f"{path}: not a dictionary of tensors by name")
    return {name: partial(state.__getitem__, name) for name in state}


def _line(error: Exception) -> str:
    """The first line of a library's error."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def _check_sizes(folder: Path, weights: Weights, shape: Shape) -> None:
    expected = random_weights(shape, weights.embedding.dtype, torch.device("meta"))
    for place, found, wanted in _sizes(weights, expected, ""):
        if found != wanted:
            raise UserError(f"{folder}: the checkpoint's {place} is {found} where config.json says {wanted}")


def _sizes(found: Any, expected: Any, place: str) -> Iterable[tuple[str, Size, Size]]:
    """(place, size, size) of every tensor that both hold; biases may be in one of them alone."""
    if isinstance(found, Tensor) and isinstance(expected, Tensor):
        yield place.removeprefix("."), tuple(found.shape), tuple(expected.shape)
    elif isinstance(found, Linear):
        yield f"{place}.weight".removeprefix("."), found.size, expected.size
        yield from _sizes(found.bias, expected.bias, f"{place}.bias")
    elif isinstance(found, tuple):
        for i, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
            yield from _sizes(mine, theirs, f"{place}.{i}")
    elif is_dataclass(found) and expected is not None:
        for field in fields(found):
            yield from _sizes(getattr(found, field.name), getattr(expected, field.name), f"{place}.{field.name}")
