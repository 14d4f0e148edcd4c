"""The latency protocol on a tiny decoder, the machine's measurements, and rooflines by hand."""

import json
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass

import psutil
import pytest
import torch

from ragauge.cost import latency, machine, tokens
from ragauge.cost.flop import attention_macs, call_macs
from ragauge.cost.hardware import Precision
from ragauge.cost.machine import Load, competing_load
from ragauge.cost.roofline import call_bytes, floor_seconds, model_bytes, product_seconds
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call
from ragauge.engines import Limits, random_lm
from ragauge.errors import UserError
from ragauge.methods import make
from ragauge.prompts import Prompt

SHAPE = Shape("llama", 64, 32, (4,) * 2, (2,) * 2, 8, (64,) * 2, True, 256, "rope")
LIMITS = Limits(max_new_tokens=3, ignore_stop=True)
RATE = {"median": 1.0, "low": 1.0, "high": 1e9, "n": 1}
MACHINE = {"bandwidth_bytes_per_s": RATE, "matmul_flop_per_s": {"float32": RATE}}


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch):
    """A trial that another process disturbed is repeated at once."""
    monkeypatch.setattr(latency, "PAUSE_S", 0.0)


@pytest.fixture(scope="module")
def lm():
    return random_lm(SHAPE)


@pytest.fixture(scope="module")
def prompt():
    return Prompt(**tokens.random_segments(tokens.TokenCounts(4, (9, 7, 8), 5, 3), SHAPE.vocab))


def _run(lm, prompts, **options):
    variants = {"naive": make("naive"), "k1": make("superposition", top_k=1)}
    settings = {"limits": LIMITS, "trials": 4, "machine": MACHINE, "allow_load": True} | options
    return latency.run(variants, prompts, lm, **settings)


def test_every_variant_has_every_trial_with_its_costs(lm, prompt):
    result = _run(lm, [prompt])
    assert result["protocol"]["cuda_graphs"] is None  # on a CPU there are none
    assert result["load"]["gpu"] is None
    for name in ("naive", "k1"):
        rows = [row for row in result["rows"] if row["variant"] == name]
        assert [row["trial"] for row in rows] == [0, 1, 2, 3]
        assert all(0 < row["first_token_s"] <= row["total_s"] for row in rows)
        assert all(0 < sum(row["stages"].values()) <= row["total_s"] for row in rows)
        assert all(row["flop"] > 0 and row["roofline_s"] > 0 for row in rows)
    assert list(rows[0]["stages"]) == ["query", "task", "decode"]
    assert result["summary"]["k1"]["total_s"]["n"] == 4
    assert list(result["stages"]["k1"]) == ["query", "task", "decode"]
    assert result["protocol"]["tokens"] == {"preamble": 4, "documents": [9, 7, 8], "query": 5, "task": 3}
    assert json.loads(json.dumps(result))["rows"] == result["rows"]


def test_methods_are_interleaved_in_a_seeded_order(lm, prompt):
    orders = [[row["variant"] for row in _run(lm, [prompt], seed=seed, trials=8)["rows"]] for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert all({a, b} == {"naive", "k1"} for a, b in zip(orders[0][::2], orders[0][1::2], strict=True))


def test_trials_are_divided_over_the_prompts(lm, prompt):
    rows = _run(lm, [prompt, prompt, prompt], trials=4)["rows"]
    assert [row["prompt"] for row in rows if row["variant"] == "naive"] == [0, 0, 1, 2]


def test_a_busy_machine_is_refused_and_its_rows_kept(lm, prompt, monkeypatch):
    monkeypatch.setattr(latency, "MAX_LOAD", -1.0)  # any machine is too busy
    result = _run(lm, [prompt], allow_load=False)
    assert "disturbed 8 of 8 trials" in result["refused"]
    assert result["summary"] == {}
    assert len(result["rows"]) == 8
    assert result["load"]["retried"] == 8  # bounded by one retry a trial over the whole run
    allowed = _run(lm, [prompt])
    assert allowed["summary"]["naive"]["total_s"]["n"] == 4
    assert (allowed["load"]["retried"], allowed["protocol"]["allow_load"]) == (0, True)
    assert result["protocol"]["allow_load"] is False


@pytest.mark.parametrize(
    ("disturbed", "load", "machine_share", "message"),
    [
        (1, Load(10.0, 0.0), 0.0, None),
        (2, Load(10.0, 0.0), 0.0, "disturbed 2 of 10 trials"),
        (0, Load(10.0, 1e3), 0.0, "of the machine's CPU time"),
        (0, Load(10.0, 0.0), 0.5, "while the machine's rates were measured"),
    ],
)
def test_what_is_refused(disturbed, load, machine_share, message):
    rows = [{"disturbed": i < disturbed} for i in range(10)]
    refused = latency.refusal_for_load(rows, load, machine_share)
    assert refused is None if message is None else message in refused


@dataclass(frozen=True)
class _Unable:
    def refusal(self, lm):
        return "needs a tokenizer"


def test_an_unsupported_method_is_reported_with_its_reason(lm, prompt):
    result = latency.run({"x": _Unable()}, [prompt], lm, limits=LIMITS, trials=1, machine=MACHINE)
    assert result["unsupported"] == {"x": "needs a tokenizer"}
    assert result["rows"] == []


def test_bad_protocols_are_user_errors(lm, prompt):
    with pytest.raises(UserError, match="at least one prompt"):
        _run(lm, [])
    with pytest.raises(UserError, match="trials: at least 1"):
        _run(lm, [prompt], trials=0)
    with pytest.raises(UserError, match="ends the response after 220 of 300"):
        _run(lm, [prompt], limits=Limits(300, ignore_stop=True))


def test_roofline_by_hand():
    decode = Call("decode", (1,), (10,), logits=(1,), steps=3)
    weights = 2 * (32 * 8 * (4 + 4 + 4) + 3 * 32 * 64) + 64 * 32
    cached = (10 + 2) + (11 + 2) + (12 + 2)
    assert call_bytes(decode, SHAPE, "float32") == 4 * (3 * weights + cached * 2 * 2 * 2 * 8)
    assert floor_seconds(decode, SHAPE, torch.float32, MACHINE) == call_bytes(decode, SHAPE, "float32") / 1e9
    encoder = Call("rank", (8,), (0,), macs=10**9)
    assert floor_seconds(encoder, SHAPE, "float32", MACHINE) == 2.0
    with pytest.raises(UserError, match="measured machine: unknown dtype 'bfloat16'"):
        floor_seconds(decode, SHAPE, "bfloat16", MACHINE)


def test_a_decoder_in_8_bits_moves_bytes_and_scales():
    decode = Call("decode", (1,), (10,), logits=(1,), steps=3)
    weights = 2 * (32 * 8 * (4 + 4 + 4) + 3 * 32 * 64) + 64 * 32
    rows = 2 * (8 * (4 + 2 + 2) + 32 + 2 * 64 + 32) + 64
    cached = (10 + 2) + (11 + 2) + (12 + 2)
    kept = 3 * (weights + 4 * rows)
    assert call_bytes(decode, SHAPE, Precision("float32", "int8")) == kept + 4 * cached * 2 * 2 * 2 * 8
    assert call_bytes(decode, SHAPE, Precision("float32", "int8", "int8")) == kept + cached * 2 * 2 * 2 * (8 + 4)


def test_8_bit_products_have_their_own_rate_and_attention_has_the_dtypes():
    machine = {"matmul_flop_per_s": {"float32": {"high": 1e9}, "int8": {"high": 4e9}}}
    call = Call("prompt", (5,), (0,))
    attention = attention_macs(SHAPE, 5, 0)
    products = (call_macs(call, SHAPE) - attention) / 4 + attention
    assert product_seconds(call, SHAPE, Precision(weights="int8"), machine) == pytest.approx(2 * products / 1e9)
    only = Precision(weights="int8_weight_only")
    assert product_seconds(call, SHAPE, only, machine) == product_seconds(call, SHAPE, "float32", machine)


def test_weights_in_memory():
    matrices = 2 * (32 * 8 * (4 + 4 + 4) + 3 * 32 * 64) + 64 * 32
    rows = 2 * (8 * (4 + 2 + 2) + 32 + 2 * 64 + 32) + 64
    norms = 5 * 32
    assert SHAPE.tied
    assert model_bytes(SHAPE, "bfloat16") == 2 * (matrices + norms)
    assert model_bytes(SHAPE, Precision("bfloat16", "int8")) == matrices + 4 * rows + 2 * (64 * 32 + norms)


def test_spread_of_few_and_of_missing_values():
    assert latency.spread([1.0, 2.0, 3.0, None]) == {"median": 2.0, "q1": 1.5, "q3": 2.5, "n": 3}
    assert latency.spread([4.0]) == {"median": 4.0, "q1": 4.0, "q3": 4.0, "n": 1}
    assert latency.spread([None]) == {"n": 0}


BURN = "import time; end = time.time() + 1.2\nwhile time.time() < end: pass"


def test_competing_load_sees_others_and_not_ourselves():
    orphan = 'p="$1"; "$p" -c "$2" >/dev/null 2>&1 &'  # outlives its shell, so it is nobody's child
    with competing_load() as load:
        subprocess.run(["/bin/sh", "-c", orphan, "sh", sys.executable, BURN], check=True)
        time.sleep(1.0)
    assert load.others_cpu_s > 0.4
    with competing_load() as load:
        end = time.perf_counter() + 0.3
        while time.perf_counter() < end:
            pass
    assert load.seconds >= 0.3


def test_load_adds_up_and_ignores_what_ticks_cannot_resolve():
    assert (Load(1.0, 0.5) + Load(2.0, 0.25)) == Load(3.0, 0.75)
    assert Load(0.1, 0.02).share == Load().share == 0.0


def test_measured_machine(measured_quickly):
    threads = torch.get_num_threads()
    found = machine.measure(threads=1)
    assert found["threads"] == 1
    assert torch.get_num_threads() == threads
    for rate in (found["bandwidth_bytes_per_s"], *found["matmul_flop_per_s"].values()):
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]


@pytest.mark.parametrize(("allow_load", "counts"), [(False, 0.3), (True, 0.8)])
def test_a_busy_machine_is_measured_again_unless_that_is_allowed(
    allow_load: bool, counts: float, measured_quickly, monkeypatch: pytest.MonkeyPatch
):
    shares = iter([0.8, 0.3, 0.6])
    monkeypatch.setattr(machine, "ATTEMPTS", 3)
    cores = psutil.cpu_count()
    monkeypatch.setattr(machine, "competing_load", lambda: nullcontext(Load(100.0, 100 * next(shares) * cores)))
    found = machine.measure(threads=1, allow_load=allow_load)
    assert found["load_share"] == pytest.approx(counts, abs=1e-3)
    assert len(list(shares)) == (2 if allow_load else 0)


def test_provenance_names_no_host_user_or_path():
    import getpass
    import socket

    text = json.dumps(machine.provenance())
    assert "torch" in text
    assert socket.gethostname() not in text.replace('"', " ").split()
    assert getpass.getuser() not in text.replace('"', " ").split()
    assert "/home" not in text
    assert str(machine.Path(machine.__file__).parent) not in text
