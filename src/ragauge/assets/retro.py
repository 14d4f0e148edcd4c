"""RETRO's released checkpoint, converted once to safetensors, sizes and a tokenizer.

The layout is that of Norlund et al., 2023 (their repository TobiasNorlund/retro), whose model PipeRAG uses: PyTorch
Lightning's checkpoint beside `retro.json`, for T5's tokens. It ships no tokenizer, so that T5's is fetched from the hub
unless a `tokenizer.json` lies beside it.
"""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.assets import hub
from ragauge.assets.store import Store, contents, digest
from ragauge.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

CONVERSION = 1  # raised when the result of a conversion changes
KIND = "retro"  # the `model_type` of a converted folder
SETTINGS, TOKENIZER = "retro.json", "tokenizer.json"
T5 = "google-t5/t5-base"
CHUNK = 64  # tokens of a chunk; padding has id 0

# Size here -> key of retro.json.
SIZES = {
    "vocab": "num_embeddings",
    "layers": "dec_num_layers",
    "width": "dec_hidden_dim",
    "heads": "dec_num_heads",
    "ffn": "dec_ffn_dim",
    "cross": "dec_cca_layers",
    "encoder_layers": "enc_num_layers",
    "encoder_width": "enc_hidden_dim",
    "encoder_heads": "enc_num_heads",
    "encoder_ffn": "enc_ffn_dim",
    "encoder_cross": "enc_ca_layers",
    "buckets": "dec_sa_pos_bias_num_buckets",
    "cross_buckets": "dec_cca_pos_bias_num_buckets",
    "encoder_buckets": "enc_sa_pos_bias_num_buckets",
    "encoder_cross_buckets": "enc_ca_pos_bias_num_buckets",
}
OWN_METRICS = ("val_loss_metric.", "test_loss_metric.")  # of the training, in its checkpoint

# Names of tensors outside of layers, and of each part of a layer (0, 1, 2); several: cut into as many by rows.
OUTSIDE = {
    "base.dec_embs.weight": "embedding.weight",
    "base.encoder.enc_embs.weight": "encoder.embedding.weight",
    "base.final_layer_norm.scale": "norm.weight",
    "lm_head.weight": "head.weight",
}
STACKS = {"base.decoder.": "layers.", "base.encoder.layers.": "encoder.layers."}
MIXED = "multi_head_attention."
PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "0": {
        "ln.scale": ("attention_norm.weight",),
        "qkv_proj.weight": ("attention.q.weight", "attention.k.weight", "attention.v.weight"),
        f"{MIXED}final_proj.weight": ("attention.out.weight",),
        f"{MIXED}positional_bias.relative_attention_bias.weight": ("attention.bias.table.weight",),
    },
    "1": {
        "ln.scale": ("cross_norm.weight",),
        "q_proj.weight": ("cross.q.weight",),
        "kv_proj.weight": ("cross.k.weight", "cross.v.weight"),
        f"{MIXED}final_proj.weight": ("cross.out.weight",),
        f"{MIXED}positional_bias.relative_attention_bias.weight": ("cross.bias.table.weight",),
    },
    "2": {
        "layer_norm.scale": ("ffn_norm.weight",),
        "wi_0.weight": ("ffn.gate.weight",),
        "wi_1.weight": ("ffn.up.weight",),
        "wo.weight": ("ffn.down.weight",),
    },
}


def checkpoint(folder: Path) -> Path | None:
    """Return the one released checkpoint in a folder or below it, or None."""
    found = [path for settings in folder.rglob(SETTINGS) for path in settings.parent.glob("*.ckpt")]
    return found[0] if len(found) == 1 else None


def is_converted(folder: Path) -> bool:
    """Whether `converted` made a folder."""
    try:
        settings = json.loads((folder / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(settings, dict) and settings.get("model_type") == KIND


def converted(store: Store, path: Path) -> Path:
    """Return the folder of the model in the checkpoint at `path`, whose hash keys the conversion; made on first use.

    Raises:
        UserError: a checkpoint that is damaged, holds more than tensors, or is not in the released layout; T5's
            tokenizer cannot be had.
    """
    sources = [path, path.parent / SETTINGS, path.parent / TOKENIZER]
    sha256 = digest({source.name: contents(source)[source.name] for source in sources if source.is_file()})
    return store.converted(path, f"{KIND}-{path.stem}", sha256, CONVERSION, convert)


def convert(path: Path, folder: Path) -> None:
    """Write a checkpoint's renamed tensors, its sizes and the tokenizer to `folder`."""
    from safetensors.torch import save_file

    sizes = read_sizes(path.parent / SETTINGS)
    tensors = renamed(_state(path), path)
    _check(tensors, sizes, path)
    save_file(tensors, folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)
    (folder / "config.json").write_text(json.dumps({"model_type": KIND, **sizes}, indent=1) + "\n")
    own = path.parent / TOKENIZER
    shutil.copyfile(own if own.is_file() else hub.file(T5, TOKENIZER), folder / TOKENIZER)
    special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def read_sizes(path: Path) -> dict[str, Any]:
    """Return the sizes that a retro.json states. Raises UserError if one is missing or unsupported."""
    try:
        stated = json.loads(path.read_bytes())
        sizes = {name: stated[key] for name, key in SIZES.items()}
        fixed = {"chunk_size": CHUNK, "pad_token_idx": 0}
        fixed |= {"dec_qkv_dim": sizes["width"], "enc_qkv_dim": sizes["encoder_width"]}
        others = {key: (stated[key], value) for key, value in fixed.items() if stated[key] != value}
    except KeyError as error:
        raise UserError(f"{path}: has no key {error}") from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: not the settings of a RETRO ({type(error).__name__})") from None
    for key, (found, read) in others.items():
        raise UserError(f"{path}: {key} is {found!r}; read is {read}")
    for key, value in sizes.items():
        numbers = value if key in ("cross", "encoder_cross") and isinstance(value, list) else [value]
        if not numbers or not all(type(number) is int and number >= 0 for number in numbers):
            raise UserError(f"{path}: {SIZES[key]}: must be whole numbers, not {value!r}")
    return sizes


def _state(path: Path) -> Mapping[str, Tensor]:
    """Return the tensors of a checkpoint by their released names; no code in it is run."""
    import torch

    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
        state: Mapping[str, Tensor] = found.get("state_dict", found)
        assert all(isinstance(tensor, torch.Tensor) for tensor in state.values())
    except pickle.UnpicklingError:
        raise UserError(f"{path}: refused: it is damaged, or holds more than tensors, which could run code") from None
    except (AssertionError, AttributeError, EOFError, OSError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path}: truncated, damaged, or no checkpoint ({reason})") from None
    return state


def renamed(state: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return the tensors under their new names, in float32. Raises UserError for a name outside the released layout."""
    made: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name.startswith(OWN_METRICS):
            continue
        names = _new_names(name)
        if not names:
            raise UserError(f"{path}: {name!r}: not a tensor of the released RETRO")
        for new, part in zip(names, tensor.float().chunk(len(names)), strict=False):
            made[new] = part.clone().contiguous()
    return made


def _new_names(name: str) -> list[str]:
    """Return the new names of a released tensor; none if it is unknown."""
    if name in OUTSIDE:
        return [OUTSIDE[name]]
    for released, new in STACKS.items():
        layer, _, rest = name.removeprefix(released).partition(".")
        part, _, inner = rest.partition(".")
        if name.startswith(released) and layer.isdecimal():
            return [f"{new}{layer}.{one}" for one in PARTS.get(part, {}).get(inner, ())]
    return []


def _check(tensors: Mapping[str, Tensor], sizes: Mapping[str, Any], path: Path) -> None:
    """Raise UserError unless the tensors are those of a RETRO of these sizes."""
    expected = dict(_shapes(sizes))
    for name in sorted(expected.keys() | tensors.keys()):
        found = tuple(tensors[name].shape) if name in tensors else None
        if found != expected.get(name):
            asked = f"{path.parent / SETTINGS} asks for {expected.get(name, 'none')}"
            raise UserError(f"{path}: tensor {name!r} is {found or 'missing'}, where {asked}")


def _shapes(sizes: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (name, shape) of every tensor."""
    width, inner = sizes["width"], sizes["encoder_width"]
    yield from {"embedding.weight": (sizes["vocab"], width), "head.weight": (sizes["vocab"], width)}.items()
    yield from {"encoder.embedding.weight": (sizes["vocab"], inner), "norm.weight": (width,)}.items()
    for prefix, of, own, source in (("", "", width, inner), ("encoder.", "encoder_", inner, width)):
        heads, ffn = sizes[f"{of}heads"], sizes[f"{of}ffn"]
        for layer in range(sizes[f"{of}layers"]):
            at = f"{prefix}layers.{layer}"
            yield from _attention(f"{at}.attention", own, own, heads, sizes[f"{of}buckets"])
            if layer in sizes[f"{of}cross"]:
                yield from _attention(f"{at}.cross", own, source, heads, sizes[f"{of}cross_buckets"])
            yield from {f"{at}.ffn.{name}.weight": (ffn, own) for name in ("gate", "up")}.items()
            yield from {f"{at}.ffn.down.weight": (own, ffn), f"{at}.ffn_norm.weight": (own,)}.items()


def _attention(at: str, width: int, source: int, heads: int, buckets: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from {f"{at}_norm.weight": (width,), f"{at}.bias.table.weight": (buckets, heads)}.items()
    yield from {f"{at}.{name}.weight": (width, width) for name in ("q", "out")}.items()
    yield from {f"{at}.{name}.weight": (width, source) for name in ("k", "v")}.items()
