"""GGUF files, converted once to the hub's layout: a folder of safetensors, configuration and tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragauge.assets import store

CONVERSION = 1  # raised when the result of a conversion changes
# Splits that `tokenizer.ggml.pre` names and transformers' reader of GGUF leaves out: each digit is a token of its own.
DIGIT_SPLITS = ("smollm", "starcoder", "refact", "command-r")


def converted(path: Path, sha256: str) -> Path:
    """The folder of the decoder in the GGUF file at `path`, whose hash keys the conversion; made on first use."""
    target = store.home() / "converted" / store.slug(path.stem, sha256, CONVERSION)

    def make(folder: Path) -> dict[str, Any]:
        _convert(path, folder)
        return {"source": str(path), "sha256": sha256, "conversion": CONVERSION}

    return store.build(target, make)


def _convert(path: Path, folder: Path) -> None:
    """Writes fp32 weights: bf16 would round the values of a 4-bit block, a scale times a level plus a minimum."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    name = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    dequantize = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**name, dtype=torch.float32, quantization_config=dequantize)
    tokenizer = AutoTokenizer.from_pretrained(**name)
    _restore_digit_split(tokenizer, path)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _restore_digit_split(tokenizer: Any, path: Path) -> None:
    from gguf import GGUFReader
    from tokenizers import pre_tokenizers

    field = GGUFReader(path).get_field("tokenizer.ggml.pre")
    if field is not None and field.contents() in DIGIT_SPLITS:
        inner = tokenizer.backend_tokenizer
        digits = pre_tokenizers.Digits(individual_digits=True)
        inner.pre_tokenizer = pre_tokenizers.Sequence([digits, inner.pre_tokenizer])
