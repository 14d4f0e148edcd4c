"""What an experiment takes: the committed tables are the command's, and their numbers follow from the shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ragauge.cli import main
from ragauge.cost.shapes import named
from ragauge.datasets.nq_open import NQOpen
from ragauge.errors import UserError
from ragauge.evaluation import needs
from ragauge.experiment.loading import load, parse

# Weights of MPT-7B: 32 layers of 12 x 4096^2, and 50,432 x 4096 of the embedding, which is the output matrix as well.
LAYERS_WEIGHTS, OUTPUT_WEIGHTS = 32 * 12 * 4096**2, 50_432 * 4096


def experiment(**changes: Any) -> Any:
    data = {
        "run": "t",
        "models": {"mpt-7b-instruct": {"dtype": "bfloat16", "device": "cuda"}},
        "datasets": {"nq_open": {"limit": 10}},
        "methods": {"naive": {}, "prompt_cache": {}},
    }
    return parse(data | changes, "t.yaml")


@pytest.mark.parametrize("name", ["paper", "gpu"])
def test_the_page_holds_what_the_command_prints(name: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["needs", str(root / "configs/papers" / f"{name}.yaml")]) == 0
    printed = capsys.readouterr().out
    page = (root / "docs" / "paper-configuration.md").read_text(encoding="utf-8")
    assert f"## configs/papers/{name}.yaml\n\n{printed}" in page, f"run `ragauge needs configs/papers/{name}.yaml`"


def test_a_job_is_bound_by_compute_first_and_by_memory_later() -> None:
    """Naive on MPT-7B by hand: one pass over 2,914 tokens at the matrix rate, then 99 steps at the bandwidth."""
    job = needs.job_floor(experiment(), next(experiment().answers()))
    prefill = 2 * (2914 * LAYERS_WEIGHTS + OUTPUT_WEIGHTS + 2 * 2914**2 * 4096 * 32) / 312e12
    step_bytes = 2 * (LAYERS_WEIGHTS + OUTPUT_WEIGHTS) + 2 * 2 * 32 * 4096 * (2914 + 49 + 2)
    assert job.seconds == pytest.approx(10 * (prefill + 99 * step_bytes / 2.039e12), rel=1e-3)
    assert job.questions == 10
    assert job.kv_bytes >= 2 * 2 * 32 * 4096 * 2914


def test_downloads_are_half_precision_and_shared_archives_count_once() -> None:
    config = experiment(datasets={"longbench_qasper": {}, "short": {"dataset": "longbench_qasper"}})
    text = needs.markdown(config)
    assert "| models | 13.3 |" in text  # 6,649,286,656 weights of two bytes
    assert "| data sets | 0.11 |" in text


def test_a_text_beyond_the_context_is_cut() -> None:
    short = needs.mean_prompt(named("llama-2-7b"), "longbench_qasper", 3372)
    assert sum(map(len, (short.preamble, *short.documents, short.query, short.task))) == 3372


def test_a_model_without_a_known_shape_has_no_hours(tmp_path: Path) -> None:
    config = experiment(models={"mine": {"source": f"path:{tmp_path}"}})
    assert needs.job_floor(config, next(config.answers())).seconds is None
    assert f"| `mine` | `path:{tmp_path}` |  |" in needs.markdown(config)


def test_training_is_four_passes_over_every_document() -> None:
    training = {"made": {"model": "llama-2-7b", "device": "cuda", "steps": 10, "accumulation": 2, "max_length": 100}}
    text = needs.markdown(experiment(training=training))
    assert "| `made` | `llama-2-7b` | 1 | 0.00 | 0.0 |" in text


def test_a_data_set_of_unknown_size_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NQOpen, "counts", None)
    with pytest.raises(UserError, match=r"datasets\.nq_open: the size of 'nq_open' is not known; known: longbench"):
        needs.markdown(experiment())


@pytest.mark.parametrize("name", ["config.yaml", "configs/ci/smoke.yaml", "configs/reference/superposition.yaml"])
def test_other_experiments_can_be_asked(name: str, root: Path) -> None:
    if name.endswith("superposition.yaml") and not (root.parent / "shared").exists():
        pytest.skip("the samples are not there")
    assert "at the least" in needs.markdown(load(root / name))
