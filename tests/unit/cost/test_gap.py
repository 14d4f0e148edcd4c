"""The gap between theory and clock: told apart without a rest, by hand and on a tiny decoder."""

import pytest

from ragauge.cost import gap
from ragauge.cost.flop import call_macs
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call

SHAPE = Shape("llama", 64, 32, (4,) * 2, (2,) * 2, 8, (64,) * 2, True, 256, "rope")
MACHINE = {
    "bandwidth_bytes_per_s": {"high": 1e9},
    "matmul_flop_per_s": {"float32": {"high": 1e11}},
    "load_share": 0.0,
}
NAIVE = [
    Call("prompt", (100,), (0,), logits=(1,), seconds=1.0),
    Call("decode", (1,), (100,), logits=(1,), steps=4, seconds=0.4),
]
PATHS = [
    Call("documents", (30,) * 3, (5,) * 3, offline=True, parallel=True, seconds=9.0),
    Call("query", (6,) * 3, (35,) * 3, parallel=True, seconds=0.25),
    Call("task", (4,), (41,), logits=(1,), seconds=0.05),
    Call("decode", (1,), (45,), logits=(1,), steps=4, seconds=0.4),
]


def test_the_gap_is_all_that_is_not_theory():
    naive, mine = (gap.stages(trace, SHAPE, "float32", MACHINE) for trace in (NAIVE, PATHS))
    found = gap.explain(mine, 0.8, naive, 1.5)
    stages = found["stages"]
    assert {name: pytest.approx(sum(parts.values())) for name, parts in stages.items()} == {
        call.stage: call.seconds for call in PATHS if not call.offline
    }
    assert found["between_calls_s"] == pytest.approx(0.8 - 0.7)
    beyond = sum(parts[key] for parts in stages.values() for key in gap.PARTS[1:])
    assert found["gap_s"] == pytest.approx(beyond + found["between_calls_s"])
    shares = gap.shares(found["stages"], found["between_calls_s"], found["gap_s"])
    assert sum(shares.values()) == pytest.approx(1)
    # one of three paths; decoding not at all
    theory = call_macs(PATHS[1], SHAPE) // 3 + call_macs(PATHS[2], SHAPE)
    assert found["theoretical_speedup"] == pytest.approx(call_macs(NAIVE[0], SHAPE) / theory)
    assert found["measured_speedup"] == pytest.approx(1.5 / 0.8)
    assert found["gap_s"] == pytest.approx(0.8 - 1.5 / found["theoretical_speedup"])
    assert stages["query"]["parallel_paths_s"] == pytest.approx(2 * stages["query"]["theory_s"])
