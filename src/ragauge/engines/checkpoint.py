"""Checkpoints in the hub's folder layout: config.json next to safetensors (or .bin) files, sharded
or whole.
"""

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ragauge.assets import gguf_weights
from ragauge.assets.shards import ShardWriter
from ragauge.assets.state_dict import read_state
from ragauge.assets.store import Facts, Store
from ragauge.cost.shape import Shape
from ragauge.engines.families._lookup import family
from ragauge.engines.int8 import Int8Linear, linear_storage, quantized_rows
from ragauge.engines.weights import IDENTITY, Layer, Linear, Norm, Weights
from ragauge.errors import UserError, error_line
from ragauge.io import progress
from ragauge.io.jsonl import field, read_object

T = TypeVar("T")
Reader = Callable[[], Tensor]
StoreLinear = Callable[[Linear], Linear]
"""Turns a linear layer into a stored one; see `linear_storage`."""
Finish = Callable[[str, Any], Any]
# Buffers that are computed from the configuration: rotary frequencies, causal masks, positions.
HARMLESS = re.compile(
    r"(inv_freq|cos_cached|sin_cached|masked_bias|attn\.bias|attention\.bias|position_ids)$"
)
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_transformer_layers")
QUANTIZATION = 1  # raised when the stored integers or scales change
MAX_LAYERS = 10_000
# next to a quantized checkpoint whose config.json does not say so
QUANTIZED = {
    "hf_quant_config.json": "modelopt",
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
}
MAX_SIZE = 1 << 40  # of any size; what is beyond is a damaged file


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json, the end-of-text ids of generation_config.json added to it."""
    path = folder / "config.json"
    config = read_object(path)
    if not isinstance(config.get("model_type"), str):
        raise UserError(f"{path}: no 'model_type'; is this a checkpoint in the hub's layout?")
    generation = folder / "generation_config.json"
    if generation.exists():
        config["eos_token_id"] = read_object(generation).get(
            "eos_token_id", config.get("eos_token_id")
        )
    return config


def read_shape(folder: Path, max_context: int | None = None) -> Shape:
    """The decoder's shape from config.json alone. It reads `max_context` tokens in place of those
    that the model was trained on: RoPE and ALiBi extrapolate, `dynamic` scaling does not. A
    `longrope` model takes its long factors.

    Raises:
        UnsupportedError: a family that is not known.
    """
    config = {**read_config(folder), "max_context": max_context}
    path = folder / "config.json"
    kind = family(config["model_type"], str(path))
    try:
        for key in LAYER_KEYS:
            layers = config.get(key, 1)
            if type(layers) is not int or not 1 <= layers <= MAX_LAYERS:
                raise UserError(
                    f"{key}: must be a whole number from 1 to {MAX_LAYERS:,}, not {str(layers)[:40]}"
                )
        shape: Shape = kind.shape(config)
        _check_shape(shape)
    except KeyError as missing:
        raise UserError(f"{path}: the key {missing} is missing") from None
    except UserError as error:
        raise type(error)(f"{path}: {error}") from None
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise UserError(
            f"{path}: not the sizes of a {config['model_type']} model ({error})"
        ) from None
    return shape if max_context is None else replace(shape, max_context=max_context)


def _check_shape(shape: Shape) -> None:
    for size in fields(shape):
        value = getattr(shape, size.name)
        declared = str(size.type)
        is_float = "float" in declared
        is_number = is_float or "int" in declared
        if not is_number or (value is None and "None" in declared):
            continue
        least = 0 if size.name in ("eos", "unrotated", "windows") else 1
        for number in value if isinstance(value, tuple) else (value,):
            is_valid = type(number) is int and (is_float or least <= number <= MAX_SIZE)
            if not is_valid and not (is_float and type(number) is float and math.isfinite(number)):
                raise UserError(f"{size.name}: {str(number)[:40]!r} is not a valid size")


def refuse_quantized(folder: Path) -> None:
    """Raise UserError if the folder's checkpoint is quantized: only floating-point weights are read."""
    config = read_config(folder)
    stated = config.get("quantization_config") or config.get("compression_config")
    method = next((by for name, by in QUANTIZED.items() if (folder / name).is_file()), None)
    if stated:
        method = stated.get("quant_method") or "a method without a name"
    if method:
        remedy = "without quantization, as a GGUF file, or from a server (openai:NAME)"
        raise UserError(
            f"{folder}: weights quantized by {method} are not read; take the model {remedy}"
        )


def read_weights(
    folder: Path, dtype: torch.dtype, device: torch.device, weights: str = "full"
) -> Weights:
    """All weights of the checkpoint, in the decoder's own layout, matrices stored as one of
    `cost.hardware.WEIGHTS`.

    Those of a GGUF file are dequantized once, to a folder in float32 or in 8 bits, or each time if
    it is not writable.

    Raises:
        UserError: files and tensors that are missing, damaged, of another size than config.json
            says, without a place in the family or quantised in a way that is not read; a
            storage that the device does not have.
    """
    if weights == "int4" and device.type == "cpu":
        return _read_blocks(folder, dtype)
    store = linear_storage(weights, device)
    if (
        device.type != "meta"
        and gguf_weights.is_converted(folder)
        and os.access(folder.parent, os.W_OK)
    ):
        if weights != "full":
            return _read_quantized(_quantized(folder, dtype), read_shape(folder), store)
        folder = gguf_weights.float_checkpoint(folder)
    return _read_checkpoint(folder, dtype, device, store)


def _read_blocks(folder: Path, dtype: torch.dtype) -> Weights:
    """The weights of a GGUF file, its matrices in the blocks of the file."""
    if not gguf_weights.is_converted(folder):
        reason = "are the blocks of a GGUF file, and this is none"
        raise UserError(f"{folder}: weights 'int4' {reason}; known here: full, int8")
    from ragauge.engines.blocks import BlockRows, block_linear

    path = folder / gguf_weights.FILE
    blocks = gguf_weights.block_rows(path)
    names = family(read_config(folder)["model_type"]).NAMES

    def rows(place: str) -> list[BlockRows]:
        stacked = (f"{name}.weight" for name in names.stacked(place, is_bare=False))
        return [BlockRows(*blocks[name]()) for name in stacked]

    def finish(place: str, part: Any) -> Any:
        is_matrix = isinstance(part, Linear) and place != "embedding"
        return block_linear(rows(place), part.bias) if is_matrix else part

    sizes = gguf_weights.readers(path, sizes_only=True)
    embedding = f"{names.root}{names.embedding}.weight"
    matrices = {name: sizes[name] for name in blocks if name != embedding}
    # what is stored without `finish` is the output matrix that is the embedding
    cpu = torch.device("cpu")
    return _read_checkpoint(
        folder, dtype, cpu, lambda _: block_linear(rows("embedding")), finish, matrices
    )


def _quantized(folder: Path, dtype: torch.dtype) -> Path:
    """A folder of matrices in 8 bits and the rest in `dtype`, by their places in `Weights`; made
    once.
    """

    def make(target: Path) -> Facts:
        progress.line(f"quantizing {folder.name} to 8 bits")
        writer = ShardWriter(target)

        def write(place: str, part: Any) -> Any:
            if isinstance(part, Linear) and place != "embedding":
                part = quantized_rows(part)
            for kind in ("weight", "scale", "bias"):
                if (tensor := getattr(part, kind, None)) is not None:
                    writer.add(f"{place}.{kind}", tensor)
            # so that memory has one matrix
            return part if isinstance(part, Norm) else Linear(torch.zeros(1, 1))

        _read_checkpoint(folder, dtype, torch.device("cpu"), quantized_rows, write)
        writer.close()
        return {"source": folder.name}

    name = f"{folder.name}-int8-{str(dtype).removeprefix('torch.')}-{QUANTIZATION}"
    return Store(folder.parent).build(folder.with_name(name), make)


def _read_quantized(folder: Path, shape: Shape, store: StoreLinear) -> Weights:
    """The weights in a folder of `_quantized`."""
    paths = {
        name: path for path in _files(folder) for name in _undamaged(path, partial(_open, path))
    }

    def read(place: str, kind: str, *_: int) -> Tensor:
        # Copied from the mapped file, whose numbers are not aligned and beyond whose end kernels
        # may not read. A file is opened for each, so that memory has no more of it.
        name = f"{place}.{kind}"
        path = paths[name]
        return _undamaged(path, lambda: _open(path)[name]().clone())

    def stored(place: str, part: Any) -> Any:
        if f"{place}.scale" not in paths:
            return part
        return store(Int8Linear(part.weight, part.bias, scale=read(place, "scale")))

    return _assemble(shape, read, store, stored)


def _read_checkpoint(
    folder: Path,
    dtype: torch.dtype,
    device: torch.device,
    store: StoreLinear,
    finish: Finish | None = None,
    in_place: Mapping[str, Reader] = {},  # read only
) -> Weights:
    """See `read_weights` and, for `finish`, `_assemble`; `in_place` of tensors by their names."""
    shape = read_shape(folder)
    config = read_config(folder)
    module = family(config["model_type"])
    convert = getattr(module, "convert", lambda _, tensor, *__: tensor)
    readers = {**_readers(folder, dtype, device), **in_place}
    names = module.NAMES
    is_bare = f"{names.root}{names.embedding}.weight" not in readers
    used = set[str]()

    def read(place: str, kind: str, *size: int) -> Tensor:
        # A tensor that is used twice is read twice; none is cached, so that memory has one copy of
        # the weights.
        stacked = [f"{name}.{kind}" for name in names.stacked(place, is_bare)]
        used.update(stacked)
        parts = [readers[name]() for name in stacked]
        tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
        tensor = convert(place.split(".")[-1], tensor, shape, config)
        if tensor.shape != size:
            shown = place if place == "embedding" else f"{place}.{kind}"
            raise UserError(
                f"{folder}: the checkpoint's {shown} is {tuple(tensor.shape)} where config.json says {size}"
            )
        return tensor

    try:
        weights = _assemble(shape, read, store, finish)
    except KeyError as missing:
        raise UserError(f"{folder}: the checkpoint has no tensor {missing}; is it whole?") from None
    except torch.OutOfMemoryError as error:  # a RuntimeError, too
        raise MemoryError(f"{folder}: {error_line(error)}") from None
    except RuntimeError as error:
        raise UserError(
            f"{folder}: tensors of other sizes than config.json says ({error_line(error)})"
        ) from None
    unused = {name: reader for name, reader in readers.items() if name not in used}
    tied = weights.embedding if shape.tied else None
    _check_unused(folder, unused, tied, f"{names.head}.weight")
    return weights


def random_weights(
    shape: Shape, dtype: torch.dtype, device: torch.device, seed: int = 0, weights: str = "full"
) -> Weights:
    """Normal weights, scaled by 1/sqrt(fan-in), so that activations neither vanish nor overflow in
    any dtype.
    """
    # no values on the meta device; drawing them would load torch's compiler, for seconds
    generator = None if device.type == "meta" else torch.Generator(device=device).manual_seed(seed)

    def draw(_: str, kind: str, *size: int) -> Tensor:
        if kind == "bias":
            return torch.zeros(size, dtype=dtype, device=device)
        if len(size) == 1:
            return torch.ones(size, dtype=dtype, device=device)
        values = torch.empty(size, dtype=dtype, device=device)
        if generator is not None:
            values.normal_(0, size[1] ** -0.5, generator=generator)
        return values

    return _assemble(shape, draw, linear_storage(weights, device))


def _assemble(
    shape: Shape,
    tensor: Callable[..., Tensor],
    store: StoreLinear,
    finish: Finish | None = None,
) -> Weights:
    """The weights of a shape.

    Args:
        tensor: Returns the tensor of (place in `Weights`, "weight" or "bias", *size).
        store: See `linear_storage`.
        finish: Takes each place and its linear layer or norm, the embedding as a layer, and returns
            what takes its place; None: linear layers are stored.
    """
    d = shape.d_model
    dim = shape.head_dim
    before = shape.norm_place != "after"
    after = shape.norm_place != "before"

    def linear(place: str, rows: int, columns: int, bias: bool) -> Linear:
        biases = tensor(place, "bias", rows) if bias else None
        part = Linear(tensor(place, "weight", rows, columns), biases)
        return finish(place, part) if finish else store(part)

    def norm(place: str, width: int, kind: str = shape.norm) -> Norm:
        bias = tensor(place, "bias", width) if shape.norm_bias and kind == "layer" else None
        part = Norm(tensor(place, "weight", width), bias, kind, shape.norm_eps)
        return finish(place, part) if finish else part

    def head_norm(place: str, heads: int) -> Norm | None:
        if shape.qk_norm_joint:
            joint = norm(place, heads * dim, "rms")
            return replace(joint, weight=joint.weight.view(heads, dim))
        return norm(place, dim, "rms") if shape.qk_norm else None

    def layer(index: int) -> Layer:
        at = f"layers.{index}"
        heads = shape.heads[index]
        kv_heads = shape.kv_heads[index]
        ffn = shape.ffn[index]
        qkv_bias = shape.bias or shape.attention_bias
        mlp_bias = shape.bias or shape.mlp_bias
        return Layer(
            attention_norm=norm(f"{at}.attention_norm", d) if before else IDENTITY,
            qkv=linear(f"{at}.qkv", (heads + 2 * kv_heads) * dim, d, qkv_bias),
            out=linear(f"{at}.out", d, heads * dim, shape.bias or shape.output_bias),
            mlp_norm=norm(f"{at}.mlp_norm", d) if before else IDENTITY,
            up=linear(f"{at}.up", (2 if shape.gated else 1) * ffn, d, mlp_bias),
            down=linear(f"{at}.down", d, ffn, mlp_bias),
            q_norm=head_norm(f"{at}.q_norm", heads),
            k_norm=head_norm(f"{at}.k_norm", kv_heads),
            attention_post_norm=norm(f"{at}.attention_post_norm", d) if after else IDENTITY,
            mlp_post_norm=norm(f"{at}.mlp_post_norm", d) if after else IDENTITY,
        )

    embedding = tensor("embedding", "weight", shape.vocab, d)
    if finish:
        embedding = finish("embedding", Linear(embedding)).weight
    return Weights(
        embedding=embedding,
        layers=tuple(map(layer, range(shape.layers))),
        norm=norm("norm", d),
        head=store(Linear(embedding)) if shape.tied else linear("head", shape.vocab, d, False),
        embedding_norm=norm("embedding_norm", d) if shape.embedding_norm else IDENTITY,
    )


def _readers(folder: Path, dtype: torch.dtype, device: torch.device) -> dict[str, Reader]:
    refuse_quantized(folder)

    def read(path: Path, name: str, get: Reader) -> Tensor:
        tensor = _undamaged(path, get)
        if not tensor.is_floating_point() or tensor.element_size() == 1:
            raise UserError(f"{folder}: tensor {name!r} is of {tensor.dtype}, not floating point")
        return tensor.to(device=device, dtype=dtype)

    readers = dict[str, Reader]()
    for path in _files(folder):
        tensors = _undamaged(path, partial(_open, path, device.type == "meta"))
        readers |= {name: partial(read, path, name, get) for name, get in tensors.items()}
    return readers


def _check_unused(
    folder: Path, unused: Mapping[str, Reader], tied: Tensor | None, head: str
) -> None:
    """Raise UserError for tensors that were not read, but for an output matrix that is the
    embedding it is tied to.
    """
    names = sorted(name for name in unused if not HARMLESS.search(name))
    if tied is not None and head in names:
        names.remove(head)
        if tied.device.type != "meta" and not torch.equal(unused[head](), tied):
            raise UserError(
                f"{folder}: tensor {head!r} is not the embedding, though config.json ties the two"
            )
    if names:
        shown = ", ".join(map(_shortened, names[:3])) + (", ..." if len(names) > 3 else "")
        raise UserError(
            f"{folder}: {len(names)} tensors of the checkpoint have no place in its family: {shown}"
        )


def _undamaged(path: Path, access: Callable[[], T]) -> T:
    try:
        return access()
    except (SafetensorError, RuntimeError, EOFError, OSError) as error:
        raise UserError(f"{path}: truncated or damaged ({error_line(error)})") from None


def _files(folder: Path) -> list[Path]:
    """Safetensors where there are any, else .bin, whole or in shards; folders may have others
    (`training_args.bin`).
    """
    if gguf_weights.is_converted(folder):
        return [folder / gguf_weights.FILE]
    for stem, suffix in (("model", "safetensors"), ("pytorch_model", "bin")):
        index = folder / f"{stem}.{suffix}.index.json"
        single = folder / f"{stem}.{suffix}"
        if single.exists():
            return [single]
        if index.exists():
            return _shards(index)
    raise UserError(
        f"{folder}: no model.safetensors and no pytorch_model.bin, whole or in shards with their index"
    )


def _shards(index: Path) -> list[Path]:
    weight_map = field(read_object(index), "weight_map", dict, str(index))
    names = sorted(set(map(str, weight_map.values())))
    strange = [name for name in names or [""] if name in ("", "..") or Path(name).name != name]
    if strange:
        raise UserError(f"{index}: names {_shortened(strange[0])!r}, which is not in this folder")
    missing = [_shortened(name) for name in names if not os.path.exists(index.parent / name)]
    if missing:
        raise UserError(f"{index}: names files that are missing: {', '.join(missing)}")
    return [index.parent / name for name in names]


def _shortened(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:80]}..."


def _open(path: Path, sizes_only: bool = False) -> dict[str, Reader]:
    """A file's tensors; a .bin is a state dictionary for torch's weights-only loader, which runs no
    code of it.
    """
    if path.name == gguf_weights.FILE:
        return gguf_weights.readers(path, sizes_only)
    if path.suffix == ".safetensors":
        file = safe_open(path, framework="pt")
        names = file.keys()
        return {name: partial(file.get_tensor, name) for name in names}
    state = read_state(path)
    return {name: partial(state.__getitem__, name) for name in state}
