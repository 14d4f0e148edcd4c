"""Checkpoints in the hub's folder layout: what is read, and the one line that says why one is not."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import lm_references as tiny
from ragauge.engines import DTYPES, load_lm, random_lm
from ragauge.engines.checkpoint import read_shape
from ragauge.errors import UnsupportedError, UserError

IDS = tiny.tokens(9)


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny.build("llama_gqa_tied", tie_word_embeddings=False)


@pytest.fixture
def folder(model: Any, tmp_path: Path) -> Path:
    """A whole safetensors checkpoint."""
    model.save_pretrained(tmp_path)
    return tmp_path


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; None takes one out."""
    data = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in data.items() if v is not None}))


def to_bin(folder: Path, **how: Any) -> Path:
    """The folder's checkpoint as a pickled state dictionary."""
    whole = folder / "model.safetensors"
    torch.save(load_file(whole), folder / "pytorch_model.bin", **how)
    whole.unlink()
    return folder / "pytorch_model.bin"


def refused(folder: Path, read: Callable[[Path], object] = tiny.read) -> str:
    """The one line that reading the folder ends with."""
    with pytest.raises(UserError) as caught:
        read(folder)
    text = str(caught.value)
    assert "\n" not in text
    assert str(folder) in text
    return text


# ---- layouts


def assert_same(model: Any, folder: Path) -> None:
    difference = tiny.all_logits(tiny.read(folder), IDS) - tiny.reference_logits(model, IDS)
    assert difference.abs().max() <= 1e-5


def shards(model: Any, folder: Path) -> list[Path]:
    model.save_pretrained(folder, max_shard_size="20KB")
    paths = sorted(folder.glob("model-*.safetensors"))
    assert len(paths) > 2
    return paths


def test_whole_safetensors(model: Any, folder: Path) -> None:
    assert_same(model, folder)


def test_sharded_safetensors(model: Any, tmp_path: Path) -> None:
    shards(model, tmp_path)
    assert_same(model, tmp_path)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_bin(model: Any, folder: Path, zipped: bool) -> None:
    to_bin(folder, _use_new_zipfile_serialization=zipped)
    assert_same(model, folder)


def test_sharded_bin(model: Any, folder: Path) -> None:
    state = torch.load(to_bin(folder), weights_only=True)
    names = sorted(state)
    (folder / "pytorch_model.bin").unlink()
    files = {"pytorch_model-00001-of-00002.bin": names[::2], "pytorch_model-00002-of-00002.bin": names[1::2]}
    for file, part in files.items():
        torch.save({name: state[name] for name in part}, folder / file)
    weight_map = {name: file for file, part in files.items() for name in part}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    assert_same(model, folder)


def test_other_files_of_a_hub_folder_are_left_alone(model: Any, folder: Path) -> None:
    save_file({"tok_embeddings.weight": torch.zeros(1)}, folder / "consolidated.safetensors")
    (folder / "training_args.bin").write_bytes(b"not a checkpoint")
    (folder / "pytorch_model.bin").write_bytes(b"safetensors go first")
    assert_same(model, folder)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_folder_by_its_path(dtype: str, folder: Path, tokenizer_files: Callable[[Path], None]) -> None:
    tokenizer_files(folder)
    lm = load_lm(f"path:{folder}", dtype=dtype)
    assert (lm.dtype, lm.device.type, lm.shape.eos) == (DTYPES[dtype], "cpu", (2,))
    assert lm.tokenizer.decode(lm.tokenizer("w5 w7").input_ids) == "w5 w7"


def test_the_end_of_text_of_the_generation_config_goes_first(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert read_shape(folder).eos == (7, 9)


def test_a_sliding_window_bounds_the_context(folder: Path) -> None:
    edit(folder / "config.json", model_type="mistral", sliding_window=512)
    assert read_shape(folder).max_context == 512
    edit(folder / "config.json", model_type="qwen2", use_sliding_window=False)
    assert read_shape(folder).max_context == tiny.CONTEXT


# ---- damage


def test_a_missing_shard_is_named(model: Any, tmp_path: Path) -> None:
    lost = shards(model, tmp_path)[1]
    lost.unlink()
    assert f"names files that are missing: {lost.name}" in refused(tmp_path)


@pytest.mark.parametrize("index", ["[]", "{}", '{"weight_map": {"a": 1}}', "{"])
def test_a_bad_index(index: str, model: Any, tmp_path: Path) -> None:
    shards(model, tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(index)
    assert "model.safetensors.index.json: " in refused(tmp_path)


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.5, 0.999])
def test_truncated_safetensors(keep: float, folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, int(keep * path.stat().st_size))
    assert f"{path}: truncated or damaged" in refused(folder)


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.5, 0.999])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_truncated_bin(keep: float, zipped: bool, folder: Path) -> None:
    path = to_bin(folder, _use_new_zipfile_serialization=zipped)
    os.truncate(path, int(keep * path.stat().st_size))
    assert f"{path}: " in refused(folder)


class Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_a_pickle_that_would_run_code_is_refused(how: str, folder: Path, tmp_path: Path) -> None:
    path, trace = to_bin(folder), tmp_path / "ran"
    if how == "torch":
        torch.save({"a": Payload(trace)}, path)
    else:
        path.write_bytes(pickle.dumps({"a": Payload(trace)}, protocol=2))
    assert f"{path}: refused: it is damaged, or holds more than tensors" in refused(folder)
    assert not trace.exists()


@pytest.mark.parametrize("content", [[torch.zeros(2)], {"model": {"a": torch.zeros(2)}}, torch.zeros(2)])
def test_a_bin_that_is_no_state_dictionary(content: object, folder: Path) -> None:
    path = to_bin(folder)
    torch.save(content, path)
    assert f"{path}: not a dictionary of tensors by name" in refused(folder)


def test_a_folder_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "no model.safetensors and no pytorch_model.bin" in refused(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, path)
    assert "no tensor 'model.layers.1.mlp.up_proj.weight'" in refused(folder)


@pytest.mark.parametrize("key", ["vocab_size", "hidden_size", "intermediate_size", "num_attention_heads"])
def test_tensors_of_other_sizes_than_the_config_says(key: str, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    edit(folder / "config.json", **{key: 2 * config[key], "head_dim": 8})
    assert "where config.json says" in refused(folder)


def test_a_bloom_of_other_sizes(tmp_path: Path) -> None:
    tiny.build("bloom_4_heads").save_pretrained(tmp_path)
    edit(tmp_path / "config.json", n_head=5)
    assert "config.json" in refused(tmp_path)


# ---- config.json


def test_no_config(tmp_path: Path) -> None:
    assert "config.json: no such file" in refused(tmp_path, read_shape)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not valid JSON"),
        ("\xff", "not valid JSON"),
        ("[1]", "must be a JSON object, not [1]"),
        ("3", "must be a JSON object, not 3"),
        ("{}", "no 'model_type'"),
        ('{"model_type": "llama"}', "the key 'num_hidden_layers' is missing"),
    ],
)
def test_a_bad_config(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    assert f"config.json: {says}" in refused(tmp_path, read_shape)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_act": "gelu"}, "hidden_act: 'gelu' is not supported; supported: 'silu'"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 8.0}}, "rope type 'yarn' is not supported"),
        ({"rope_parameters": None, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope type 'dynamic'"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers: must be a whole number from 1 to 10,000, not two"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers: must be a whole number from 1 to 10,000"),
        ({"vocab_size": "x"}, "vocab: 'x' is not a valid size"),
        ({"intermediate_size": -5}, "ffn: '-5' is not a valid size"),
        ({"rope_parameters": [3]}, "not the sizes of a llama model"),
        ({"num_attention_heads": 0, "head_dim": None}, "not the sizes of a llama model"),
        ({"num_hidden_layers": None}, "the key 'num_hidden_layers' is missing"),
    ],
)
def test_a_config_that_the_decoder_cannot_follow(changes: dict[str, Any], says: str, folder: Path) -> None:
    edit(folder / "config.json", **changes)
    assert f"config.json: {says}" in refused(folder, read_shape)


@pytest.mark.parametrize("option", [{"alibi": False}, {"qk_ln": True}, {"softmax_scale": 0.1}, {"prefix_lm": True}])
def test_options_of_mpt_that_the_decoder_does_not_have(option: dict[str, Any], tmp_path: Path) -> None:
    tiny.CONFIGS["mpt_4_heads"]().save_pretrained(tmp_path)
    edit(tmp_path / "config.json", attn_config=option)
    assert "is not supported" in refused(tmp_path, read_shape)


def test_a_family_that_is_not_known(folder: Path) -> None:
    edit(folder / "config.json", model_type="lama")
    assert "unknown checkpoint family 'lama'; did you mean 'llama'? known: bloom" in refused(folder, read_shape)
    with pytest.raises(UnsupportedError):
        read_shape(folder)


# ---- settings


@pytest.fixture(scope="module")
def tokenizer_files() -> Callable[[Path], None]:
    """Writes a tokenizer of words, `w3` being 3, into a checkpoint folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(tiny.VOCAB)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.decoder = decoders.WordPiece(prefix="##")
    return lambda folder: PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder) and None


def test_a_folder_without_a_tokenizer(folder: Path) -> None:
    assert "no tokenizer that it can read" in refused(folder, lambda path: load_lm(f"path:{path}"))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"dtype": "float8"}, "unknown dtype 'float8'"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"device": "cuda:x"}, "unknown device 'cuda:x'"),
        ({"device": "cuda:99"}, "device 'cuda:99': torch finds"),
    ],
)
def test_settings_that_do_not_exist(setting: dict[str, str], says: str, folder: Path) -> None:
    with pytest.raises(UserError, match=says):
        random_lm(read_shape(folder), **setting)


# ---- contexts beyond the trained one


@pytest.mark.parametrize(("name", "key"), [("mpt_4_heads", "max_seq_len"), ("llama", "max_position_embeddings")])
def test_positions_that_extrapolate_are_read_as_a_model_of_that_context_reads_them(
    name: str, key: str, tmp_path: Path
) -> None:
    tiny.build(name, **{key: 64}).save_pretrained(tmp_path)
    ids = tiny.tokens(100)
    narrow = tiny.read(tmp_path)
    with pytest.raises(UserError, match="position 99; the model's context is 64"):
        narrow.extend(narrow.new_cache(100), [tiny.row(ids)], stage="prompt")
    wide = tiny.read(tmp_path, max_context=128)
    assert wide.shape.max_context == 128
    difference = tiny.all_logits(wide, ids) - tiny.reference_logits(tiny.build(name, **{key: 128}), ids)
    assert difference.abs().max() <= 1e-5


def test_a_context_may_be_made_shorter(folder: Path) -> None:
    assert read_shape(folder, 16).max_context == 16


def test_a_sliding_window_is_not_read_beyond(folder: Path) -> None:
    edit(folder / "config.json", model_type="mistral", sliding_window=512)
    assert "max_context 1024: the model has a sliding window of 512" in refused(folder, lambda f: read_shape(f, 1024))
