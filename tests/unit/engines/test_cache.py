"""The key-value cache: spans of one arena that are appended, joined, forgotten and weighed."""

from dataclasses import replace
from threading import Thread

import pytest

from ragauge.engines.cache import KVCache, merge
from ragauge.engines.loading import random_lm
from ragauge.engines.spans import Span
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
