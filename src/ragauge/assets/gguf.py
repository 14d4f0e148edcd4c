"""GGUF files, converted once to the hub's layout: a folder of safetensors, configuration and tokenizer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ragauge.assets.gguf_header import Header, StoredTensor, check_decoder, read_header
from ragauge.assets.store import Store
from ragauge.errors import UserError

CONVERSION = 2  # raised when the result of a conversion changes
DECODERS = ("llama", "qwen2")  # architectures whose tensors are checked; Mistral and SmolLM files are of the first

# What transformers' reader leaves out, by values of `tokenizer.ggml.pre`.
DIGIT_SPLITS = ("smollm", "starcoder", "refact", "command-r")  # each digit is a token of its own
WHOLE_WORDS = (
    "llama3",
    "llama-v3",
    "llama-bpe",
    "falcon3",
    "falcon-h1",
    "pixtral",
)  # words of the vocabulary stay whole
ENDS = ("eos", "eot", "eom")  # tokens that end a response: tokenizer.ggml.<...>_token_id

DIVISORS = "rope_freqs.weight"  # what each rotary frequency is divided by
# Llama 3's scaling of them but for its factor
LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def converted(store: Store, path: Path, sha256: str) -> Path:
    """The folder of the decoder in the GGUF file at `path`, whose hash keys the conversion; made on first use.

    Raises UserError for a file that is no GGUF, is cut short, or holds what transformers cannot read.
    """
    return store.converted(path, path.stem, sha256, CONVERSION, convert)


def convert(path: Path, folder: Path) -> None:
    """Writes the model's fp32 weights, configuration and tokenizer to `folder`.

    fp32, since bf16 would round most values of a 4-bit block (a 16-bit scale times a level, plus a 16-bit minimum).
    Beyond what transformers reads: the scaling of positions, all tokens that end a response, and how the tokenizer
    splits digits and whole words.
    """
    header = read_header(path)
    try:
        checked = header.values.get("general.architecture") in DECODERS
        if checked:
            check_decoder(header)
        model, tokenizer = _load(path)
        if checked:
            model.config.rope_parameters = _positions(header, path, model.config)
    except (ArithmeticError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path}: cannot be converted: {first_line}") from error
    _complete(header, model, tokenizer)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for weights in folder.glob("*.safetensors"):
        weights.chmod(0o644)  # safetensors writes for the owner alone; the home may be shared


def _load(path: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder, name = str(path.parent), path.name
    dequantize = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32, quantization_config=dequantize
    )
    return model, AutoTokenizer.from_pretrained(folder, gguf_file=name)


def _complete(header: Header, model: Any, tokenizer: Any) -> None:
    """What the file says of tokens and transformers leaves out."""
    kind = header.values.get("tokenizer.ggml.pre")
    if kind in DIGIT_SPLITS:
        _split_digits(tokenizer)
    if kind in WHOLE_WORDS:
        tokenizer.backend_tokenizer.model.ignore_merges = True
    ends = list(dict.fromkeys(header.values.get(f"tokenizer.ggml.{end}_token_id") for end in ENDS))
    ends = [end for end in ends if end is not None]
    if len(ends) > 1:
        model.generation_config.eos_token_id = ends


def _split_digits(tokenizer: Any) -> None:
    from tokenizers import pre_tokenizers

    inner = tokenizer.backend_tokenizer
    digits = pre_tokenizers.Digits(individual_digits=True)
    inner.pre_tokenizer = pre_tokenizers.Sequence([digits, inner.pre_tokenizer])


def _positions(header: Header, path: Path, config: Any) -> dict[str, Any]:
    """How positions are scaled, in the words of `config`.

    Raises:
        ValueError: they are scaled in a way that is not read.
    """
    prefix = f"{header.values.get('general.architecture')}.rope.scaling"
    kind, factor = header.values.get(f"{prefix}.type", "none"), header.values.get(f"{prefix}.factor", 1.0)
    if kind not in ("none", "linear") or not math.isfinite(factor) or factor < 1:
        raise ValueError(f"{prefix}: type {kind!r} and factor {factor!r}; read are none and linear, from 1 on")
    stated = config.rope_parameters
    if kind == "linear" and factor > 1:
        stated = {**stated, "rope_type": "linear", "factor": factor}
    return _llama3(header.tensors[DIVISORS], path, config) if DIVISORS in header.tensors else stated


def _llama3(divisors: StoredTensor, path: Path, config: Any) -> dict[str, Any]:
    """Llama 3's scaling, of which a file has nothing but what each frequency is divided by."""
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    with path.open("rb") as file:
        file.seek(divisors.begin)
        found = torch.frombuffer(bytearray(file.read(divisors.bytes)), dtype=torch.float32)
    plain = config.rope_parameters["rope_theta"] ** (-torch.arange(0, 2 * len(found), 2) / (2 * len(found)))
    config.rope_parameters = {**config.rope_parameters, **LLAMA3, "factor": float(found.max().round())}
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    if divisors.type != "F32" or not torch.allclose(frequencies, plain / found, rtol=1e-3):
        raise ValueError(f"tensor {DIVISORS!r} does not scale positions as Llama 3 does")
    return dict(config.rope_parameters)
