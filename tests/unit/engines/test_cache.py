"""The key-value cache: spans of one arena that are appended, joined, forgotten and weighed."""

from dataclasses import replace
from threading import Thread

import pytest
import torch

from lm_references import row, tokens
from ragauge.engines.cache import KVCache, merge
from ragauge.engines.loading import random_lm
from ragauge.engines.spans import Span
from tiny_models import ALIBI, LLAMA


@pytest.fixture(params=[replace(LLAMA, kv_heads=(2, 1)), ALIBI], ids=["rope", "alibi"])
def lm(request):
    return random_lm(request.param)


def read(lm, cache, *rows):
    """Logits of the rows' last tokens."""
    return lm.extend(cache, rows, stage="query", last_logits=True).last_logits


def filled(lm, capacity=64):
    """A preamble of 5 tokens and documents of 7, 4 and 6 that see it alone."""
    cache = lm.new_cache(capacity)
    [a] = lm.extend(cache, [row(tokens(5))], stage="preamble").spans
    documents = [row(tokens(n, n), 5, [a], step=0.8) for n in (7, 4, 6)]
    return cache, [a, *lm.extend(cache, documents, stage="documents").spans]


def contents(cache, span):
    slots = slice(*span)
    return [cache.positions[slots], *(t[:, slots] for t in cache.k + cache.v)]


def test_spans_count_slots_and_merge():
    assert len(Span(3, 8)) == 5
    assert merge([Span(0, 2), Span(2, 5), Span(6, 6), Span(7, 9), Span(5, 7)]) == (
        (0, 5),
        (7, 9),
        (5, 7),
    )
    assert merge([]) == ()


def test_spans_of_another_cache_are_appended_with_their_biases(lm):
    source, spans = filled(lm)
    source.add_bias(spans[2], -2.0)
    for capacity in (5, 40):  # it grows, or has the room
        cache = source.select(spans[:1], extra=capacity - 5)
        cache.append(source, spans[2])
        assert cache.length == 9
        for mine, theirs in zip(
            contents(cache, Span(5, 9)), contents(source, spans[2]), strict=True
        ):
            torch.testing.assert_close(mine, theirs)
        assert cache.bias[:9].tolist() == [0.0] * 5 + [-2.0] * 4


def test_bytes_are_those_in_use(lm):
    cache, _ = filled(lm)
    per_token = sum(2 * heads * lm.shape.head_dim * 4 for heads in lm.shape.kv_heads)
    assert cache.bytes == lm.cache_bytes == 22 * per_token
    joined = lm.join(cache, [Span(0, 5)], extra=30)
    assert lm.cache_bytes == 27 * per_token
    del joined
    assert lm.cache_bytes == 22 * per_token


class Meeting(KVCache):
    """Another thread begins a cache while this one is counted."""

    @property
    def bytes(self):
        self.other.start()
        self.other.join(0.05)  # it waits until all are counted
        return 3


def test_caches_of_another_thread_wait_while_bytes_are_counted(lm):
    meeting = lm.track(Meeting(lm.shape, 4, lm.dtype, lm.device))
    made = []
    meeting.other = Thread(target=lambda: made.append(lm.new_cache(4)))
    assert lm.cache_bytes == 3
    meeting.other.join()
    assert len(made) == 1


def test_growing_keeps_what_is_there(lm):
    roomy, spans = filled(lm, capacity=64)
    tight, same = filled(lm, capacity=1)
    tight.add_bias(spans[1], 1.0)
    assert spans == same
    before = [t.clone() for s in spans for t in contents(tight, s)]
    tight.reserve(1000)
    assert tight.capacity >= 1022
    assert tight.length == 22
    assert all(map(torch.equal, before, (t for s in spans for t in contents(tight, s))))
    assert all(map(torch.equal, before, (t for s in spans for t in contents(roomy, s))))
    assert tight.bias.tolist()[:22] == [
        1.0 if spans[1].start <= i < spans[1].stop else 0.0 for i in range(22)
    ]
    arena = tight.k[0]
    tight.reserve(1000)
    assert tight.k[0] is arena  # enough room: nothing is copied


def test_attention_is_in_the_order_of_the_past(lm):
    """Spans in another order, or one twice, are not taken for the cache itself, be they as long as
    it is.
    """
    cache, (a, b, c, d) = filled(lm)
    length = cache.length
    question = tokens(3, 9)

    def weights(past):
        cache.truncate(length)
        return lm.extend(
            cache, [row(question, 30, past)], stage="query", attention="all"
        ).attention[0]

    straight = weights([a, b, c, d])
    turned = weights([d, a, b, c])
    torch.testing.assert_close(
        turned, torch.cat([straight[16:22], straight[:16], straight[22:]]), atol=1e-6, rtol=0
    )
    twice = weights([a, a, c, c, c])  # 22 slots
    assert torch.equal(twice[:5], twice[5:10])
    assert torch.equal(twice[10:14], twice[18:22])


def test_what_is_truncated_is_forgotten(lm):
    cache, spans = filled(lm)
    question = row(tokens(3, 9), 30, spans)
    expected = read(lm, cache, question)
    cache.truncate(22)
    read(lm, cache, row(tokens(20, 4), 0))
    cache.truncate(22)
    cache.truncate(100)  # beyond the end: nothing to forget
    assert cache.length == 22
    assert torch.equal(read(lm, cache, question), expected)


def test_a_bias_hides_or_scales_a_span(lm):
    """-inf is as good as not attending; log 2 is as good as attending to the span twice."""
    question = tokens(3, 9)
    for bias, past in (
        (float("-inf"), [0, 2, 3]),
        (torch.tensor(2.0).log().item(), [0, 1, 1, 2, 3]),
    ):
        cache, spans = filled(lm)
        expected = read(lm, cache, row(question, 30, [spans[i] for i in past]))
        cache.truncate(22)
        cache.add_bias(spans[1], bias)
        rows = [row(question, 30, spans), row(tokens(2, 8), 30, spans[:1])]
        torch.testing.assert_close(read(lm, cache, rows[0]), expected, atol=1e-5, rtol=0)
        cache.truncate(22)
        torch.testing.assert_close(read(lm, cache, *rows)[:1], expected, atol=1e-5, rtol=0)
        joined = lm.join(cache, spans, extra=3)
        torch.testing.assert_close(
            read(lm, joined, row(question, 30, [Span(0, 22)])), expected, atol=1e-5, rtol=0
        )
