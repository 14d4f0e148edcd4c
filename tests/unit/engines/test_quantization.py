"""Keys and values in 8 bits: near those in full, rounded once, and right under every operation of a
cache.
"""

import pytest
import torch

from lm_references import row
from ragauge.cost.cycles import kv_bytes
from ragauge.cost.hardware import Precision
from ragauge.engines.loading import random_lm
from ragauge.engines.spans import Span
from ragauge.engines.store import DocumentStore
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
