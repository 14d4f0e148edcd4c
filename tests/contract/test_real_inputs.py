"""Inputs that people bring, on which software of this field has failed: a table of what each must give.

A row is an input, a function of an empty folder that makes and reads it, and a pattern of the right outcome: a value,
or "refused: " and the line that a user sees. Add a row for each kind of input; its variants belong to unit tests.
Tables of their own have chat templates (`unit/prompts/test_templates.py`), documents
(`unit/study/test_document_samples.py`), questions (`unit/study/test_questions.py`) and what servers reply
(`unit/engines/backends/test_openai_replies.py`).
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM

import lm_references as tiny
from ragauge import assets
from ragauge.errors import UserError
from ragauge.rankers.dense import Encoder
from tiny_models import encoder

Tensors = dict[str, torch.Tensor]


def model(change: Callable[[Tensors], Tensors] = lambda tensors: tensors, **stated: Any) -> Callable[[Path], str]:
    """A Llama with other tensors and keys of config.json: whether its logits are transformers'."""

    def outcome(folder: Path) -> str:
        tiny.build("llama").save_pretrained(folder)
        save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors")
        tiny.edit(folder / "config.json", **stated)
        ours, ids = tiny.read(folder), tiny.tokens(50)
        theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        difference = (tiny.all_logits(ours, ids) - tiny.reference_logits(theirs, ids)).abs().max().item()
        return "logits of transformers" if difference < 1e-4 else f"logits that differ by {difference:.2g}"

    return outcome


def fp8(tensors: Tensors) -> Tensors:
    stored = {name: tensor for name, tensor in tensors.items() if "proj" not in name}
    for name in tensors.keys() - stored.keys():
        scale = tensors[name].abs().max() / 448
        stored |= {name: (tensors[name] / scale).to(torch.float8_e4m3fn), f"{name}_scale_inv": scale.reshape(1, 1)}
    return stored


def overflowing_encoder(folder: Path) -> str:
    model = AutoModel.from_pretrained(encoder(folder))
    with torch.no_grad():
        model.encoder.layer[0].output.dense.weight[0, 0] = float("inf")
    model.save_pretrained(folder)
    return str(Encoder(folder).encode(["Tea"]))


def a_part_of_a_gguf(folder: Path) -> None:
    (folder / "m-00001-of-00002.gguf").write_bytes(b"GGUF")
    assets.resolve(str(folder / "m-00001-of-00002.gguf"))


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
BOTH = {"rope_parameters": {"rope_type": "default", "rope_theta": 777.0}}
BOTH["rope_scaling"] = {"rope_type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}

ROWS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "FP8 weights with scales": (model(fp8, quantization_config=FP8), "logits of transformers"),
    "scales that config.json does not mention": (model(fp8), r"refused: .* 14 tensors .* have no place in its family"),
    "a GPTQ checkpoint": (model(quantization_config={"quant_method": "gptq"}), "refused: .* by gptq are not read"),
    "rope_scaling beside rope_parameters": (model(**BOTH), "logits of transformers"),
    "YaRN": (model(rope_parameters=None, rope_scaling=YARN), "logits of transformers"),
    "a key of positions that nobody knows": (
        model(rope_parameters=None, rope_scaling=YARN | {"beta": 3}), "refused: .* unknown key of rope type yarn 'beta'"
    ),
    "one file of a GGUF in several": (a_part_of_a_gguf, r"refused: .* missing: m-00002-of-00002\.gguf$"),
    "an encoder with a weight that overflowed": (overflowing_encoder, "refused: encoder .* 1 of 1 texts .* is 'Tea'"),
}  # fmt: skip


@pytest.mark.parametrize(("read", "right"), ROWS.values(), ids=ROWS)
def test_what_is_right_of_a_real_input(read: Callable[[Path], Any], right: str, tmp_path: Path) -> None:
    try:
        outcome = str(read(tmp_path))
    except UserError as error:
        outcome = f"refused: {error}"
    assert re.match(right, outcome), outcome
    assert "\n" not in outcome
