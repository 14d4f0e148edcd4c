"""Checkpoints of all families in the layouts of the hub: sharded or whole, safetensors or .bin."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import lm_references as tiny
from ragauge.engines.checkpoint import read_shape
from ragauge.errors import UserError

FAMILIES = ("llama", "llama_gqa_tied", "bloom_4_heads", "mpt_4_heads", "openelm")
IDS = tiny.tokens(9)
MPT_HUB = {"attn_type": "multihead_attention", "attn_impl": "torch", "prefix_lm": False, "qk_ln": False, "alibi": True}
SUFFIXES = {"safetensors": "model", "bin": "pytorch_model"}


def write(name: str, folder: Path) -> dict[str, Tensor]:
    """A whole checkpoint of the family in `folder`; returns its tensors."""
    if name == "openelm":
        (folder / "config.json").write_text(json.dumps(tiny.OPENELM))
        save_file(tiny.openelm_tensors(), folder / "model.safetensors")
    else:
        tiny.build(name).save_pretrained(folder)
    if name.startswith("mpt"):  # the hub's is of MosaicML's own code, which has more keys
        config = json.loads((folder / "config.json").read_text())
        config |= {"no_bias": True, "norm_type": "low_precision_layernorm", "expansion_ratio": 4}
        config["attn_config"] = MPT_HUB | {"clip_qkv": None, "softmax_scale": None, "attn_pdrop": 0}
        (folder / "config.json").write_text(json.dumps(config))
    return load_file(folder / "model.safetensors")


def shard(folder: Path, tensors: dict[str, Tensor], suffix: str, count: int = 3) -> list[Path]:
    """The checkpoint as `model-00001-of-00003.safetensors` and its like with their index, in place of the whole one."""
    (folder / "model.safetensors").unlink(missing_ok=True)
    stem, names, weight_map, files = SUFFIXES[suffix], sorted(tensors), {}, []
    for place in range(count):
        file = f"{stem}-{place + 1:05d}-of-{count:05d}.{suffix}"
        part = {name: tensors[name] for name in names[place::count]}
        save_file(part, folder / file) if suffix == "safetensors" else torch.save(part, folder / file)
        weight_map |= dict.fromkeys(part, file)
        files.append(folder / file)
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": weight_map}
    (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))
    return files


def whole_bin(folder: Path, tensors: dict[str, Tensor]) -> None:
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")


LAYOUTS: dict[str, Callable[[Path, dict[str, Tensor]], Any]] = {
    "sharded safetensors": lambda folder, tensors: shard(folder, tensors, "safetensors"),
    "sharded bin": lambda folder, tensors: shard(folder, tensors, "bin"),
    "whole bin": whole_bin,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_layout_of_every_family_reads_the_same(name: str, layout: str, tmp_path: Path) -> None:
    tensors = write(name, tmp_path)
    expected = tiny.all_logits(tiny.read(tmp_path), IDS)
    LAYOUTS[layout](tmp_path, tensors)
    assert torch.equal(tiny.all_logits(tiny.read(tmp_path), IDS), expected)


@pytest.mark.parametrize("name", ["llama_gqa_tied", "bloom_4_heads", "mpt_4_heads", "openelm"])
def test_a_tied_output_matrix_is_the_embedding_itself(name: str, tmp_path: Path) -> None:
    tensors = write(name, tmp_path)
    assert "lm_head.weight" not in tensors
    weights = tiny.read(tmp_path).decoder.weights
    assert read_shape(tmp_path).tied
    assert weights.head.weight is weights.embedding


def test_a_tied_checkpoint_that_holds_the_matrix_twice_is_read(tmp_path: Path) -> None:
    """Some .bin files do, since pickles keep both names."""
    tensors = write("llama_gqa_tied", tmp_path)
    expected = tiny.all_logits(tiny.read(tmp_path), IDS)
    whole_bin(tmp_path, tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]})
    assert torch.equal(tiny.all_logits(tiny.read(tmp_path), IDS), expected)


def test_an_untied_checkpoint_without_its_matrix_is_named(tmp_path: Path) -> None:
    tensors = write("llama", tmp_path)
    del tensors["lm_head.weight"]
    shard(tmp_path, tensors, "safetensors")
    with pytest.raises(UserError, match=r"no tensor 'lm_head\.weight'"):
        tiny.read(tmp_path)


def test_blooms_without_the_prefix_of_the_full_model(tmp_path: Path) -> None:
    tensors = write("bloom_4_heads", tmp_path)
    expected = tiny.all_logits(tiny.read(tmp_path), IDS)
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    shard(tmp_path, bare, "bin")
    assert torch.equal(tiny.all_logits(tiny.read(tmp_path), IDS), expected)


def test_the_rotary_buffers_of_older_llamas_are_left_alone(tmp_path: Path) -> None:
    tensors = write("llama", tmp_path)
    buffers = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(4) for i in range(2)}
    expected = tiny.all_logits(tiny.read(tmp_path), IDS)
    shard(tmp_path, tensors | buffers, "bin")
    assert torch.equal(tiny.all_logits(tiny.read(tmp_path), IDS), expected)


def refused(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        tiny.read(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_truncated_shard_is_named(suffix: str, tmp_path: Path) -> None:
    broken = shard(tmp_path, write("mpt_4_heads", tmp_path), suffix)[1]
    os.truncate(broken, broken.stat().st_size // 2)
    assert f"{broken}: truncated or damaged" in refused(tmp_path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_missing_shard_is_named(suffix: str, tmp_path: Path) -> None:
    lost = shard(tmp_path, write("bloom_4_heads", tmp_path), suffix)[2]
    lost.unlink()
    assert f"names files that are missing: {lost.name}" in refused(tmp_path)


def test_a_shard_that_lacks_what_its_index_says(tmp_path: Path) -> None:
    tensors = write("llama", tmp_path)
    first = shard(tmp_path, tensors, "safetensors")[0]
    held = load_file(first)
    gone = sorted(held)[0]
    save_file({name: tensor for name, tensor in held.items() if name != gone}, first)
    assert f"no tensor '{gone}'" in refused(tmp_path)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", ""])
def test_an_index_names_files_of_its_folder_alone(name: str, tmp_path: Path) -> None:
    write("llama", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    assert f"names {name!r}, which is not in this folder" in refused(tmp_path)


def test_an_index_of_nothing(tmp_path: Path) -> None:
    write("llama", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    assert "'weight_map'" in refused(tmp_path)
