"""The key-value cache: spans of one arena that are appended, joined, forgotten and weighed."""

from dataclasses import replace
from threading import Thread

import pytest
import torch

from ragauge.engines.cache import KVCache, merge
from ragauge.engines.loading import random_lm
from ragauge.engines.spans import Row, Span
from tiny_models import ALIBI, LLAMA


@pytest.fixture(params=[replace(LLAMA, kv_heads=(2, 1)), ALIBI], ids=["rope", "alibi"])
def lm(request):
    return random_lm(request.param)


def test_spans_count_slots_and_merge():
    assert len(Span(3, 8)) == 5
    assert merge([Span(0, 2), Span(2, 5), Span(6, 6), Span(7, 9), Span(5, 7)]) == (
        (0, 5),
        (7, 9),
        (5, 7),
    )
    assert merge([]) == ()


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


def test_what_is_truncated_is_forgotten(lm):
    """With its name and its bias: the cache is as one that never had these slots."""
    logits = []
    for length in (9, 6):
        cache = lm.new_cache(9)
        lm.extend(cache, [Row(list(range(5, 5 + length)), range(length))], stage="document")
        cache.name_span(Span(0, length), "document")
        cache.truncate(6)
        assert cache.contents([Span(0, 6)]) == [("document", 0, 6)]
        assert cache.contents([Span(5, 7)]) is None
        cache.add_bias(Span(4, length), 1.5)
        cache.truncate(6)
        question = Row([30, 31, 32], [6, 7, 8], (Span(0, 6),))
        logits.append(lm.extend(cache, [question], stage="query", last_logits=True).last_logits)
    torch.testing.assert_close(*logits)  # kernels may differ with the number of tokens
