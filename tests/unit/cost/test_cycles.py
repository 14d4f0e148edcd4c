"""Compute cycles: hand-counted traces, and the paper's cells that its own token counts explain."""

import pytest

from ragauge.cost import cycles
from ragauge.cost.cycles import compute_cycles, kv_bytes
from ragauge.cost.flop import call_macs, row_macs, trace_macs
from ragauge.cost.shape import Shape
from ragauge.cost.shapes import named
from ragauge.cost.trace import Call
from ragauge.errors import UserError

TINY = Shape("llama", 10, 4, (2, 1), (1, 1), 2, (6, 8), True, 99, "rope")
# Per token: layer 1 has q 4*4, k and v 4*2 each, o 4*4, MLP 3*4*6; layer 2 has q, k, v, o 4*2 each,
# MLP 3*4*8.
TINY_TOKEN = (16 + 8 + 8 + 16 + 72) + (4 * 8 + 96)
TINY_PAIR = 2 * (2 + 1) * 2  # query·key and probability·value over three heads of two


@pytest.mark.parametrize(
    ("call", "rows"),
    [
        (Call("prompt", (3,), (2,), logits=(1,)), (3 * TINY_TOKEN + 3 * 5 * TINY_PAIR + 40,)),
        (
            Call("decode", (1,), (5,), logits=(1,), steps=3),
            (3 * (TINY_TOKEN + 40) + (6 + 7 + 8) * TINY_PAIR,),
        ),
        (Call("rank", (), (), macs=7), (7,)),
        (Call("documents", (), (), parallel=True), ()),
    ],
    ids=["prompt", "decode", "given", "empty"],
)
def test_a_call_by_hand(call, rows):
    assert row_macs(call, TINY) == rows
    assert call_macs(call, TINY) == compute_cycles([call], TINY) == sum(rows)


def test_a_parallel_call_counts_as_its_longest_row_by_work_not_by_length():
    call = Call("query", (3, 2), (0, 99), parallel=True)
    rows = row_macs(call, TINY)
    assert rows[1] > rows[0]
    assert compute_cycles([call], TINY) == rows[1]
    assert compute_cycles(cycles.sequential([call]), TINY) == sum(rows)
    assert compute_cycles([call], TINY, "total") == sum(rows)


def test_offline_calls_count_only_in_total_or_uncached():
    trace = [Call("documents", (4,), (0,), offline=True), Call("query", (2,), (4,))]
    online = call_macs(trace[1], TINY)
    assert compute_cycles(trace, TINY) == online
    assert compute_cycles(cycles.uncached(trace), TINY) == trace_macs(trace, TINY)
    assert compute_cycles(trace, TINY, "total") == trace_macs(trace, TINY)


def test_an_encoders_macs_are_divided_by_length():
    call = Call("rank", (1, 3), (0, 0), parallel=True, macs=101)
    assert sum(row_macs(call, TINY)) == 101
    assert compute_cycles([call], TINY) == 76
    assert compute_cycles([call], TINY, "total") == 101
    assert cycles.with_all_logits([call], TINY) == [call]


def test_unknown_accounting_names_the_choices():
    with pytest.raises(UserError, match=r"'critical_path'.* critical_path, published, total"):
        compute_cycles([], TINY, "critical-path")


def test_kv_bytes():
    assert kv_bytes(TINY, 5, "bfloat16") == 2 * (1 + 1) * 2 * 5 * 2
    assert kv_bytes(named("mpt-7b-instruct"), 1, "torch.float16") == 2 * 32 * 4096 * 2
    with pytest.raises(UserError, match="dtype"):
        kv_bytes(TINY, 5, "complex64")


def test_published_counts_the_mean_row_where_critical_path_counts_the_longest():
    call = Call("documents", (2, 4), (0, 0), parallel=True)
    rows = row_macs(cycles.with_all_logits([call], TINY)[0], TINY)
    assert compute_cycles([call], TINY, "published") == round(sum(rows) / 2)
    assert compute_cycles([call], TINY) == row_macs(call, TINY)[1]


def test_published_has_no_logits_of_a_call_that_ends_before_the_last_layer():
    first = Call("check", (3,), (2,), layers=(0, 1))
    rest = Call("prompt", (3,), (2,), layers=(1, 2))
    assert compute_cycles([first], TINY, "published") == call_macs(first, TINY)
    assert compute_cycles([rest], TINY, "published") == call_macs(rest, TINY) + 3 * 40
