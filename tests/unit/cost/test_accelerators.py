"""Predictions on accelerators: numbers by hand, and the committed times of an H100."""

import json
import re
from pathlib import Path

import pytest
import yaml

from json_lines import last_value
from ragauge.cli._main import main
from ragauge.cost import accelerators
from ragauge.cost.hardware import Precision
from ragauge.cost.shapes import named
from ragauge.cost.trace import Call
from tables import cases

HALF = Precision("bfloat16")
H100 = accelerators.known()["h100"]
MEASURED = Path(__file__).parents[3] / "benchmarks/results/h100/gpu.json"
# llama-2-7b in bfloat16: all layers and the output matrix; a token's keys and values
WEIGHTS = 2 * (32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32000 * 4096)
KV = 2 * 32 * 4096 * 2
EMBEDDING_AND_NORMS = 2 * (32000 * 4096 + 65 * 4096)
RATES = {
    "name": "mine",
    "source": "a test",
    "memory_bytes": "4e10",
    "bandwidth_bytes_per_s": 1e12,
    "matmul_flop_per_s": {"bfloat16": 1e14},
}


def answer(read, steps, read_before=0):
    calls = [Call("prompt", (read,), (read_before,), logits=(1,))]
    if read_before:
        calls.insert(0, Call("documents", (read_before,), (0,), offline=True))
    calls += [Call("decode", (1,), (read_before + read,), logits=(1,), steps=steps)] * bool(steps)
    return calls, KV * (read_before + read + steps)


def predicted(traces, price=None, accelerator=H100):
    """By state: the roofline's row, and that at the measured factors."""
    prediction = accelerators.predict(traces, named("llama-2-7b"), HALF, accelerator, price)
    rows = iter(prediction["rows"])
    return {row["read_before"]: (row, next(rows)) for row in rows}


def run(capsys, *options):
    command = ["cost", "--model", "llama-2-7b", *options]
    code = main(command)
    return code, capsys.readouterr()


def test_a_7b_model_decodes_by_hand():
    """One step reads the weights, and 1,001 keys and values, and writes one."""
    row, factored = predicted({"nothing": answer(1000, 1)})["nothing"]
    step_s = (WEIGHTS + 1002 * KV) / 3.35e12
    assert row["per_token_s"] == pytest.approx(step_s)
    assert factored["per_token_s"] == pytest.approx(1.71 * step_s)
    macs = 1000 * (WEIGHTS // 2 - 32000 * 4096) + 32000 * 4096 + 2 * 1000**2 * 32 * 4096
    assert row["first_token_s"] == pytest.approx(2 * macs / 989.4e12)
    assert factored["first_token_s"] == pytest.approx(1.81 * row["first_token_s"])


def test_answers_side_by_side_share_the_weights_and_fill_the_memory():
    row, _ = predicted({"nothing": answer(1000, 24)}, price=3.6)["nothing"]
    at_once = int((80e9 - WEIGHTS - EMBEDDING_AND_NORMS) // (1024 * KV))
    assert row["answers_at_once"] == at_once == 123
    decoding_s = sum((WEIGHTS + at_once * (1002 + s) * KV) / 3.35e12 for s in range(24))
    full_s = at_once * row["first_token_s"] + decoding_s
    assert row["requests_per_s"] == pytest.approx(at_once / full_s)
    assert row["cost_per_1000_answers"] == pytest.approx(full_s / at_once)  # 0.001 a second


def test_what_was_read_before_is_not_waited_for():
    states = predicted({"nothing": answer(1000, 9), "set": answer(8, 9, read_before=992)})
    row, _ = states["set"]
    assert row["first_token_s"] == pytest.approx((WEIGHTS + 1008 * KV) / 3.35e12)
    assert row["reading_before_s"] > 0 == states["nothing"][0]["reading_before_s"]


def test_the_measured_factors_give_the_committed_times_of_the_h100():
    committed = json.loads(MEASURED.read_text())["times"]
    times = {name: time["least"] for name, time in committed.items()}
    traces = {
        "read": answer(3000, 0),
        "written": answer(1000, 100),
        "together": answer(128, 63),
    }
    memory = H100.model_copy(
        update={"memory_bytes": WEIGHTS + EMBEDDING_AND_NORMS + 64.5 * (128 + 63) * KV}
    )
    read, written = (predicted({k: traces[k]})[k][1] for k in ("read", "written"))
    together = predicted({"together": traces["together"]}, accelerator=memory)["together"][1]
    assert read["first_token_s"] == pytest.approx(times["prefill"], rel=0.005)
    assert 100 * written["per_token_s"] == pytest.approx(
        times["decode"] - times["context"], rel=0.005
    )
    assert together["answers_at_once"] == 64
    assert 64 / together["requests_per_s"] == pytest.approx(times["side by side"], rel=0.005)


def test_the_command_line_predicts_every_state_in_its_last_line(capsys):
    options = ("--method", "naive", "--hardware", "h100", "--price", "2.5", "--json")
    code, captured = run(capsys, *options)
    assert code == 0
    prediction = last_value(captured.out)["prediction"]
    assert "not measured" in prediction["note"]
    assert prediction["hardware"]["source"]
    assert prediction["new_tokens"] == 100
    rows = prediction["rows"]
    assert [row["read_before"] for row in rows[::2]] == ["nothing", "documents", "set"]
    assert rows[0] == {**rows[2], "read_before": "nothing"}  # naive gains from the set alone
    assert rows[4]["first_token_s"] < rows[0]["first_token_s"] / 5
    assert all(row["cost_per_1000_answers"] > 0 for row in rows)
    code, captured = run(capsys, *options[:-1])
    assert code == 0
    assert "not measured" in captured.out


@pytest.mark.parametrize(
    ("change", "words"),
    cases("""
{memory_bytes: -1} -> memory_bytes
{bandwidth_bytes_per_s: fast} -> bandwidth_bytes_per_s
{matmul_flop_per_s: {fp8: 1000000000000000.0}} -> fp8
{memory: 1000000000.0} -> unknown key 'memory'; did you mean 'memory_bytes'?
{matmul_flop_per_s: {float16: 100000000000000.0}} -> mine: unknown dtype 'bfloat16'
{memory_bytes: 10000000000.0} -> 13.5 GB of weights
"""),
)
def test_a_file_that_does_not_fit_is_refused(capsys, tmp_path, change, words):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(RATES | change))
    code, captured = run(capsys, "--method", "naive", "--hardware", str(path))
    assert code == 2
    assert words in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--method", "naive", "--hardware", "h200"), "'h200'.*a100, h100, l40s.*YAML"),
        (("--method", "naive", "--price", "2"), "--hardware"),
        (("--published", "--hardware", "h100"), "--method"),
    ],
)
def test_unknown_hardware_and_options_without_it_are_refused(capsys, options, words):
    code, captured = run(capsys, *options)
    assert code == 2
    assert re.search(words, captured.err)
