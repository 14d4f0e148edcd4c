"""Rooflines by hand."""

import pytest
import torch

from ragauge.cost.flop import attention_macs, call_macs
from ragauge.cost.hardware import Precision
from ragauge.cost.roofline import call_bytes, floor_seconds, model_bytes, product_seconds
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call
from ragauge.errors import UserError

SHAPE = Shape("llama", 64, 32, (4,) * 2, (2,) * 2, 8, (64,) * 2, True, 256, "rope")
WEIGHTS = 2 * (32 * 8 * (4 + 4 + 4) + 3 * 32 * 64) + 64 * 32
ROWS = 2 * (8 * (4 + 2 + 2) + 32 + 2 * 64 + 32) + 64  # of the matrices, each with a scale in 8 bits
DECODE = Call("decode", (1,), (10,), logits=(1,), steps=3)
CACHED = (10 + 2) + (11 + 2) + (12 + 2)
RATE = {"median": 1.0, "low": 1.0, "high": 1e9, "n": 1}
MACHINE = {"bandwidth_bytes_per_s": RATE, "matmul_flop_per_s": {"float32": RATE}}


def test_roofline_by_hand():
    assert call_bytes(DECODE, SHAPE, "float32") == 4 * (3 * WEIGHTS + CACHED * 2 * 2 * 2 * 8)
    assert (
        floor_seconds(DECODE, SHAPE, torch.float32, MACHINE)
        == call_bytes(DECODE, SHAPE, "float32") / 1e9
    )
    encoder = Call("rank", (8,), (0,), macs=10**9)
    assert floor_seconds(encoder, SHAPE, "float32", MACHINE) == 2.0
    with pytest.raises(UserError, match="measured machine: unknown dtype 'bfloat16'"):
        floor_seconds(DECODE, SHAPE, "bfloat16", MACHINE)


def test_a_decoder_in_8_bits_moves_bytes_and_scales():
    weights = 3 * (WEIGHTS + 4 * ROWS)
    precision = Precision("float32", "int8")
    assert call_bytes(DECODE, SHAPE, precision) == weights + CACHED * 2 * 2 * 2 * 4 * 8


def test_8_bit_products_have_their_own_rate_and_attention_has_the_dtypes():
    machine = {"matmul_flop_per_s": {"float32": {"high": 1e9}, "int8": {"high": 4e9}}}
    call = Call("prompt", (5,), (0,))
    attention = attention_macs(SHAPE, 5, 0)
    products = (call_macs(call, SHAPE) - attention) / 4 + attention
    assert product_seconds(call, SHAPE, Precision(weights="int8"), machine) == pytest.approx(
        2 * products / 1e9
    )


def test_weights_in_memory():
    norms = 5 * 32
    assert SHAPE.tied
    assert model_bytes(SHAPE, "bfloat16") == 2 * (WEIGHTS + norms)
    assert model_bytes(SHAPE, Precision("bfloat16", "int8")) == WEIGHTS + 4 * ROWS + 2 * (
        64 * 32 + norms
    )
