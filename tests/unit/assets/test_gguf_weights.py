"""GGUF weights in 8 bits: the integers and scales of the dequantized floats, made once."""

import re
import signal
import subprocess

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gguf_files import TYPES, gguf_folder
from lm_references import all_logits
from ragauge.assets import gguf_weights, store
from ragauge.engines.loading import load_lm
from ragauge.errors import UserError

IDS = [5, 9, 77, 30, 8, 21, 33]
LAYER = "model.layers.0"
STACKED = {
    "layers.0.qkv": [f"{LAYER}.self_attn.{name}_proj" for name in "qkv"],
    "layers.0.out": [f"{LAYER}.self_attn.o_proj"],
    "layers.0.up": [f"{LAYER}.mlp.gate_proj", f"{LAYER}.mlp.up_proj"],
    "layers.0.down": [f"{LAYER}.mlp.down_proj"],
}


def logits(source, **options):
    return all_logits(load_lm(str(source), threads=1, **options), IDS)


def tensors(folder):
    return {
        name: tensor
        for path in folder.glob("*.safetensors")
        for name, tensor in load_file(path).items()
    }


def small(folder, architecture="qwen2", **options):
    return gguf_folder(folder, architecture, d=256, ffn=256, types=TYPES, **options)


def made_beside(folder):
    """The folder and what stands beside it, locks aside."""
    return {path for path in folder.parent.iterdir() if path.name[0] != "."}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("architecture", "options"), [("llama", {"tensors": {"output.weight": None}}), ("qwen2", {})]
)
def test_integers_are_those_of_the_floats(architecture, options, dtype, tmp_path):
    folder = small(tmp_path, architecture, **options)
    first, second = (logits(folder, dtype=dtype, weights="int8") for _ in "12")
    saved_at = folder.with_name(f"{folder.name}-int8-{dtype}-1")
    # no floats are written
    assert made_beside(folder) == {folder, saved_at}
    floats = gguf_weights.float_checkpoint(folder)
    assert torch.equal(first, second)
    assert torch.equal(first, logits(floats, dtype=dtype, weights="int8"))
    plain = {name: tensor.to(getattr(torch, dtype)) for name, tensor in tensors(floats).items()}
    saved = tensors(saved_at)
    parts = dict(STACKED)
    if not options:
        parts["head"] = ["lm_head"]
    for place, stacked in parts.items():
        weight = torch.cat([plain[f"{name}.weight"] for name in stacked]).float()
        scale = weight.abs().amax(1).clamp(min=1e-20) * (1 / 127)
        assert torch.equal(saved[f"{place}.scale"], scale)
        integers = (weight / scale[:, None]).round().to(torch.int8)
        assert torch.equal(saved[f"{place}.weight"], integers)
        if f"{place}.bias" in saved:
            biases = torch.cat([plain[f"{name}.bias"] for name in stacked])
            assert torch.equal(saved[f"{place}.bias"], biases)
    assert torch.equal(saved["embedding.weight"], plain["model.embed_tokens.weight"])
    assert not store.damage(saved_at, verify=True)
    # biases, embedding, norms
    assert len(saved) == 2 * len(parts) + (architecture == "qwen2") + 1 + 3


def test_floats_and_integers_are_made_once(tmp_path, monkeypatch):
    """The GGUF file is not read again, until a file is cut short."""
    folder = small(tmp_path)
    before = {way: logits(folder, weights=way) for way in ("full", "int8")}
    with monkeypatch.context() as patch:
        patch.setattr(gguf_weights, "readers", None)
        assert all(torch.equal(logits(folder, weights=way), before[way]) for way in before)
    for way, made in (("full", "float32"), ("int8", "int8-float32-1")):
        shard = folder.with_name(f"{folder.name}-{made}") / "model-00001.safetensors"
        whole = shard.read_bytes()
        shard.write_bytes(whole[:-1])
        assert torch.equal(logits(folder, weights=way), before[way])
        assert shard.read_bytes() == whole


def test_a_cache_that_cannot_be_written_is_read(tmp_path, monkeypatch):
    folder = small(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("os.access", lambda *_: False)
        found = {way: logits(folder, weights=way) for way in ("full", "int8")}
    assert made_beside(folder) == {folder}
    assert all(torch.equal(logits(folder, weights=way), found[way]) for way in found)


FAULTY = """
import os, resource, signal, sys
from ragauge.assets import shards
from ragauge.engines.loading import load_lm
shards.SHARD_BYTES = 1
if sys.argv[2] == "killed":
    write, count = shards.ShardWriter._write, iter(range(5, -1, -1))
    shards.ShardWriter._write = lambda writer: write(writer) if next(count) else os.kill(os.getpid(), signal.SIGKILL)
else:
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
load_lm(sys.argv[1], weights=sys.argv[3])
"""


@pytest.mark.parametrize(("fault", "weights"), [("killed", "full"), ("full disk", "int8")])
def test_what_was_begun_is_made_anew(fault, weights, preloaded, tmp_path):
    folder = small(tmp_path)
    command = [str(preloaded.folder / "python"), "-c", FAULTY, str(folder), fault, weights]
    ended = subprocess.run(
        command, env=preloaded.environment(), capture_output=True, text=True, check=False
    )
    if fault == "killed":
        assert ended.returncode == 128 + signal.SIGKILL, ended.stderr
        assert len([*folder.parent.glob(".*.unfinished/*.safetensors")]) == 5
    else:
        assert re.search("UserError: .*File too large", ended.stderr.splitlines()[-1])
        assert not [*folder.parent.glob(".*.unfinished")]
    found = logits(folder, weights=weights)
    assert not [*folder.parent.glob(".*.unfinished")]
    assert torch.equal(found, logits(gguf_weights.float_checkpoint(folder), weights=weights))


def test_a_type_of_blocks_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"m\.gguf: .*I32"):
        gguf_folder(tmp_path, tensors={"output.weight": np.zeros((102, 32), np.int32)})
