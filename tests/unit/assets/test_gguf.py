"""GGUF headers that lie, a small GGUF converted, and the embedded default itself where it can be
had.
"""

import json
import random
import shutil
import urllib.request
from functools import partial

import gguf
import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import pre_tokenizers

import gguf_files
from asset_home import in_home
from gguf_files import (
    FFN,
    TOKENS,
    TYPES,
    D,
    gguf_folder,
    tensor_sizes,
    type_of,
    write_gguf,
)
from lm_references import all_logits, reference_logits
from ragauge.assets import gguf_weights, resolver
from ragauge.assets.pretokenizers import SPLITS
from ragauge.assets.tokenizer import load_tokenizer, plain_reader
from ragauge.engines.checkpoint import read_shape
from ragauge.engines.loading import load_lm
from ragauge.errors import UserError
from tables import cases, rows

PLACES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OUTSIDE = {"token_embd": "model.embed_tokens", "output": "lm_head", "output_norm": "model.norm"}


@pytest.fixture
def convert(tmp_path):
    """Write a GGUF file of these options; return the folder that it becomes."""
    return partial(gguf_folder, tmp_path)


def place(name):
    """A tensor's name in a checkpoint folder."""
    *_, kind, what = name.split(".")
    return f"{OUTSIDE.get(kind) or f'model.layers.0.{PLACES[kind]}'}.{what}"


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_every_type_of_block_becomes_its_values(architecture, tmp_path):
    """Those of the `gguf` package; rotated rows of Llama stand in the order of the hub's
    checkpoints.
    """
    stored = write_gguf(tmp_path / "m.gguf", architecture, d=256, ffn=256, types=TYPES)
    folder = in_home(tmp_path / "home", resolver.resolve, str(tmp_path / "m.gguf"))
    found = load_file(gguf_weights.float_checkpoint(folder) / "model-00001.safetensors")
    assert found.keys() == {place(name) for name in stored}
    for name, raw in stored.items():
        kind = type_of(name, TYPES)
        values = gguf.dequantize(raw, gguf.GGMLQuantizationType[kind])
        if architecture == "llama" and name.split(".")[-2] in ("attn_q", "attn_k"):
            values = values.reshape(-1, 64, 2, 256).swapaxes(1, 2).reshape(values.shape)
        tensor = found[place(name)]
        assert tensor.dtype == torch.float32
        np.testing.assert_array_equal(tensor.numpy(), values.reshape(tensor.shape), name)


@pytest.mark.parametrize(
    ("keys", "expected"),
    rows("""
{rope__scaling__type: none, rope__scaling__factor: 4.0}, {}
{rope__scaling__factor: 4.0}, {rope_type: linear, factor: 4.0}
{rope__scale_linear: 2.0}, {rope_type: linear, factor: 2.0}
{rope__scaling__type: yarn, rope__scaling__factor: 4.0, rope__scaling__original_context_length: 16},
  {rope_type: yarn, factor: 4.0, original_max_position_embeddings: 16}
"""),
)
def test_how_positions_are_scaled(keys, expected, convert):
    folder = convert(**keys)
    stated = json.loads((folder / "config.json").read_text())["rope_parameters"]
    assert stated == {"rope_type": "default", "rope_theta": 5000.0} | expected
    assert read_shape(folder).max_context == 64


NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
GEMMA_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
# class, head, norms, tokenizer, keys
NEWER = {
    "qwen3": ("Qwen3", 128, NORMS, "qwen2", {}),
    "gemma3": (
        "Gemma3Text", 256, {**NORMS, **GEMMA_NORMS, "ffn_norm": "pre_feedforward_layernorm"}, "sentencepiece",
        {"attention__sliding_window": 8, "rope__scaling__type": "linear", "rope__scaling__factor": 8.0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("architecture", NEWER)
def test_a_file_of_2025_is_read_like_its_checkpoint(architecture, convert):
    """Norms of heads; of Gemma 3 also its window, and norms that a file has as the factors that
    they are.
    """
    kind, dim, norms, pre, keys = NEWER[architecture]
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(TOKENS), hidden_size=D, intermediate_size=FFN, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=dim, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=5000.0,
        tie_word_embeddings=True, **({"sliding_window": 8} if keys else {}),
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.3, generator=torch.Generator().manual_seed(parameter.numel()))
    tensors = {"output.weight": None}
    for name in tensor_sizes("llama", D, FFN) | dict.fromkeys(
        f"blk.0.{norm}.weight" for norm in norms
    ):
        part = norms.get(name.split(".")[-2])
        stored = model.state_dict()[f"model.layers.0.{part}.weight" if part else place(name)]
        tensors[name] = (stored + (architecture == "gemma3" and "norm" in name)).numpy()
    heads = {"attention__key_length": dim, "attention__value_length": dim}
    lm = load_lm(str(convert(architecture, pre=pre, tensors=tensors, **heads, **keys)), threads=1)
    assert lm.shape.windows == ((8,) if keys else ())
    assert lm.shape.rope_scale == (8.0 if keys else 1.0)
    ids = [3 + 7 * i % 90 for i in range(30)]
    torch.testing.assert_close(
        all_logits(lm, ids), reference_logits(model, ids), atol=1e-4, rtol=1e-4
    )


def llama3_divisors():
    """Divisors of the rotary frequencies of a Llama 3.2, as llama.cpp writes them."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaled = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 32.0, "low_freq_factor": 1.0}
    scaled |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    config = transformers.LlamaConfig(hidden_size=16, num_attention_heads=1, rope_parameters=scaled)
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    return (5000.0 ** -(torch.arange(0, 16, 2) / 16) / frequencies).numpy()


def test_llama_3_is_told_by_its_frequencies_and_tokens(convert):
    divisors = llama3_divisors()
    folder = convert(pre="llama-bpe", tensors={"rope_freqs.weight": divisors})
    assert read_shape(folder).rope_divisors == pytest.approx(divisors.tolist(), rel=1e-4)
    # A word of the vocabulary is one token, although no merges lead to it.
    assert load_tokenizer(folder).tokenize("hell") == ["hell"]


@pytest.mark.parametrize(
    ("options", "facts"),
    cases(r"""
{embedding_length: 64} -> 'model.embed_tokens.weight' .*\(102, 32\).*\(102, 64\)
{block_count: 2147483648} -> block_count: 2,147,483,648
{block_count: 2} -> 'model.layers.1.self_attn.q_proj.weight'
{attention__head_count: 0} -> .
{embedding_length: 32.0} -> .
{tensors: {blk.0.ffn_up.weight: null}} -> 'model.layers.0.mlp.up_proj.weight'
{tensors: {blk.0.attn_q.bias: 32}} -> 'model.layers.0.self_attn.q_proj.bias' .*llama
{tensors: {rope_freqs.weight: 8}} -> 'rope_freqs.weight'
{pre: jina-v2-zh} -> tokenizer.ggml.pre 'jina-v2-zh'; known: bloom,
{architecture: no-such-architecture} -> no-such-architecture
{architecture: bloom} -> architecture 'bloom'; known: gemma3, llama, qwen2, qwen3
{architecture: qwen3moe} -> architecture 'qwen3moe'
{architecture: qwen3} -> 'model.layers.0.self_attn.q_proj.weight' is \(32, 32\)
{rope__scaling__type: longrope, rope__scaling__factor: 4.0} -> 'longrope' .*4.0
{rope__scaling__attn_factor: 0.5} -> llama.rope.scaling.attn_factor \(0.5\)
{attention__sliding_window: 16} -> llama.attention.sliding_window \(16\)
{attention__value_length: 8} -> llama.attention.value_length: 8 .*16
{rope__dimension_count: 8} -> 'model.layers.0.self_attn.q_proj.weight' is \(32, 32\)
"""),
)
def test_a_file_that_contradicts_itself_is_one_line(options, facts, convert):
    """Its weights would be left out, made up at random, or take memory that nobody has."""
    tensors = {
        name: size and np.full(size, 3, np.float32)
        for name, size in options.get("tensors", {}).items()
    }
    with pytest.raises(UserError, match=rf"m\.gguf: cannot be converted: .*{facts}"):
        convert(**{**options, "tensors": tensors})


def test_a_merge_of_a_missing_token_is_named(convert, monkeypatch):
    monkeypatch.setattr(gguf_files, "MERGES", ["l l", "x yz"])
    with pytest.raises(UserError, match=r"m\.gguf: cannot be converted: .*`yz`"):
        convert()


HARD = "\u2003\u1680aBz'S s\r\n\t1٣½éÀ中ひ한😀\u0301\u3000\u00a0.,$`_/(ªǅѠ\ua790"
RULES = {rule: (name, "llama") for name, rule in reversed(SPLITS.items())}.values()


@pytest.mark.parametrize(
    ("name", "architecture"), [*RULES, ("absent", "llama"), ("falcon", "qwen2")]
)
def test_texts_are_cut_as_llama_cpp_cuts_them(
    name,
    architecture,
    tmp_path,
    convert,
    monkeypatch,
):
    """Any two bytes of a word become one token, so that each cut shows in the ids."""
    llama = pytest.importorskip("xllamacpp")
    [(used, _)] = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    ).pre_tokenize_str(HARD)
    merges = [f"{a} {b}" for a in sorted(set(used)) for b in sorted(set(used))]
    letters = [*TOKENS[:3], *sorted(pre_tokenizers.ByteLevel.alphabet())]
    monkeypatch.setattr(gguf_files, "MERGES", merges)
    joined = [merge.replace(" ", "") for merge in merges]
    monkeypatch.setattr(gguf_files, "TOKENS", [*letters, *joined])
    tokenizer = load_tokenizer(convert(architecture, pre=name))
    rng = random.Random(0)
    texts = ["".join(rng.choices(HARD, k=300)) for _ in range(8)]
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert ids == ids_of_llama_cpp(llama, tmp_path / "m.gguf", texts)


def ids_of_llama_cpp(llama, path, texts, control=False):
    """`control`: whether control tokens in a text count as such."""
    settings = llama.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx = 64
    settings.n_parallel = 1
    settings.warmup = False
    settings.verbosity = 0
    settings.cpuparams.n_threads = 1
    server = llama.Server(settings)
    tokens = []
    for text in texts:
        body = json.dumps(
            {"content": text, "add_special": False, "parse_special": control}
        ).encode()
        header = {"Content-Type": "application/json"}
        sent = urllib.request.Request(f"{server.listening_address}/tokenize", body, header)
        tokens.append(json.load(urllib.request.urlopen(sent))["tokens"])
    return tokens


# control and user-defined tokens
OWN = ["<|a|>", "<\uff5cb\uff5c>", "[C]"], ["<d>", "\u00e9\u4e2d", "  ", "\n\t"]


def random_vocabulary(rng, model):
    """(tokens, ggml's types, merges) of letters and pairs of tokens that came before."""
    control, own = OWN
    mixed = [*control, *own]
    rng.shuffle(mixed)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    if model == "llama":
        letters = [
            "<unk>",
            *(f"<0x{byte:02X}>" for byte in range(256)),
            "\u2581",
            *"abcdef\u00e9\u4e2d.,<>|[]",
        ]
    tokens = [*letters[:1], *mixed, *letters[1:]]
    merges = []
    known = ["\u2581" if model == "llama" else "\u0120", *"abcdef.,"]
    for _ in range(60):
        a = rng.choice(known)
        b = rng.choice(known)
        if a + b not in tokens:
            tokens.append(a + b)
            known.append(a + b)
            merges.append(f"{a} {b}")
    kinds = dict.fromkeys(control, 3) | dict.fromkeys(own, 4) | {"<unk>": 2}
    return (
        tokens,
        [kinds.get(token, 6 if token.startswith("<0x") else 1) for token in tokens],
        merges,
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_random_vocabularies_give_the_ids_of_llama_cpp(model, seed, tmp_path, convert, monkeypatch):
    """With control tokens as such and as plain words; tokens of one's own stand for themselves in
    both.
    """
    llama = pytest.importorskip("xllamacpp")
    rng = random.Random(seed)
    tokens, kinds, merges = random_vocabulary(rng, model)
    blank = seed % 3 != 2

    def write(writer, pre):
        writer.add_tokenizer_model(model)
        writer.add_token_list(tokens)
        writer.add_token_types(kinds)
        writer.add_bos_token_id(tokens.index(OWN[0][seed % 3]))
        writer.add_eos_token_id(tokens.index(OWN[0][(seed + 1) % 3]))
        if model == "gpt2":
            writer.add_tokenizer_pre(rng.choice(["gpt-2", "qwen2", "llama-bpe", "smollm"]))
            writer.add_token_merges(merges)
        else:
            writer.add_token_scores([-float(place) for place in range(len(tokens))])
            writer.add_add_space_prefix(blank)

    monkeypatch.setattr(gguf_files, "TOKENS", tokens)
    monkeypatch.setattr(gguf_files, "write_tokenizer", write)
    tokenizer = load_tokenizer(convert())
    assert len(tokenizer) == len(tokens)
    pieces = [*"aabbccddeeff.,  \n", "\u00e9", "\u4e2d", "\U0001f600", *OWN[0], *OWN[1]]
    texts = ["".join(rng.choices(pieces, k=30)) for _ in range(60)]
    read = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert read == ids_of_llama_cpp(llama, tmp_path / "m.gguf", texts, control=True)
    plain = [
        plain_reader(tokenizer, [text])(text, add_special_tokens=False)["input_ids"]
        for text in texts
    ]
    assert plain == ids_of_llama_cpp(llama, tmp_path / "m.gguf", texts)


@pytest.mark.parametrize("stated", [None, True, False])
@pytest.mark.parametrize("pre", ["smollm", "llama-bpe", "tekken", "sentencepiece"])
def test_a_text_begins_as_in_llama_cpp(pre, stated, convert, monkeypatch):
    """By the file's key or, without it, by the kind of the vocabulary, as llama.cpp's /tokenize
    gave the ids.
    """
    write = gguf_files.write_tokenizer

    def with_key(writer, name):
        write(writer, name)
        if stated is not None:
            writer.add_add_bos_token(stated)

    monkeypatch.setattr(gguf_files, "write_tokenizer", with_key)
    tokenizer = load_tokenizer(convert(pre=pre))
    begins = pre != "smollm" if stated is None else stated
    assert (tokenizer("ab")["input_ids"][0] == tokenizer.bos_token_id) is begins


def test_a_model_in_several_files_is_read_as_one(tmp_path):
    """As the same tensors in one file; a missing file is named."""
    several = tmp_path / "several"
    several.mkdir()
    write_gguf(tmp_path / "m.gguf", types=TYPES, d=256, ffn=256)
    write_gguf(several / "m.gguf", types=TYPES, d=256, ffn=256, split=5)
    first, second, third = paths = sorted(several.iterdir())
    assert [path.name for path in paths] == [f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]

    def resolve(path):
        return in_home(tmp_path / "home", resolver.resolve, str(path))

    expected = gguf_weights.float_checkpoint(resolve(tmp_path / "m.gguf"))
    [joined] = {resolve(path) for path in (several, first, third)}
    found = gguf_weights.float_checkpoint(joined)
    for name in {file.name for file in expected.iterdir()} - {"ragauge-asset.json", "config.json"}:
        assert (found / name).read_bytes() == (expected / name).read_bytes(), name
    second.write_bytes(third.read_bytes())
    with pytest.raises(UserError, match=r"m-00001-of-00003\.gguf: cannot be converted: .*tensor"):
        resolve(first)
    second.unlink()
    with pytest.raises(UserError, match=r"3 files .*missing: m-00002-of-00003\.gguf$"):
        resolve(first)


@pytest.mark.parametrize("split", [0, 5])
def test_a_model_is_its_content_wherever_it_lies(split, tmp_path, monkeypatch):
    """Files of the first place may be replaced by others of the same size, or go."""
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    for place in ("a", "b", "c"):
        (tmp_path / place).mkdir()
        write_gguf(tmp_path / place / "m.gguf", types=TYPES, d=256, ffn=256, split=split)

    def resolve(place):
        return resolver.resolve(f"path:{tmp_path / place}")

    def values(folder):
        readers = gguf_weights.readers(folder / gguf_weights.FILE)
        return {name: read() for name, read in readers.items()}

    expected = values(resolve("a"))
    largest = max((tmp_path / "a").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[-2000:] = bytes(2000)  # zeros in place of a block's values
    largest.write_bytes(content)
    assert resolve("b") != resolve("a")
    for place in ("b", "c"):
        found = values(resolve(place))
        assert all(torch.equal(found[name], value) for name, value in expected.items())
        shutil.rmtree(tmp_path / place)


def test_a_truncated_file_is_refused(tmp_path):
    write_gguf(tmp_path / "m.gguf")
    whole = (tmp_path / "m.gguf").read_bytes()
    for length in (0, 97, 1000, 2500, len(whole) // 2, len(whole) - 100):
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"cut\.gguf: cannot be converted: "):
            in_home(tmp_path / "home", resolver.resolve, f"path:{tmp_path / 'cut.gguf'}")
