"""What an experiment takes: numbers by hand from shapes, spans of a measured machine, a run beside
its estimate.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from preloaded import Preloaded
from ragauge.assets.catalog import Entry, entries
from ragauge.cli._main import main
from ragauge.config.experiment import Config
from ragauge.config.launch.estimate import ESTIMATED_JOBS, say_estimate
from ragauge.config.loading import load, parse
from ragauge.cost.flop import call_macs
from ragauge.cost.hardware import Precision
from ragauge.cost.shapes import named
from ragauge.cost.trace import Call
from ragauge.datasets.nq_open import NQOpen
from ragauge.errors import UserError
from ragauge.measure.protocols import estimate as estimates
from ragauge.measure.protocols.estimate import Section, Span, duration, estimate, time_text
from ragauge.measure.speed import DATA_SHEET, Machine, MeasuredRates
from ragauge.testing import write_checkpoint

# Weights of MPT-7B: 32 layers of 12 x 4096^2, and 50,432 x 4096 of the embedding, which is the
# output matrix as well.
LAYERS_WEIGHTS = 32 * 12 * 4096**2
OUTPUT_WEIGHTS = 50_432 * 4096
SMALL_MODEL = {"smollm2-135m-instruct": {"dtype": "float32"}}
SHAPE = named("smollm2-135m-instruct")
# that the estimate of a decoder of two layers, whose passes cost their launches, may be off
FACTOR = 10


EXPERIMENT = {
    "run": "t",
    "models": {"mpt-7b-instruct": {"dtype": "bfloat16", "device": "cuda"}},
    "datasets": {"nq_open": {"limit": 10}},
    "methods": {"naive": {}, "prompt_cache": {}},
    "items": ["frontier"],
}


def experiment(**changes: Any) -> Config:
    return parse(EXPERIMENT | changes, "t.yaml")


def machine(cores: int = 2, s_per_mac: float = 1e-10) -> Machine:
    """One on which every multiply-accumulate takes as long."""
    span = Span(s_per_mac, s_per_mac, s_per_mac)
    rates = MeasuredRates(1, {1: span, 512: span})
    return Machine(
        "this machine", cores, rates, rates, start_s=1.0, process_bytes=10**9, encode_s=0.01
    )


def sections(config: Config, cores: int = 2) -> dict[str, Section]:
    return {section.name: section for section in estimate(config, machine(cores)).sections}


# --- lower bounds from shapes ---


def test_a_job_is_bound_by_compute_first_and_by_memory_later() -> None:
    """Naive on MPT-7B by hand: one pass over 2,914 tokens at the matrix rate, then 99 steps at the
    bandwidth.
    """
    work = estimate(experiment()).work[0]
    prefill = 2 * (2914 * LAYERS_WEIGHTS + OUTPUT_WEIGHTS + 2 * 2914**2 * 4096 * 32) / 312e12
    step_bytes = 2 * (LAYERS_WEIGHTS + OUTPUT_WEIGHTS) + 2 * 2 * 32 * 4096 * (2914 + 49 + 2)
    assert work.seconds.low == pytest.approx(10 * (prefill + 99 * step_bytes / 2.039e12), rel=1e-3)
    assert work.seconds.low == work.seconds.high
    assert work.count == 10
    assert work.kv_bytes >= 2 * 2 * 32 * 4096 * 2914


def test_downloads_are_half_precision_and_shared_archives_count_once() -> None:
    config = experiment(datasets={"longbench_qasper": {}, "short": {"dataset": "longbench_qasper"}})
    estimated = estimate(config).downloads_gb
    assert estimated["models"] == pytest.approx(2 * 6_649_286_656 / 1e9)
    assert estimated["data sets"] == pytest.approx(0.11, abs=0.005)


def test_a_text_beyond_the_context_is_cut() -> None:
    short = {"dataset": "longbench_qasper", "options": {"max_length": 3500}}
    config = experiment(models={"llama-2-7b-chat": {}}, datasets={"short": short})
    [prompt] = estimates.Estimator(config, DATA_SHEET).prompts_of(next(config.answers()))
    assert (
        sum(map(len, (prompt.preamble, *prompt.documents, prompt.query, prompt.task))) == 3500 - 128
    )


def test_training_is_four_passes_over_every_document() -> None:
    training = {
        "made": {
            "model": "llama-2-7b",
            "device": "cuda",
            "steps": 10,
            "accumulation": 2,
            "max_length": 1000,
        }
    }
    [estimated] = [
        one for one in estimate(experiment(training=training)).sections if one.name == "training"
    ]
    call = Call("train", (1000,), (0,), logits=(1000,))
    assert estimated.wall.low == pytest.approx(
        10 * 2 * 4 * 2 * call_macs(call, named("llama-2-7b")) / 312e12
    )
    training["made"]["minutes"] = 0.001
    [short] = [
        one for one in estimate(experiment(training=training)).sections if one.name == "training"
    ]
    assert short.wall == Span(0.06, 0.06, 0.06)


def test_generation_is_bound_by_memory_and_timed_once_more_than_it_is_recorded() -> None:
    # q and o, k and v of a third of the heads, the MLP
    layer = 2 * 960 * 960 + 2 * 960 * 320 + 3 * 960 * 2560
    weights = 4 * (32 * layer + 49_152 * 960)  # bytes in float32
    pipeline = {"schedule": "no_retrieval", "task": "generate", "tokens": 1024, "limit": 1}
    config = experiment(
        models={"smollm2-360m": {"dtype": "float32", "datasets": []}},
        databases={"far": {"corpus": "hf:org/unknown"}},
        pipelines={"often": {**pipeline, "trials": 5}, "once": pipeline},
    )
    often, once = estimate(config).work
    # besides keys and values
    assert often.seconds.low == pytest.approx(6 * 960 * weights / 2.039e12, rel=0.05)
    assert often.seconds.low == pytest.approx(6 * once.seconds.low)


def test_what_is_not_known_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"documents": 1000, "document_bytes": 446, "download_gb": 2.0}
    monkeypatch.setitem(
        entries(), "wikipedia", Entry(kind="corpus", source="hf:some/texts", **small)
    )
    config = experiment(
        models=SMALL_MODEL | {"far": {"source": "hf:org/nowhere-to-be-found"}},
        databases={"d": {"corpus": "wikipedia"}, "far": {"corpus": "hf:org/unknown"}},
        pipelines={"random": {}},
    )
    estimated = estimate(config, machine())
    assert "not included: answers: nq_open, far: the shape of the model is not known" in time_text(
        estimated
    )
    assert "not included: pipelines: random: no limit" in time_text(estimated)
    assert "not included: retrieval: far: its corpus is known when it is read" in time_text(
        estimated
    )
    assert " 1,000.0 " in estimates.text(estimated), "documents of the database of a known size"
    assert estimated.models[1]["memory_gb"] is None


def test_a_data_set_of_unknown_size_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NQOpen, "counts", None)
    [unknown] = estimate(experiment()).sections[0].unknown
    assert unknown == "nq_open, mpt-7b-instruct: the size of 'nq_open' is not known"


# --- a measured machine ---


def test_seconds_are_those_of_the_sizes_around() -> None:
    rates = MeasuredRates(1, {1: Span(1, 2, 3), 100: Span(1, 1, 1)})
    for count, expected in ((1, 2.0), (10, 1.5), (100, 1.0), (1000, 1.0)):
        call = Call("read", (count,), (0,))
        assert rates.seconds(call, SHAPE, Precision()).likely == pytest.approx(
            expected * call_macs(call, SHAPE)
        )


def test_twice_the_questions_are_twice_the_work() -> None:
    once, twice = (
        estimate(experiment(models=SMALL_MODEL, datasets={"nq_open": {"limit": n}}), machine())
        .work[0]
        .seconds
        for n in (10, 20)
    )
    assert twice.likely == pytest.approx(2 * once.likely)
    assert once.low < once.likely < once.high


def test_cores_share_the_answers_and_not_the_times() -> None:
    latency = {"methods": ["naive"], "dataset": "nq_open", "trials": 4}
    one, two = (
        sections(experiment(models=SMALL_MODEL, latency=latency), cores) for cores in (1, 2)
    )
    assert two["answers"].wall.likely < 0.8 * one["answers"].wall.likely
    assert two["times"].wall == one["times"].wall
    # where others disturb trials, they are repeated
    assert one["times"].wall.high > one["times"].wall.likely


def test_an_experiment_of_unknown_models_is_one_line() -> None:
    config = experiment(models={"far": {"source": "hf:org/nowhere-to-be-found"}})
    with pytest.raises(
        UserError, match="models: no shape is known before a model is downloaded: far"
    ):
        estimates.machine_for(config)


def test_one_line_has_the_time_and_what_is_not_estimated() -> None:
    latency = {"methods": ["naive"], "dataset": "nq_open", "trials": 4}
    config = experiment(
        models=SMALL_MODEL, latency=latency, databases={"far": {"corpus": "hf:org/unknown"}}
    )
    estimated = estimate(config, machine())
    line = estimates.brief(estimated)
    assert line.startswith(
        f"about {duration(estimated.wall.likely)} here ({duration(estimated.wall.low)} to "
    )
    assert line.endswith("; part of retrieval is not estimated")
    assert ": answers 9.1 " in line


def test_a_method_of_chunks_reads_its_volume_and_free_extraction_writes_it() -> None:
    methods = {
        "full_article": {},
        "short": {"method": "chunks", "ranker": "bm25"},
        "written": {"method": "free_extraction"},
        "dense": {"method": "chunks"},
    }
    datasets = {"longbench_qasper": {"limit": 5}}
    config = experiment(models=SMALL_MODEL, datasets=datasets, methods=methods)
    whole, short, written, dense = (
        work.seconds.likely for work in estimate(config, machine()).work
    )
    assert short < 0.3 * whole < whole < written
    assert dense - short > 5 * 0.01 * 100  # of each article more than a hundred windows are encoded


def test_without_its_gpu_an_experiment_gets_lower_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates.torch.cuda, "is_available", lambda: False)
    assert estimates.machine_for(experiment()) is DATA_SHEET


def test_a_run_takes_what_was_estimated(
    preloaded: Preloaded,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    # whose start is a part of the estimate
    monkeypatch.setattr(sys, "executable", str(preloaded.folder / "python"))
    write_checkpoint(tmp_path / "model")
    documents = [
        {"title": f"t{i}", "text": f"Tea number {i} grows here.", "is_gold": i == 0}
        for i in range(3)
    ]
    lines = [
        {"id": str(i), "question": f"Which tea {i}?", "answers": ["0"], "documents": documents}
        for i in range(8)
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    questions = {"dataset": "study", "data": str(tmp_path / "q.jsonl"), "max_new_tokens": 6}
    models = {"model": {"source": f"path:{tmp_path / 'model'}", "dtype": "float32"}}
    methods = {"naive": {}, "superposition": {}}
    settings = EXPERIMENT | {
        "models": models,
        "datasets": {"questions": questions},
        "methods": methods,
    }
    (tmp_path / "config.yaml").write_text(json.dumps(settings))
    command = [
        "run",
        "--config",
        "config.yaml",
        "--dataset",
        "questions",
        "--model",
        "model",
        "--threads",
        "1",
    ]
    for name in ("naive", "superposition"):
        assert main([*command, "--method", name, "--out", f"{name}.jsonl"]) == 0
    capsys.readouterr()
    assert main(["estimate", "config.yaml", "--json"]) == 0
    estimated = json.loads(capsys.readouterr().out.splitlines()[-1])
    for work in estimated["work"]:
        path = tmp_path / f"{work['name'].rpartition('/')[2]}.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        took = sum(record["online_s"] + (record["offline_s"] or 0.0) for record in records)
        assert work["count"] == 8
        assert work["seconds"]["low"] / FACTOR < took < work["seconds"]["high"] * FACTOR
    assert estimated["memory_gb"] > 0
    assert sum(estimated["disk_gb"].values()) == pytest.approx(16 * 3000 / 1e9)
    assert estimated["downloads_gb"]["models"] == 0
    said = []
    for jobs in (ESTIMATED_JOBS - 1, ESTIMATED_JOBS):
        say_estimate(load(Path("config.yaml")), Path("config.yaml"), jobs, 1)
        said.append(capsys.readouterr().err)
        assert "methods   2 variants: naive, superposition" in said[-1]
    assert ["about" in text for text in said] == [False, True]
