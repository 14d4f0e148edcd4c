"""Traces: every call as data, the same from a decoder with weights and from its shape alone."""

from dataclasses import replace

import pytest

from lm_references import row, tokens
from ragauge.cost.cycles import kv_bytes
from ragauge.cost.trace import Call
from ragauge.engines.loading import random_lm
from ragauge.engines.protocol import Limits
from ragauge.engines.shape_lm import ShapeLM
from tiny_models import LLAMA, SHAPES

LIMITS = Limits(6, ignore_stop=True)


def session(lm):
    """One of every kind of call that methods make."""
    with lm.tracing() as trace:
        cache = lm.new_cache(10)
        [a] = lm.extend(cache, [row(tokens(5))], stage="preamble", offline=True).spans
        documents = [row(tokens(n, n), 5, [a]) for n in (7, 4)]
        b, c = lm.extend(
            cache, documents, stage="documents", offline=True, parallel=True, logp=True
        ).spans
        queries = [row(tokens(3), 12, [a, d]) for d in (b, c)]
        lm.extend(cache, queries, stage="query", parallel=True, logp=True, attention="all")
        lm.extend(
            cache, queries[:1], stage="query", parallel=True, last_logits=True, attention="last"
        )
        joined = lm.join(cache, [a, c], extra=4)
        past = [type(a)(0, 9)]
        read = lm.extend(
            joined, [row(tokens(4), 15, past)], stage="task", last_logits=True, logp=True
        )
        lm.generate(joined, read.last_logits[0], 19, LIMITS)
        lm.note(Call("rank", (), (), macs=123))
        again = lm.extend(joined, [row(tokens(2), 15, past)], stage="prompt", last_logits=True)
        # its token is known already
        lm.generate(joined, again.last_logits[0], 17, Limits(1, ignore_stop=True))
    return trace


EXPECTED = [
    Call("preamble", (5,), (0,), offline=True),
    Call("documents", (7, 4), (5, 5), offline=True, parallel=True, logits=(6, 3)),
    Call("query", (3, 3), (12, 9), parallel=True, logits=(2, 2)),
    Call("query", (3,), (12,), logits=(1,)),
    Call("task", (4,), (9,), logits=(4,)),
    Call("decode", (1,), (13,), logits=(1,), steps=5),
    Call("rank", (), (), macs=123),
    Call("prompt", (2,), (9,), logits=(1,)),
]


def untimed(trace):
    return [replace(call, seconds=None) for call in trace]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_trace_holds_every_call(shape):
    assert untimed(session(random_lm(SHAPES[shape]))) == EXPECTED
    assert session(ShapeLM(SHAPES[shape])) == EXPECTED  # nothing ran, so nothing is timed


@pytest.mark.parametrize("make", [random_lm, ShapeLM])
def test_the_peak_of_cached_bytes_is_since_tracing_began(make):
    lm = make(LLAMA)
    cache = lm.new_cache(4)
    lm.extend(cache, [row(tokens(4))], stage="preamble")
    per_token = kv_bytes(LLAMA, 1, "float32")
    assert lm.cache_bytes == 4 * per_token
    with lm.tracing():
        assert lm.peak_cache_bytes == 4 * per_token
        passing = lm.new_cache(9)
        lm.extend(passing, [row(tokens(9))], stage="prompt")
        del passing
        lm.extend(cache, [row(tokens(2), 4)], stage="query")
        assert lm.cache_bytes == 6 * per_token
    assert lm.peak_cache_bytes == 13 * per_token
