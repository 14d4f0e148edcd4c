"""The gap between theory and clock: told apart without a rest, by hand and on a tiny decoder."""

import json

import pytest

from ragauge.cli._main import main
from ragauge.cost import gap
from ragauge.cost.flop import call_macs
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call
from ragauge.testing import write_checkpoint

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


def test_several_lengths_in_one_run(tmp_path, capsys):
    counts = tmp_path / "counts.json"
    machine = tmp_path / "machine.json"
    counts.write_text(json.dumps({"preamble": 5, "documents": [30, 30, 30], "query": 5, "task": 3}))
    machine.write_text(json.dumps(MACHINE))
    folder = write_checkpoint(tmp_path / "model", max_position_embeddings=64)
    command = f"time --methods naive,superposition --dataset {counts} --random-weights --model {folder} --trials 2"
    more = f"--warmup 1 --threads 1 --new-tokens 2,4 --machine {machine} --allow-load --out {tmp_path / 'l.json'}"
    assert main([*command.split(), *more.split()]) == 0
    result = json.loads((tmp_path / "l.json").read_text())
    lengths = [result, *result["other_lengths"]]
    shown = capsys.readouterr().out
    assert "between calls" in shown
    assert [one["protocol"]["new_tokens"] for one in lengths] == [2, 4]
    for one in lengths:
        assert f"{one['protocol']['new_tokens']} generated tokens" in shown
        assert one["states"].keys() == {"documents", "set"}
        for state, speedup in (("documents", 2.6033), ("set", 1.1308)):  # by MACs of these lengths
            there = one["states"][state]
            gap_of_method = there["gap"]["superposition"]
            assert gap_of_method["theoretical_speedup"] == pytest.approx(speedup, rel=1e-4)
            stages = there["stages"]["superposition"]
            for name, parts in gap_of_method["stages"].items():
                assert sum(parts.values()) == pytest.approx(stages[name]["seconds"])
