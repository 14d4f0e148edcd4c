"""Keys and values in 8 bits: near those in full, rounded once, and right under every operation of a
cache.
"""

import random

import pytest
import torch

from lm_references import row
from ragauge.cost.cycles import kv_bytes
from ragauge.cost.hardware import STORED_BITS, Precision
from ragauge.engines.loading import random_lm
from ragauge.engines.quantization import dequantize_groups, quantize_groups
from ragauge.engines.spans import Span
from ragauge.engines.store import DocumentStore, MemoryStore
from tiny_models import FAMILIES, LLAMA

IDS = [5, 9, 77, 130, 8, 201, 33, 64, 90, 12, 7, 41]
MORE = [3, 17, 88]


def reader(family="llama", kv="int8"):
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


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_stays_near_that_over_keys_and_values_in_full(family):
    exact, found = (after(lm, *filled(lm)) for lm in (reader(family, "full"), reader(family)))
    assert 0 < distance(found, exact) < 0.02


def test_slots_hold_8_bits_and_a_scale_and_their_bytes_are_counted():
    lm = reader()
    cache, span = filled(lm)
    assert {part.dtype for name, part in cache.tensors() if "scale" not in name} == {torch.int8}
    assert (
        cache.bytes
        == kv_bytes(LLAMA, len(span), Precision("float32", kv="int8"))
        == 12 * 2 * 2 * 2 * (8 + 4)
    )
    assert lm.cache_bytes == cache.bytes


def test_copies_are_rounded_once_and_attended_to_as_where_they_were():
    lm = reader()
    cache, span = filled(lm)
    spans = (Span(2, 5), Span(7, 12))
    joined = lm.join(cache, spans, 8)
    expected = {n: torch.cat([p[:, 2:5], p[:, 7:12]], 1) for n, p in content(cache, span).items()}
    for name, part in content(joined, Span(0, 8)).items():
        assert torch.equal(part, expected[name])
    torch.testing.assert_close(after(lm, joined, Span(0, 8)), after(lm, cache, *spans))


def test_moved_tokens_are_near_those_read_there():
    lm = reader()
    cache, span = filled(lm)
    cache.move(span, [3.0 + i for i in range(len(IDS))])
    there = lm.new_cache(20)
    lm.extend(there, [row(IDS, 3.0)], stage="prompt")
    assert distance(after(lm, cache, span), after(lm, there, span)) < 0.02


def test_stored_documents_come_back_bit_for_bit(tmp_path):
    made = []
    for _ in range(2):
        lm = reader()
        lm.documents = DocumentStore(tmp_path, "tiny", 1 << 20)
        cache = lm.new_cache(20)
        with lm.tracing() as trace:
            [span] = lm.extend(cache, [row(IDS)], stage="documents", offline=True).spans
        made.append((content(cache, span), trace[0].loading_s))
    (first, computed), (second, loaded) = made
    assert computed is None
    assert loaded is not None
    assert all(torch.equal(part, second[name]) for name, part in first.items())


def kivi(numbers, bits):
    """KIVI's rounding of one group, number by number: (q * s + z of each, s)."""
    low, high = min(numbers), max(numbers)
    step = (high - low) / (2**bits - 1) or 1.0
    return [round((x - low) / step) * step + low for x in numbers], step


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
    exact = values.transpose(dim, 2)
    rounded = found.transpose(dim, 2)
    near = total = 0
    for head in range(exact.shape[0]):
        for line in range(exact.shape[1]):
            for start in range(0, exact.shape[2], 32):
                group = exact[head, line, start : start + 32].tolist()
                expected, step = kivi(group, bits)
                lost = (max(map(abs, group)) + max(group) - min(group)) / 1024
                mine = rounded[head, line, start : start + 32].tolist()
                for x, a, b in zip(group, mine, expected, strict=True):
                    assert abs(a - x) <= step / 2 + lost
                    assert abs(a - b) <= step + lost
                    near += abs(a - b) <= lost
                    total += 1
    assert near >= 0.9 * total


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
