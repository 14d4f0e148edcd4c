"""Checkpoints in the hub's folder layout: what is read, and the one line that says why one is not."""

import json
import os
import pickle
from functools import partial

import pytest
import torch
from safetensors.torch import load_file, save_file

import lm_references as tiny
from lm_references import edit
from ragauge.engines import checkpoint
from ragauge.engines.checkpoint import read_shape
from ragauge.engines.loading import random_lm
from ragauge.errors import UnsupportedError, UserError
from tables import cases, rows

FAMILIES = ("llama", "llama_gqa_tied", "bloom_4_heads", "mpt_4_heads", "openelm")
IDS = tiny.tokens(9)
MPT_HUB = {
    "attn_type": "multihead_attention",
    "attn_impl": "torch",
    "prefix_lm": False,
    "qk_ln": False,
    "alibi": True,
}
SUFFIXES = {"safetensors": "model", "bin": "pytorch_model"}


@pytest.fixture(scope="module")
def model():
    return tiny.build("llama_gqa_tied", tie_word_embeddings=False)


@pytest.fixture
def folder(model, tmp_path):
    """A whole safetensors checkpoint."""
    model.save_pretrained(tmp_path)
    return tmp_path


def to_bin(folder, tensors=None, **how):
    """The folder's checkpoint, or these tensors in place of it, as a pickled state dictionary."""
    whole = folder / "model.safetensors"
    torch.save(tensors or load_file(whole), folder / "pytorch_model.bin", **how)
    whole.unlink()
    return folder / "pytorch_model.bin"


def refused(folder, read=tiny.read):
    with pytest.raises(UserError) as caught:
        read(folder)
    text = str(caught.value)
    assert "\n" not in text
    assert str(folder) in text
    return text


# ---- layouts


def write_whole(name, folder):
    if name == "openelm":
        tiny.write_openelm(folder, tiny.openelm_tensors())
    else:
        tiny.build(name).save_pretrained(folder)
    if name.startswith("mpt"):  # the hub's is of MosaicML's own code, which has more keys
        config = json.loads((folder / "config.json").read_text())
        config |= {"no_bias": True, "norm_type": "low_precision_layernorm", "expansion_ratio": 4}
        config["attn_config"] = MPT_HUB | {"clip_qkv": None, "softmax_scale": None, "attn_pdrop": 0}
        (folder / "config.json").write_text(json.dumps(config))
    return load_file(folder / "model.safetensors")


def write_shards(folder, tensors, suffix):
    """The checkpoint as `model-00001-of-00003.safetensors` and its like with their index, in place
    of the whole one.
    """
    (folder / "model.safetensors").unlink(missing_ok=True)
    stem = SUFFIXES[suffix]
    names = sorted(tensors)
    weight_map = {}
    files = []
    for place in range(3):
        file = f"{stem}-{place + 1:05d}-of-00003.{suffix}"
        part = {name: tensors[name] for name in names[place::3]}
        save_file(part, folder / file) if suffix == "safetensors" else torch.save(
            part, folder / file
        )
        weight_map |= dict.fromkeys(part, file)
        files.append(folder / file)
    index = {
        "metadata": {"total_size": sum(t.nbytes for t in tensors.values())},
        "weight_map": weight_map,
    }
    (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))
    return files


LAYOUTS = {
    "sharded safetensors": lambda folder, tensors: write_shards(folder, tensors, "safetensors"),
    "sharded bin": lambda folder, tensors: write_shards(folder, tensors, "bin"),
    "whole bin": to_bin,
    "legacy bin": partial(to_bin, _use_new_zipfile_serialization=False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FAMILIES)
def test_every_layout_of_every_family_reads_the_same(name, layout, tmp_path):
    tensors = write_whole(name, tmp_path)
    expected = tiny.all_logits(tiny.read(tmp_path), IDS)
    LAYOUTS[layout](tmp_path, tensors)
    assert torch.equal(tiny.all_logits(tiny.read(tmp_path), IDS), expected)


def test_a_tied_checkpoint_may_hold_the_matrix_twice_and_no_other_one(tmp_path):
    """Some .bin files do, since pickles keep both names."""
    tensors = write_whole("llama_gqa_tied", tmp_path)
    expected = tiny.all_logits(tiny.read(tmp_path), IDS)
    bin_file = to_bin(tmp_path, tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]})
    assert torch.equal(tiny.all_logits(tiny.read(tmp_path), IDS), expected)
    torch.save(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"] + 1}, bin_file)
    assert (
        "tensor 'lm_head.weight' is not the embedding, though config.json ties the two"
        in refused(tmp_path)
    )


@pytest.mark.parametrize("name", ["llama", "bloom_4_heads", "mpt_4_heads", "openelm"])
def test_tensors_that_no_layer_reads_are_named(name, tmp_path):
    tensors = write_whole(name, tmp_path)
    strange = {f"layers.{i}.gate.weight": torch.ones(4) for i in range(5)}
    write_shards(tmp_path, tensors | strange, "safetensors")
    says = "5 tensors of the checkpoint have no place in its family: layers.0.gate.weight, layers.1.gate.weight, lay"
    assert says in refused(tmp_path)


@pytest.mark.parametrize(
    ("key", "part"), [("attention_bias", "self_attn.k_proj"), ("mlp_bias", "mlp.down_proj")]
)
def test_biases_that_the_config_denies_or_that_are_missing(key, part, tmp_path):
    tensors = write_whole("llama_biases", tmp_path)
    del tensors[(name := f"model.layers.1.{part}.bias")]
    write_shards(tmp_path, tensors, "safetensors")
    assert f"the checkpoint has no tensor '{name}'" in refused(tmp_path)
    edit(tmp_path / "config.json", **{key: False})
    assert (
        f"tensors of the checkpoint have no place in its family: model.layers.0.{part[:5]}"
        in refused(tmp_path)
    )


BUFFERS = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(4) for i in range(2)}
RENAMED = {
    "bloom_4_heads": lambda tensors: {
        name.removeprefix("transformer."): tensor for name, tensor in tensors.items()
    },
    "llama": lambda tensors: tensors | BUFFERS,
}


@pytest.mark.parametrize("name", RENAMED)
def test_blooms_without_a_prefix_and_rotary_buffers_of_older_llamas_read_the_same(name, tmp_path):
    tensors = write_whole(name, tmp_path)
    expected = tiny.all_logits(tiny.read(tmp_path), IDS)
    write_shards(tmp_path, RENAMED[name](tensors), "bin")
    assert torch.equal(tiny.all_logits(tiny.read(tmp_path), IDS), expected)


def test_a_shard_that_lacks_what_its_index_says(tmp_path):
    first = write_shards(tmp_path, write_whole("llama", tmp_path), "safetensors")[0]
    tensors = load_file(first)
    del tensors[missing := sorted(tensors)[0]]
    save_file(tensors, first)
    assert f"no tensor '{missing}'" in refused(tmp_path)


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", ""]
)
def test_an_index_names_files_of_its_folder_alone(name, tmp_path):
    write_whole("llama", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    assert f"names {name!r}, which is not in this folder" in refused(tmp_path)


def test_the_end_of_text_of_the_generation_config_goes_first(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 9]}')
    assert read_shape(folder).eos == (7, 9)


@pytest.mark.parametrize(
    ("changes", "windows", "shortest"),
    rows("""
{model_type: mistral, sliding_window: 512}, [512, 512], 512
# transformers' default, longer than the context
{model_type: mistral}, [4096, 4096], null
{model_type: qwen2, sliding_window: 512, use_sliding_window: false}, [], null
# from layer 28 on
{model_type: qwen2, sliding_window: 512, use_sliding_window: true}, [], null
{model_type: qwen3, sliding_window: 9, use_sliding_window: true, max_window_layers: 1}, [0, 9], 9
{model_type: gemma3_text, sliding_window: 9, rope_parameters: null}, [9, 9], 9
"""),
)
def test_sliding_windows(changes, windows, shortest, folder):
    edit(folder / "config.json", **changes)
    shape = read_shape(folder)
    assert shape.windows == tuple(windows)
    assert (shape.shortest_window, shape.max_context) == (shortest, tiny.CONTEXT)
    least = min(filter(None, windows), default=9)
    within = read_shape(folder, least)
    assert (within.shortest_window, within.max_context) == (None, least)


# ---- damage


@pytest.mark.parametrize(
    "index", ["[]", "{}", '{"weight_map": {"a": 1}}', '{"weight_map": {}}', "{"]
)
def test_a_bad_index(index, folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    assert "model.safetensors.index.json: " in refused(folder)


@pytest.mark.parametrize("keep", [0.0, 0.001, 0.5, 0.999])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_truncated_bin(keep, zipped, folder):
    path = to_bin(folder, _use_new_zipfile_serialization=zipped)
    os.truncate(path, int(keep * path.stat().st_size))
    assert f"{path}: " in refused(folder)


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_a_pickle_that_would_run_code_is_refused(how, folder, tmp_path):
    path = to_bin(folder)
    trace = tmp_path / "ran"
    if how == "torch":
        torch.save({"a": Payload(trace)}, path)
    else:
        path.write_bytes(pickle.dumps({"a": Payload(trace)}, protocol=2))
    assert f"{path}: refused: it is damaged, or holds more than tensors" in refused(folder)
    assert not trace.exists()


@pytest.mark.parametrize(
    "content", [[torch.zeros(2)], {"model": {"a": torch.zeros(2)}}, torch.zeros(2)]
)
def test_a_bin_that_is_no_state_dictionary(content, folder):
    path = to_bin(folder)
    torch.save(content, path)
    assert f"{path}: not a dictionary of tensors by name" in refused(folder)


def test_a_folder_without_weights(folder):
    (folder / "model.safetensors").unlink()
    assert "no model.safetensors and no pytorch_model.bin" in refused(folder)


@pytest.mark.parametrize(
    "key", ["vocab_size", "hidden_size", "intermediate_size", "num_attention_heads"]
)
def test_tensors_of_other_sizes_than_the_config_says(key, folder):
    config = json.loads((folder / "config.json").read_text())
    edit(folder / "config.json", **{key: 2 * config[key], "head_dim": 8})
    assert "where config.json says" in refused(folder)


def test_a_bloom_of_other_sizes(tmp_path):
    tiny.build("bloom_4_heads").save_pretrained(tmp_path)
    edit(tmp_path / "config.json", n_head=5)
    assert "tensors of other sizes than config.json says" in refused(tmp_path)


def test_a_full_gpu_is_no_damage_of_the_checkpoint(folder, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 446.00 MiB.\nGPU 0 has")

    monkeypatch.setattr(checkpoint, "_assemble", full)
    with pytest.raises(
        MemoryError, match=f"^{folder}: CUDA out of memory. Tried to allocate 446.00 MiB.$"
    ):
        tiny.read(folder)


# ---- config.json


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read: No such file"),
        ("{", "not valid JSON"),
        ("\xff", "not valid JSON"),
        ("[1]", "must be a JSON object, not [1]"),
        ("{}", "no 'model_type'"),
        ('{"model_type": "llama"}', "the key 'num_hidden_layers' is missing"),
    ],
)
def test_a_bad_config(text, says, tmp_path):
    if text is not None:
        (tmp_path / "config.json").write_text(text, encoding="latin-1")
    assert f"config.json: {says}" in refused(tmp_path, read_shape)


@pytest.mark.parametrize(
    ("changes", "says"),
    cases("""
{hidden_act: gelu} -> hidden_act: 'gelu' is not supported; supported: 'silu'
{num_hidden_layers: two} -> num_hidden_layers: must be a whole number from 1 to 10,000, not two
{intermediate_size: -5} -> ffn: '-5' is not a valid size
{rope_parameters: [3]} -> not the sizes of a llama model
{num_attention_heads: 0, head_dim: null} -> not the sizes of a llama model
{model_type: mistral, layer_types: [full_attention, full_attention]} -> layer_types:
{model_type: qwen3, use_sliding_window: true, layer_types: [full_attention, chunked_attention]} ->
  layer_types: must be full_attention or sliding_attention
{model_type: smollm3, layer_types: [sliding_attention, sliding_attention]} ->
  layer_types: sliding_attention needs
{model_type: smollm3, no_rope_layers: [1]} -> no_rope_layers: 1 values for 2 layers
{model_type: phi3, partial_rotary_factor: 0.4} -> partial_rotary_factor: rotates 3 numbers of a head
{model_type: gemma3_text, attn_logit_softcapping: 5.0} -> attn_logit_softcapping: 5.0 is not supported
{model_type: gemma3_text, rope_parameters: null, rope_scaling: {type: linear, factor: 2.0}} ->
  rope_scaling: {'type': 'linear', 'factor': 2.0} has no rope_type
{model_type: gemma3_text, rope_parameters: null, rope_scaling: {rope_type: yarn}} ->
  rope_type: 'yarn' is not supported; supported: 'default', 'linear'
{model_type: gemma3_text} -> rope_parameters: must be those of full_attention and of sliding_attention
"""),
)
def test_a_config_that_the_decoder_cannot_follow(changes, says, folder):
    edit(folder / "config.json", **changes)
    assert f"config.json: {says}" in refused(folder, read_shape)


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3", "olmoe"])
def test_a_mixture_of_experts_is_refused_by_name(kind, folder):
    edit(folder / "config.json", model_type=kind)
    says = f"config.json: {kind!r} is a mixture of experts, which is not supported; known: bloom, gemma3_text"
    assert says in refused(folder, read_shape)


@pytest.mark.parametrize(
    "option", [{"alibi": False}, {"qk_ln": True}, {"softmax_scale": 0.1}, {"prefix_lm": True}]
)
def test_options_of_mpt_that_the_decoder_does_not_have(option, tmp_path):
    tiny.CONFIGS["mpt_4_heads"]().save_pretrained(tmp_path)
    edit(tmp_path / "config.json", attn_config=option)
    assert "is not supported" in refused(tmp_path, read_shape)


def test_a_family_that_is_not_known(folder):
    edit(folder / "config.json", model_type="lama")
    assert "unknown checkpoint family 'lama'; did you mean 'llama'? known: bloom" in refused(
        folder, read_shape
    )
    with pytest.raises(UnsupportedError):
        read_shape(folder)


# ---- settings


def test_a_device_that_does_not_exist(folder):
    with pytest.raises(UserError, match="device 'cuda:99': torch finds"):
        random_lm(read_shape(folder), device="cuda:99")


# ---- contexts beyond the trained one


@pytest.mark.parametrize(
    ("name", "key"), [("mpt_4_heads", "max_seq_len"), ("llama", "max_position_embeddings")]
)
def test_positions_that_extrapolate_are_read_as_a_model_of_that_context_reads_them(
    name, key, tmp_path
):
    tiny.build(name, **{key: 64}).save_pretrained(tmp_path)
    ids = tiny.tokens(100)
    narrow = tiny.read(tmp_path)
    with pytest.raises(UserError, match="position 99; the model's context is 64"):
        narrow.extend(narrow.new_cache(100), [tiny.row(ids)], stage="prompt")
    wide = tiny.read(tmp_path, max_context=128)
    assert wide.shape.max_context == 128
    difference = tiny.all_logits(wide, ids) - tiny.reference_logits(
        tiny.build(name, **{key: 128}), ids
    )
    assert difference.abs().max() <= 1e-5
