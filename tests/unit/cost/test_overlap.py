"""The ideal overlap as a fold over a trace, and projections to faster parts."""

import pytest

from ragauge.cost.overlap import AHEAD, PREFETCH, RETRIEVAL, WAIT, ideal_s, waited_s, windows
from ragauge.cost.trace import Call


def call(stage, seconds):
    return Call(stage, (1,), (0,), seconds=seconds)


PIPELINED = [
    call("read", 0.5),
    call(RETRIEVAL, 3.0),
    call("neighbours", 0.25),
    call("decode", 1.75),
    call(PREFETCH, 3.0),  # ran beside the two calls before it
    call(WAIT, 1.1),
    call("neighbours", 0.5),
    call("decode", 4.5),
    call(PREFETCH, 2.5),
    call(WAIT, 0.01),
    call("decode", 1.0),
]


def test_every_window_costs_the_longer_of_its_parts():
    assert ideal_s(PIPELINED) == pytest.approx((0.5 + 3.0) + max(3.0, 2.0) + max(2.5, 5.0) + 1.0)
    assert [w.hidden for w in windows(PIPELINED)] == [False, True, True, False]
    assert waited_s(PIPELINED) == pytest.approx(3.0 + 1.1 + 0.01)


def test_what_is_read_behind_a_prefetch_runs_beside_the_same_window():
    trace = [*PIPELINED[:5], call(AHEAD, 0.8), *PIPELINED[5:]]
    assert ideal_s(trace) == pytest.approx((0.5 + 3.0) + max(3.0 + 0.8, 2.0) + max(2.5, 5.0) + 1.0)
    assert ideal_s(trace, generation=4) == pytest.approx((0.125 + 3.0) + (3.0 + 0.2) + 2.5 + 0.25)
    assert ideal_s(trace, retrieval=4) == pytest.approx((0.5 + 0.75) + 2.0 + 5.0 + 1.0)
