"""Blocks of GGUF files: products with them as they stand, against the `gguf` package's numbers."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

from gguf_files import TYPES, gguf_folder
from lm_references import all_logits
from ragauge.engines.blocks import BlockLinear, BlockRows, block_linear
from ragauge.engines.kernels import compiled
from ragauge.engines.loading import load_lm
from ragauge.errors import UserError

KINDS = ("Q4_0", "Q4_1", "Q4_K", "Q5_0", "Q6_K", "Q8_0")
IDS = [5, 9, 77, 30, 8, 21, 33]
needs_compiler = pytest.mark.skipif(compiled.compiler() is None, reason="no C compiler")


def rows(name, count=48, seed=0):
    """Random blocks, whose 16-bit scales are small numbers."""
    kind = GGMLQuantizationType[name]
    numbers, size = GGML_QUANT_SIZES[kind]
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (count, 512 // numbers, size), dtype=np.uint8)
    scales = rng.standard_normal((*blocks.shape[:2], 2)).astype(np.float16) * np.float16(0.02)
    first = 208 if name == "Q6_K" else 0
    last = first + (4 if name in ("Q4_1", "Q4_K") else 2)
    blocks[..., first:last] = scales.view(np.uint8)[..., : last - first]
    return BlockRows(blocks.reshape(count, -1), kind)


def activations(tokens):
    """Activations that 8 bits hold: whole numbers, the largest of any 32 of them 127."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-127, 128, (tokens, 512), generator=generator).float()
    x[:, ::32] = 127
    return x


@needs_compiler
@pytest.mark.parametrize("tokens", [1, 3, 8, 13, 40, 130])
@pytest.mark.parametrize("kind", KINDS)
def test_products_are_those_of_the_dequantized_numbers(kind, tokens):
    part = rows(kind, 54)
    x = activations(tokens)
    expected = x @ torch.from_numpy(gguf.dequantize(part.data, part.type)).t()
    layer = block_linear([part])
    for y in (layer(x), layer.by_torch(x)):
        assert (y - expected).abs().max() < 2e-6 * expected.abs().max()


@needs_compiler
@pytest.mark.parametrize("kind", KINDS)
def test_a_token_is_multiplied_to_the_same_bits_alone_and_with_others(kind):
    """Panels are unpacked for several tokens and read in place for one."""
    layer = block_linear([rows(kind, 54)], torch.randn(54))
    x = torch.randn(145, 512)
    alone = torch.cat([layer(token) for token in x.split(1)])
    for tokens in (3, 4, 7, 16, 145):
        assert torch.equal(layer(x[:tokens]), alone[:tokens])


FLAGS = {"x86-64": "sse2", "x86-64-v3": "avx2", "x86-64-v4": "avx512bw"}


@needs_compiler
@pytest.mark.parametrize("processor", FLAGS)
def test_products_of_whole_numbers_are_right_on_each_kind_of_processor(
    processor, monkeypatch, tmp_path
):
    """The compiler makes another product for each: with registers of 512, 256 and 128 bits."""
    flags = Path("/proc/cpuinfo").read_text().split()
    if FLAGS[processor] not in flags:
        pytest.skip(f"this processor has no {FLAGS[processor]}")
    options = [f"-march={processor}" if "-march" in one else one for one in compiled.OPTIONS]
    monkeypatch.setattr(compiled, "OPTIONS", options)
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path))
    compiled.library.cache_clear()
    try:
        layers = [block_linear([rows(kind, 54)]) for kind in KINDS]
        numbers = torch.randint(-127, 128, (54, 512), dtype=torch.int8)
        products = [layer(activations(tokens)) for layer in layers for tokens in (1, 13, 40)]
        of_bytes = compiled.Matrix.of(numbers, scale=torch.ones(54))
        exact = [compiled.multiply(of_bytes, activations(tokens)) for tokens in (1, 5, 13, 40)]
    finally:
        compiled.library.cache_clear()
    expected = [
        activations(tokens) @ layer.parts[0].values().t()
        for layer in layers
        for tokens in (1, 13, 40)
    ]
    for y, right in zip(products, expected, strict=True):
        assert (y - right).abs().max() < 2e-6 * right.abs().max()
    for y, tokens in zip(exact, (1, 5, 13, 40), strict=True):
        assert torch.equal(y, activations(tokens) @ numbers.float().t())


@needs_compiler
def test_parts_of_several_types_are_one_layer_with_a_bias():
    parts = [rows(kind, 16 * (2 + i), seed=i) for i, kind in enumerate(KINDS)]
    bias = torch.randn(sum(len(part.data) for part in parts))
    x = activations(5)
    expected = x @ torch.cat([part.values() for part in parts]).t() + bias
    assert (block_linear(parts, bias)(x) - expected).abs().max() < 2e-6 * expected.abs().max()
    halves = block_linear(parts, bias)(x.to(torch.bfloat16))
    assert halves.dtype == torch.bfloat16
    assert torch.equal(halves, block_linear(parts, bias)(x).to(torch.bfloat16))


def test_other_blocks_and_broken_panels_are_refused():
    with pytest.raises(UserError, match=r"Q3_K.*Q4_0, Q4_1"):
        block_linear([rows("Q3_K")])
    with pytest.raises(UserError, match="20 rows"):
        block_linear([rows("Q4_0", 20), rows("Q4_0")])


def model(folder, architecture="qwen2"):
    types = {name: kind if kind in KINDS else "Q4_K" for name, kind in TYPES.items()}
    return gguf_folder(folder, architecture, d=256, ffn=512, types=types)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_a_model_answers_as_its_dequantized_file(architecture, tmp_path):
    folder = model(tmp_path, architecture)
    by_blocks = load_lm(str(folder), threads=1, weights="int4")
    assert isinstance(by_blocks.decoder.weights.layers[0].down, BlockLinear)
    blocks = all_logits(by_blocks, IDS)
    exact, eight = (
        all_logits(load_lm(str(folder), threads=1, weights=weights), IDS)
        for weights in ("full", "int8")
    )
    assert (blocks - exact).norm() < 0.04 * exact.norm()
    assert (blocks - exact).norm() < (eight - exact).norm()


@needs_compiler
def test_steps_of_one_token_are_those_of_one_pass(tmp_path):
    lm = load_lm(str(model(tmp_path)), threads=1, weights="int4")
    together = all_logits(lm, IDS)
    steps = all_logits(lm, IDS, chunk=1)
    assert ((steps - together).norm(dim=1) < 0.01 * together.norm(dim=1)).all()


def test_only_a_gguf_file_on_a_cpu_has_blocks(tmp_path):
    from ragauge.testing import write_checkpoint

    write_checkpoint(tmp_path / "model")
    with pytest.raises(UserError, match=r"'int4'.*GGUF.*int8"):
        load_lm(str(tmp_path / "model"), weights="int4")


def test_random_weights_have_blocks(tmp_path):
    from ragauge.cost.shapes import named
    from ragauge.engines.loading import random_lm

    lm = random_lm(named("smollm2-135m-instruct"), weights="int4", threads=1)
    assert all_logits(lm, IDS[:3]).isfinite().all()
