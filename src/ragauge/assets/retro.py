"""RETRO's released checkpoint, converted once to safetensors, sizes and a tokenizer.

The layout is that of Norlund et al., 2023 (their repository TobiasNorlund/retro), whose model
PipeRAG uses: PyTorch Lightning's checkpoint next to `retro.json`. T5's tokenizer is fetched unless
there is a `tokenizer.json` as well.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from ragauge.assets import hub
from ragauge.assets.state_dict import read_state
from ragauge.assets.store import Store, contents, digest
from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject, read_object

if TYPE_CHECKING:
    from torch import Tensor

CONVERSION = 1  # raised when the result of a conversion changes
KIND = "retro"  # the `model_type` of a converted folder
SETTINGS = "retro.json"
TOKENIZER = "tokenizer.json"
T5 = "google-t5/t5-base"
CHUNK = 64  # tokens of a chunk; padding has id 0

NAMES: dict[str, dict[str, str]] = yaml.safe_load(
    (files("ragauge.assets") / "retro.yaml").read_text(encoding="utf-8")
)
SIZES = NAMES["sizes"]
OUTSIDE = NAMES["outside"]
PARTS = NAMES["parts"]
OWN_METRICS = ("val_loss_metric.", "test_loss_metric.")  # of the training, in its checkpoint

LAYER = r"base\.(decoder|encoder\.layers)\.(\d+)\.(.+)"
STACKS = {"decoder": "layers", "encoder.layers": "encoder.layers"}


def checkpoint(folder: Path) -> Path | None:
    """Return the one released checkpoint in a folder or below it, or None."""
    paths = [path for settings in folder.rglob(SETTINGS) for path in settings.parent.glob("*.ckpt")]
    return paths[0] if len(paths) == 1 else None


def is_converted(folder: Path) -> bool:
    with suppress(UserError):
        return read_object(folder / "config.json").get("model_type") == KIND
    return False


def converted(store: Store, path: Path) -> Path:
    """Return the folder of the model in the checkpoint at `path`, whose hash keys the conversion;
    made on first use.

    Raises:
        UserError: a checkpoint that is damaged, holds more than tensors, or is not in the released
            layout; T5's tokenizer cannot be had.
    """
    sources = [path, path.parent / SETTINGS, path.parent / TOKENIZER]
    sha256 = digest(
        {source.name: contents(source)[source.name] for source in sources if source.is_file()}
    )
    return store.converted(path, f"{KIND}-{path.stem}", sha256, CONVERSION, convert)


def convert(path: Path, folder: Path) -> None:
    """Write a checkpoint's renamed tensors, its sizes and the tokenizer to `folder`."""
    from safetensors.torch import save_file

    sizes = read_sizes(path.parent / SETTINGS)
    save_file(renamed(read_state(path), path), folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)
    (folder / "config.json").write_text(json.dumps({"model_type": KIND, **sizes}, indent=1) + "\n")
    own = path.parent / TOKENIZER
    shutil.copyfile(own if own.is_file() else hub.file(T5, TOKENIZER), folder / TOKENIZER)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def read_sizes(path: Path) -> JsonObject:
    """Return the sizes of a retro.json.

    Raises:
        UserError: one is missing or unsupported.
    """
    stated = read_object(path)
    try:
        sizes = {name: stated[key] for name, key in SIZES.items()}
        fixed = {
            "chunk_size": CHUNK,
            "pad_token_idx": 0,
            "dec_qkv_dim": sizes["width"],
            "enc_qkv_dim": sizes["encoder_width"],
        }
        for key, value in fixed.items():
            if stated[key] != value:
                raise UserError(f"{path}: {key} is {stated[key]!r}; read is {value}")
    except KeyError as error:
        raise UserError(f"{path}: has no key {error}") from None
    return sizes


def renamed(state: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Return the tensors under their new names, in float32.

    Raises:
        UserError: a name outside the released layout.
    """
    tensors = {}
    for name, tensor in state.items():
        if name.startswith(OWN_METRICS):
            continue
        names = [OUTSIDE[name]] if name in OUTSIDE else []
        inner = re.fullmatch(LAYER, name)
        if inner and inner[3] in PARTS:
            names = [f"{STACKS[inner[1]]}.{inner[2]}.{one}" for one in PARTS[inner[3]].split()]
        if not names:
            raise UserError(f"{path}: {name!r}: not a tensor of the released RETRO")
        for new, part in zip(names, tensor.float().chunk(len(names)), strict=False):
            tensors[new] = part.clone().contiguous()
    return tensors
