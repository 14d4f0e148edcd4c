"""Small GGUF files: random decoders with blocks of any type and a tokenizer of few tokens."""

import math

import gguf
import numpy as np

from asset_home import in_home
from ragauge.assets import resolver

D = 32
FFN = 64
BYTES = [chr(b) for b in range(33, 127)]  # those that byte-level BPE writes as themselves
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *BYTES, "Ġ", "Ċ", "ĊĊ", "ll", "hell"]
MERGES = ["Ċ Ċ", "l l"]
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def write_gguf(
    path,
    architecture="llama",
    pre="smollm",
    d=D,
    ffn=FFN,
    types=None,
    tensors=None,
    split=0,
    **keys,
):
    """A random decoder of one layer with a tokenizer of single bytes and few merges; returns its
    tensors.

    Args:
        types: ggml's type of a tensor by the last word of its name but one; random blocks are its
            bytes.
        tensors: others besides, None: one that is left out.
        split: tensors of a file, where there are several.
        keys: values of `<architecture>.<key>`, `__` for a dot.
    """
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=split)
    sizes = {
        "context_length": 64,
        "embedding_length": d,
        "block_count": 1,
        "feed_forward_length": ffn,
    }
    sizes |= {"attention.head_count": 2, "attention.head_count_kv": 1}
    for key, value in (sizes | {k.replace("__", "."): v for k, v in keys.items()}).items():
        add = {str: writer.add_string, float: writer.add_float32}.get(
            type(value), writer.add_uint32
        )
        add(f"{architecture}.{key}", value)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(5000.0)
    write_tokenizer(writer, pre)
    rng = np.random.default_rng(0)
    values = {}
    for name, size in (
        tensor_sizes(architecture, d, ffn) | {"output.weight": (len(TOKENS), d)}
    ).items():
        kind = gguf.GGMLQuantizationType[type_of(name, types or {})]
        if name not in (tensors or {}):
            values[name] = blocks(rng, size, kind)
            writer.add_tensor(name, values[name], raw_dtype=None if kind.name == "F32" else kind)
    for name, value in (tensors or {}).items():
        if value is not None:
            writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def gguf_folder(folder, *given, **options):
    """The folder that a file of `write_gguf`, written into a folder, becomes."""
    write_gguf(folder / "m.gguf", *given, **options)
    return in_home(folder / "home", resolver.resolve, str(folder / "m.gguf"))


def type_of(name, types):
    """Biases are not quantised."""
    return types.get(name.split(".")[-2], "F32") if name.endswith("weight") else "F32"


def write_tokenizer(writer, pre):
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if pre == "sentencepiece":
        write_sentencepiece(writer)
        return
    writer.add_tokenizer_model("gpt2")
    if pre != "absent":
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3] + [1] * (len(TOKENS) - 3))
    writer.add_token_merges(MERGES)
    writer.add_chat_template(CHATML)


def write_sentencepiece(writer):
    """Llama 2's kind: scores in place of merges, bytes for what the vocabulary lacks."""
    bytewise = [f"<0x{b:02X}>" for b in range(88)]
    tokens = ["<unk>", "<s>", "</s>", *bytewise, "ab", "\u2581ab", "\u2581a", "\u2581", "a", "b"]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*tokens, *(f"<pad{i}>" for i in range(len(TOKENS) - len(tokens)))])
    writer.add_token_scores([float(-i) for i in range(len(TOKENS))])
    writer.add_token_types(
        [2, 3, 3, *[6] * len(bytewise), *[1] * (len(TOKENS) - 3 - len(bytewise))]
    )


def tensor_sizes(architecture, d, ffn):
    block = {"attn_q": (d, d), "attn_k": (d // 2, d), "attn_v": (d // 2, d), "attn_output": (d, d)}
    block |= {"ffn_gate": (ffn, d), "ffn_up": (ffn, d), "ffn_down": (d, ffn)}
    sizes = {f"blk.0.{name}.weight": size for name, size in block.items()}
    sizes |= {f"blk.0.{name}.weight": (d,) for name in ("attn_norm", "ffn_norm")}
    if architecture == "qwen2":
        sizes |= {f"blk.0.{name}.bias": block[name][:1] for name in ("attn_q", "attn_k", "attn_v")}
    return sizes | {"token_embd.weight": (len(TOKENS), d), "output_norm.weight": (d,)}


HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}


def blocks(rng, size, kind):
    """Random bytes of a type's blocks, whose half-precision scales are small numbers."""
    if kind.name == "F32":
        return rng.normal(size=size).astype(np.float32)
    values, length = gguf.GGML_QUANT_SIZES[kind]
    if values == 1:
        half = rng.normal(size=size).astype(np.float32)
        return (
            half.astype(np.float16).view(np.uint8)
            if kind.name == "F16"
            else half.view(np.uint16)[..., 1::2].copy().view(np.uint8)
        )
    raw = rng.integers(0, 256, (math.prod(size) // values, length), dtype=np.uint8)
    for at in HALVES[kind.name]:
        raw[:, at : at + 2] = rng.normal(0, 0.01, (len(raw), 1)).astype(np.float16).view(np.uint8)
    return raw.reshape(*size[:-1], -1)


TYPES = {
    "attn_q": "Q4_K",
    "attn_k": "Q5_K",
    "attn_v": "Q6_K",
    "attn_output": "Q8_0",
    "ffn_gate": "Q4_0",
}
TYPES |= {"ffn_up": "Q4_1", "ffn_down": "F16", "token_embd": "Q5_0", "output": "BF16"}
