"""Matrices in 8 bits: their products against floating point, their bytes, batches, and what is
refused.
"""

import pytest
import torch

from lm_references import all_logits
from ragauge.engines import int8 as int8_layers
from ragauge.engines.loading import load_lm, random_lm
from ragauge.engines.weights import Linear
from ragauge.errors import UserError
from ragauge.testing import write_checkpoint
from tiny_models import FAMILIES

IDS = [5, 9, 77, 130, 8, 201, 33, 64, 90, 12, 7, 41]


def linear(rows, columns):
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(rows, columns, generator=draw) * torch.rand(rows, 1, generator=draw)
    return Linear(weight, torch.randn(rows, generator=draw))


def tokens(count, columns):
    x = torch.randn(count, columns, generator=torch.Generator().manual_seed(count))
    return x * torch.arange(1, count + 1)[:, None]  # of unlike magnitudes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "columns"), [(64, 96), (7, 5)])
def test_a_product_is_near_that_of_floating_point(dtype, rows, columns):
    plain = linear(rows, columns)
    made = int8_layers.int8(Linear(plain.weight.to(dtype), plain.bias.to(dtype)))
    for count in (1, 3, 40):
        x = tokens(count, columns)
        exact = plain(x)
        found = made(x.to(dtype))
        assert found.dtype == dtype
        error = (found.float() - exact).norm(dim=1) / (exact - plain.bias).norm(dim=1)
        assert error.max() < 0.02  # 8 bits: steps of 1/127 of the largest magnitude


@pytest.mark.parametrize("family", FAMILIES)
def test_a_decoder_of_any_family_stays_near_its_logits(family):
    shape = FAMILIES[family]
    exact, found = (
        all_logits(random_lm(shape, weights=weights), IDS) for weights in ("full", "int8")
    )
    assert (found - exact).norm() / exact.norm() < 0.06
    lm = random_lm(shape, weights="int8")
    layers = [
        m
        for layer in lm.decoder.weights.layers
        for m in (layer.qkv, layer.out, layer.up, layer.down)
    ]
    assert all(m.weight.dtype == torch.int8 for m in (*layers, lm.decoder.weights.head))


def test_a_token_in_8_bits_does_not_depend_on_the_batch():
    made = int8_layers.int8(linear(64, 96))
    x = tokens(40, 96)
    for some in (slice(0, 1), slice(3, 11), slice(39, 40)):
        assert torch.equal(made(x[some]), made(x)[some])


def test_a_checkpoint_is_read_in_8_bits(tmp_path):
    folder = write_checkpoint(tmp_path)
    exact, found = (
        all_logits(load_lm(str(folder), weights=weights), IDS) for weights in ("full", "int8")
    )
    assert 0 < (found - exact).norm() / exact.norm() < 0.06


def test_devices_without_them_are_refused():
    with pytest.raises(UserError, match="'int8' are not available on device 'cuda'"):
        int8_layers.linear_storage("int8", torch.device("cuda"))


def test_a_token_of_zeros_gives_the_bias():
    made = int8_layers.int8(linear(64, 96))
    assert torch.equal(made(torch.zeros(1, 96))[0], made.bias)
