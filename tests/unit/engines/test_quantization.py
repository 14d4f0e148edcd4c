"""Keys and values of stored documents in 8 and 4 bits: rounded as KIVI does, for every reader."""

import random

import pytest
import torch

from lm_references import row
from ragauge.cost.hardware import STORED_BITS
from ragauge.engines.loading import random_lm
from ragauge.engines.quantization import dequantize_groups, quantize_groups
from ragauge.engines.store import DocumentStore, MemoryStore
from tiny_models import FAMILIES

IDS = [5, 9, 77, 130, 8, 201, 33, 64, 90, 12, 7, 41]
MORE = [3, 17, 88]


def reader(family="llama", kv="full"):
    return random_lm(FAMILIES[family], kv=kv)


def after(lm, cache, *past):
    """The logits of a few more tokens that attend to spans."""
    found = lm.extend(cache, [row(MORE, 20.0, past)], stage="query", last_logits=True).last_logits
    return found[0]


def filled(lm):
    cache = lm.new_cache(4)  # grows
    [span] = lm.extend(cache, [row(IDS)], stage="prompt").spans
    return cache, span


def content(cache, span):
    return {name: part[:, span.start : span.stop].clone() for name, part in cache.tensors()}


def distance(found, exact):
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_groups_are_rounded_as_kivi_rounds_them(seed, dim, bits):
    """Against the formula group by group, scale and offset in full: off by what their 16 bits lose,
    and by a level where a number lies between two. No error is beyond half a step.
    """
    draw = random.Random(seed)
    heads, tokens, channels = draw.choice([1, 3]), draw.choice([1, 31, 32, 33, 70]), 2 * 20
    torch.manual_seed(seed)
    values = torch.randn(heads, tokens, channels) * torch.rand(channels).exp() + 3 * torch.randn(
        channels
    )
    values[0, 0] = 1.5  # all alike
    found = dequantize_groups(*quantize_groups(values, dim, bits), dim, bits)
    assert found.shape == values.shape
    near = 0
    exact, rounded = (x.double().transpose(dim, 2).split(32, 2) for x in (values, found))
    for group, mine in zip(exact, rounded, strict=True):
        low, high = group.aminmax(dim=2, keepdim=True)
        step = ((high - low) / (2**bits - 1)).where(high > low, 1.0)
        expected = ((group - low) / step).round() * step + low
        lost = (group.abs().amax(2, keepdim=True) + high - low) / 1024
        error = (mine - expected).abs()
        assert ((mine - group).abs() <= step / 2 + lost).all()
        assert (error <= step + lost).all()
        near += int((error <= lost).sum())
    assert near >= 0.9 * values.numel()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("kv", "far"), [("int8_stored", 0.03), ("int4_stored", 0.3)])
def test_stored_documents_are_rounded_for_their_first_reader_too(family, kv, far, tmp_path):
    """Read without a store, into one in memory and from it, into one on disk and from it: the same
    bits, not far from those in full; a question is not rounded.
    """
    contents = []
    lm = reader(family, kv)
    for store in [
        None,
        *[MemoryStore("d", 1 << 20)] * 2,
        *[DocumentStore(tmp_path, "d", 1 << 20)] * 2,
    ]:
        lm.documents = store
        cache = lm.new_cache(20)
        [span] = lm.extend(cache, [row(IDS)], stage="documents", offline=True).spans
        contents.append(content(cache, span))
    for other in contents[1:]:
        assert all(torch.equal(part, other[name]) for name, part in contents[0].items())
    lm.documents = None
    exact, question = filled(lm)
    assert all(
        torch.equal(part, content(*filled(reader(family, "full")))[name])
        for name, part in content(exact, question).items()
    )
    assert 0 < distance(after(lm, cache, span), after(lm, exact, question)) < far


@pytest.mark.parametrize("kv", STORED_BITS)
def test_entries_of_other_bits_are_not_found_and_have_the_bytes_of_their_codes(kv, tmp_path):
    """A token's 2 layers x 2 heads x 8 numbers twice; 16 bits for scale and offset of each channel
    of up to 32 tokens (keys), of each token (values).
    """
    counts = {}
    for stored_as in ("full", *STORED_BITS, kv):
        lm = reader(kv=stored_as)
        lm.documents = DocumentStore(tmp_path, "tiny", 1 << 20)
        with lm.tracing() as trace:
            lm.extend(lm.new_cache(20), [row(IDS)], stage="documents", offline=True)
        counts[stored_as] = trace[0].loading_s
    assert [seconds is None for seconds in counts.values()] == [
        stored_as != kv for stored_as in counts
    ]
    assert len(list(tmp_path.iterdir())) == 1 + len(STORED_BITS)
    lm.documents = memory = MemoryStore("tiny", 1 << 20)
    lm.extend(lm.new_cache(20), [row(IDS)], stage="documents", offline=True)
    [entry] = memory._entries.values()
    n = len(IDS)
    codes = 2 * n * 2 * 2 * 8 * STORED_BITS[kv] // 8
    assert entry.tensors["k.scale"].shape == (2 * 2, 1, 1, 8)
    assert entry.tensors["v.scale"].shape == (2 * 2, n, 1, 1)
    assert entry.bytes == codes + 4 * (2 * 2 * 8 + 2 * 2 * n) + 4 * n
