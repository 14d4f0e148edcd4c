"""Quantised checkpoints read as the floating-point ones that they stand for; all other ones are
refused by name.
"""

from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import lm_references as tiny
from ragauge.errors import UserError

GENERATOR = torch.Generator().manual_seed(5)
IDS = tiny.tokens(20)


def drawn(*size, low=-127, high=128):
    return torch.randint(low, high, size, generator=GENERATOR)


def scales(*size):
    return torch.rand(size, generator=GENERATOR) / 100 + 1e-3


def fp8(rows, columns):
    return (torch.randn(rows, columns, generator=GENERATOR) * 50).to(torch.float8_e4m3fn)


def tiles(scale, rows, columns, block):
    return torch.from_numpy(
        np.kron(scale.float().numpy(), np.ones(block, dtype=np.float32))[:rows, :columns]
    )


def packed(numbers, bits):
    """Non-negative numbers of a row, the first in the lowest bits of each int32, as
    compressed-tensors packs them.
    """
    per = 32 // bits
    padded = np.pad(numbers.numpy().astype(np.uint32), ((0, 0), (0, -numbers.shape[1] % per)))
    words = sum(padded[:, i::per] << np.uint32(bits * i) for i in range(per))
    return torch.from_numpy(np.asarray(words, dtype=np.uint32).view(np.int32))


# Each: (rows, columns) -> the tensors beside a layer's name, and the weight that they stand for.


def fp8_by_block(rows, columns, side=16):
    numbers = fp8(rows, columns)
    scale = scales(-(-rows // side), -(-columns // side))
    stored = {"weight": numbers, "weight_scale_inv": scale, "activation_scale": scales()}
    return stored, numbers.float() * tiles(scale, rows, columns, (side, side))


def fp8_by_tensor(rows, columns):
    numbers = fp8(rows, columns)
    scale = scales()
    return {"weight": numbers, "weight_scale_inv": scale}, numbers.float() * scale


def fp8_by_row(rows, columns):
    numbers = fp8(rows, columns)
    scale = scales(rows, 1)
    return {
        "weight": numbers,
        "weight_scale": scale,
        "input_scale_ub": scales(),
    }, numbers.float() * scale


def bnb8(rows, columns):
    numbers = drawn(rows, columns).to(torch.int8)
    absmax = scales(rows) * 50
    stored = {"weight": numbers, "SCB": absmax, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    return stored, numbers.float() * absmax[:, None] / 127


def int8_with_zero_points(rows, columns):
    numbers = drawn(rows, columns).to(torch.int8)
    scale = scales(rows, 1)
    zero = drawn(rows, 1).to(torch.int8)
    stored = {
        "weight": numbers,
        "weight_scale": scale,
        "weight_zero_point": zero,
        "input_scale": scales(1),
    }
    return stored, (numbers.float() - zero.float()) * scale


def packed_by_group(rows, columns):
    numbers = drawn(rows, columns, low=0, high=16)
    scale = scales(rows, columns // 8)
    zero = drawn(rows, columns // 8, low=0, high=16)
    stored = {"weight_packed": packed(numbers, 4), "weight_shape": torch.tensor([rows, columns])}
    stored |= {"weight_scale": scale, "weight_zero_point": packed(zero.T, 4).T.contiguous()}
    return stored, (numbers - tiles(zero, rows, columns, (1, 8))) * tiles(
        scale, rows, columns, (1, 8)
    )


def packed_by_row(rows, columns):
    numbers = drawn(rows, columns, low=0, high=256)
    scale = scales(rows, 1)
    stored = {"weight_packed": packed(numbers, 8), "weight_shape": torch.tensor([rows, columns])}
    return stored | {"weight_scale": scale}, (numbers.float() - 128) * scale


def compressed(form, bits=8, **others):
    group = {"targets": ["Linear"], "weights": {"num_bits": bits, **others}}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
    }


BLOCKS = {"quant_method": "fp8", "weight_block_size": [16, 16], "activation_scheme": "dynamic"}
CASES = {
    "fp8 by block": (BLOCKS, fp8_by_block),
    "fp8, blocks larger than layers": (
        BLOCKS | {"weight_block_size": [128, 128]},
        partial(fp8_by_block, side=128),
    ),
    "fp8 by tensor": ({"quant_method": "fp8", "weight_block_size": None}, fp8_by_tensor),
    "fbgemm": ({"quant_method": "fbgemm_fp8"}, fp8_by_row),
    "bitsandbytes": (
        {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False},
        bnb8,
    ),
    "bitsandbytes, older": ({"load_in_8bit": True}, bnb8),
    "compressed fp8": (compressed("float-quantized"), fp8_by_row),
    "compressed int8": (compressed("int-quantized"), int8_with_zero_points),
    "compressed, naive": (compressed("naive-quantized"), int8_with_zero_points),
    "packed 4 bits": (compressed("pack-quantized", 4, group_size=8), packed_by_group),
    "packed 8 bits": (compressed("pack-quantized", 8), packed_by_row),
}


def write(folder, stated, store, key="quantization_config"):
    """Write a quantised checkpoint; return the logits of the one in floating point that it stands
    for.
    """
    tiny.build("qwen2").save_pretrained(folder)
    dense = load_file(folder / "model.safetensors")
    stored = {}
    for name, tensor in list(dense.items()):
        if "proj.weight" not in name:
            stored[name] = tensor
            continue
        parts, dense[name] = store(*tensor.shape)
        stored |= {name.removesuffix("weight") + part: content for part, content in parts.items()}
    save_file(dense, folder / "model.safetensors")
    logits = tiny.all_logits(tiny.read(folder), IDS)
    save_file(stored, folder / "model.safetensors")
    tiny.edit(folder / "config.json", **{key: stated})
    return logits


@pytest.mark.parametrize(("stated", "store"), CASES.values(), ids=CASES)
def test_logits_are_those_of_the_dequantised_weights(stated, store, tmp_path):
    expected = write(tmp_path, stated, store)
    torch.testing.assert_close(
        tiny.all_logits(tiny.read(tmp_path), IDS), expected, atol=1e-5, rtol=1e-5
    )


def test_the_key_of_older_compressed_tensors(tmp_path):
    expected = write(tmp_path, *CASES["packed 4 bits"], key="compression_config")
    torch.testing.assert_close(
        tiny.all_logits(tiny.read(tmp_path), IDS), expected, atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize(
    "name", ["fp8 by block", "fp8, blocks larger than layers", "fp8 by tensor"]
)
def test_logits_are_transformers(name, tmp_path):
    """transformers multiplies FP8's scales in where there is no GPU."""
    write(tmp_path, *CASES[name])
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    assert not model.is_quantized or model.model.layers[0].mlp.up_proj.weight.dtype == torch.float32
    expected = tiny.reference_logits(model, IDS)
    torch.testing.assert_close(
        tiny.all_logits(tiny.read(tmp_path), IDS), expected, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        (
            {"quant_method": "gptq", "bits": 4},
            "config.json: weights quantized by gptq are not read; read are fp8, fbg",
        ),
        ({"quant_method": "awq", "bits": 4}, "quantized by awq are not read"),
        (
            {"quant_method": "mxfp4"},
            "quantized by mxfp4 are not read; .* take the model without quantization, as a GG",
        ),
        ({"bits": 4}, "quantized by unnamed are not read"),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            "quantized by bitsandbytes in 4 bits are not read",
        ),
        (
            compressed("nvfp4-pack-quantized", 4),
            "quantized by compressed-tensors as nvfp4-pack-quantized are not read",
        ),
        (compressed("pack-quantized", 3), "in other than 4 or 8 bits"),
        (
            compressed("int-quantized") | {"quantization_status": "frozen"},
            "compressed-tensors, frozen, sparse as dense are not",
        ),
        (
            compressed("int-quantized") | {"sparsity_config": {"format": "sparse-24-bitmask"}},
            "sparse as sparse-24-bit",
        ),
        ([8], "quantization_config: must be an object"),
        (BLOCKS | {"weight_block_size": [8, 8]}, r"scales do not fit \(32, 32\) numbers"),
        (
            compressed("int-quantized"),
            "tensor 'model.layers.0.self_attn.[qkv]_proj.weight' is of torch.float8_e4m3fn",
        ),
        (None, "is of torch.int8 and config.json states no quantization"),
    ],
)
def test_what_is_not_read_is_refused(stated, says, tmp_path):
    write(tmp_path, stated, bnb8 if stated is None else fp8_by_block)
    with pytest.raises(UserError, match=says):
        tiny.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "method"), [("hf_quant_config.json", "modelopt"), ("quantize_config.json", "gptq")]
)
def test_a_method_that_a_file_of_its_own_states(name, method, tmp_path):
    tiny.build("qwen2").save_pretrained(tmp_path)
    (tmp_path / name).write_text("{}")
    with pytest.raises(UserError, match=f"{name}: weights quantized by {method} are not read"):
        tiny.read(tmp_path)


def test_rows_in_another_order_of_bitsandbytes(tmp_path):
    write(tmp_path, *CASES["bitsandbytes"])
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight_format"] = torch.tensor(2, dtype=torch.uint8)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(
        UserError, match=r"'model.layers.1.mlp.up_proj.weight': rows are in the order 2 of bitsandb"
    ):
        tiny.read(tmp_path)
