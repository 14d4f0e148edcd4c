"""Costs from a shape alone and times on random weights, of prompts that the model's trained context
does not hold.
"""

import json

import pytest

import tiny_models
from ragauge.cli._main import main
from ragauge.config.protocols import LatencySettings
from ragauge.engines.shape_lm import ShapeLM
from ragauge.engines.store import MemoryStore
from ragauge.errors import UserError
from ragauge.measure import costing, timing
from ragauge.measure.protocols import latency
from ragauge.methods.base import making
from ragauge.testing import write_checkpoint

MACHINE = {
    "bandwidth_bytes_per_s": {"high": 1e10},
    "matmul_flop_per_s": {"float32": {"high": 1e11}},
    "load_share": 0.0,
}


def project(method, accounting="published", **options):
    made = making.make(method, **options)
    return costing.project(method, made, "mpt-7b-instruct", "nq_open", 1, accounting, "bfloat16")


def test_one_path_costs_what_the_plain_prompt_costs():
    """But for pairs of an earlier token with a later segment, which one dense pass multiplies and
    masks.
    """
    one = project("superposition", "total", factor=1, path_pruning=False)
    assert one["compute_cycles"] == pytest.approx(
        project("naive", "total")["compute_cycles"], rel=5e-3
    )


@pytest.mark.parametrize("kv", ["full", "int8_stored", "int4_stored"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("superposition", {"positions": "left_aligned"}),
        ("superposition", {"spacing": "corpus"}),
        ("prompt_cache", {}),
        ("epic", {}),
        ("parallel_experts", {}),
    ],
)
def test_the_bytes_of_what_is_prepared_are_those_that_a_store_holds(name, options, kv):
    """Of keys and values: preamble and documents, each an entry of its own."""
    method = making.make(name, **options)
    [prompt] = timing.with_corpus([tiny_models.tiny_prompt([9, 14, 5])])
    lm = tiny_models.tiny_lm(kv=kv)
    lm.documents = MemoryStore("x", 1 << 30)
    method.prepare(lm, prompt)
    entries = lm.documents._entries.values()
    assert sorted(len(entry.tensors["positions"]) for entry in entries) == [5, 7, 9, 14]
    stored = [t for e in entries for key, t in e.tensors.items() if key[0] in "kv"]
    shaped = ShapeLM(lm.shape, precision=lm.precision)
    report = costing.costs(name, method, shaped, prompt)
    assert report["offline_kv_bytes"] == sum(tensor.nbytes for tensor in stored)


def test_a_models_own_weights_are_timed_on_random_tokens(tmp_path):
    """The papers' CUDA protocol, `latency: {tokens: paper}`: no question is read."""
    counts = tmp_path / "counts.json"
    counts.write_text(json.dumps({"preamble": 5, "documents": [9, 9], "query": 5, "task": 3}))
    folder = write_checkpoint(tmp_path / "model", max_position_embeddings=64)
    command = f"time --methods naive --dataset nq_open --model {folder} --tokens {counts} --trials 1 --warmup 1"
    out = tmp_path / "latency.json"
    (tmp_path / "machine.json").write_text(json.dumps(MACHINE))
    command += f" --new-tokens 2 --machine {tmp_path / 'machine.json'} --allow-load --dtype float32 --out {out}"
    assert main(command.split()) == 0
    assert json.loads(out.read_text())["protocol"]["tokens"]["documents"] == [9, 9]


def test_unknown_token_counts_are_refused_where_the_protocol_is_read():
    with pytest.raises(ValueError, match=r"unknown token counts 'papers'.*did you mean 'paper'"):
        LatencySettings(methods=["naive"], dataset="nq_open", tokens="papers")


@pytest.mark.parametrize(
    ("option", "configured", "allowed"),
    [
        ([], False, False),
        ([], None, True),
        (["--allow-load"], False, True),
        (["--no-allow-load"], None, False),
    ],
)
def test_other_load_is_allowed_by_the_protocol_or_by_the_option(
    option,
    configured,
    allowed,
    tmp_path,
    monkeypatch,
):
    timed = []

    def noted(variants, bench, settings, **_):
        timed.append(settings.allow_load)
        raise UserError("nothing is timed here")

    monkeypatch.setattr(latency, "measure_latency", noted)
    monkeypatch.setattr(timing, "bench_of_questions", lambda *_: None)
    protocol = {"methods": ["naive"], "dataset": "nq_open"} | (
        {} if configured is None else {"allow_load": configured}
    )
    config = {
        "run": "t",
        "models": {"m": {"source": "smollm2-135m-instruct"}},
        "datasets": {"nq_open": {}},
    }
    config |= {"methods": {"naive": {}}, "latency": protocol}
    (tmp_path / "t.yaml").write_text(json.dumps(config))
    common = ["--config", str(tmp_path / "t.yaml"), "--dataset", "nq_open", "--model", "m"]
    assert main(["time", *common, *option, "--out", str(tmp_path / "o.json")]) == 2
    assert timed == [allowed]


def test_what_is_prepared_is_costed_apart():
    report = project("superposition", "total", top_k=1)
    assert report["flop"] + report["offline_flop"] == 2 * report["compute_cycles"]
    assert report["offline_kv_bytes"] == 2 * 32 * 4096 * (43 + 2834) * 2
    assert report["kv_bytes"] >= report["offline_kv_bytes"]
    naive = project("naive", "total")
    assert naive["trace"] == [{"stage": "prompt", "lengths": (2914,), "past": (0,), "logits": (1,)}]
    assert naive["offline_flop"] == naive["offline_kv_bytes"] == 0
    assert naive["theoretical_speedup"] == 1.0
