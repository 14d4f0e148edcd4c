"""What a forecast says: it holds within a generous factor for a run here, and follows what the experiment asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ragauge.cli import main
from ragauge.cost.flop import call_macs
from ragauge.cost.shapes import named
from ragauge.cost.trace import Call
from ragauge.errors import UserError
from ragauge.evaluation import forecast as made
from ragauge.evaluation.forecast_text import duration, text
from ragauge.evaluation.speed import Expected, Machine, Rate, Speeds
from ragauge.experiment import loading, schema
from tiny_checkpoint import write_checkpoint

FACTOR = 10  # that a forecast of a decoder of two layers, whose passes cost their launches, may be off
SHAPE = named("smollm2-135m-instruct")


def machine(cores: int = 2, s_per_mac: float = 1e-10) -> Machine:
    """One on which every multiply-accumulate takes as long."""
    span = Expected(s_per_mac, s_per_mac, s_per_mac)
    speeds = Speeds(1, "float32", (Rate(1, span), Rate(512, span)))
    return Machine(cores, speeds, speeds, 1.0, 10**9, 0.01, 1e-4, 0.0, 1.0)


def experiment(**changes: Any) -> schema.Config:
    data = {
        "run": "t",
        "models": {"smollm2-135m-instruct": {"dtype": "float32"}},
        "datasets": {"nq_open": {"limit": 10}},
        "methods": {"naive": {}, "bm25": {}},
        "items": ["frontier"],
    }
    return loading.parse(data | changes, "t.yaml")


def sections(config: schema.Config, **of: Any) -> dict[str, made.ForecastSection]:
    return {section.name: section for section in made.forecast(config, machine(**of)).sections}


def test_seconds_are_those_of_the_sizes_around() -> None:
    speeds = Speeds(1, "float32", (Rate(1, Expected(1, 2, 3)), Rate(100, Expected(1, 1, 1))))
    for tokens, expected in ((1, 2.0), (10, 1.5), (100, 1.0), (1000, 1.0)):
        call = Call("read", (tokens,), (0,))
        assert speeds.seconds(call, SHAPE).likely == pytest.approx(expected * call_macs(call, SHAPE))


def test_twice_the_questions_are_twice_the_work() -> None:
    once, twice = (sections(experiment(datasets={"nq_open": {"limit": n}}))["answers"] for n in (10, 20))
    assert twice.work.likely == pytest.approx(2 * once.work.likely)
    assert once.work.low < once.work.likely < once.work.high
    assert once.jobs == 2


def test_cores_share_the_answers_and_not_the_times() -> None:
    latency = {"methods": ["naive"], "dataset": "nq_open", "trials": 4}
    one, two = (sections(experiment(latency=latency), cores=cores) for cores in (1, 2))
    assert two["answers"].wall.likely < 0.8 * one["answers"].wall.likely
    assert two["times"].wall == one["times"].wall
    assert one["times"].wall.high > one["times"].wall.likely  # where others disturb trials, they are repeated


def test_what_is_not_known_is_said() -> None:
    config = experiment(models={"smollm2-135m-instruct": {}, "far": {"source": "hf:org/nowhere-to-be-found"}})
    found = made.forecast(config, machine())
    [answers] = [section for section in found.sections if section.name == "answers"]
    assert answers.unknown == ("nq_open, far: the shape of the model is not known before it is downloaded",)
    assert "not in it: answers: nq_open, far" in text(found)


def test_an_experiment_of_unknown_models_is_one_line() -> None:
    config = experiment(models={"far": {"source": "hf:org/nowhere-to-be-found"}})
    with pytest.raises(UserError, match="models: no shape is known before a model is downloaded: far"):
        made.measured(config)


def test_a_device_that_is_not_here_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made.torch.cuda, "is_available", lambda: False)
    config = experiment(models={"smollm2-135m-instruct": {"device": "cuda", "dtype": "bfloat16"}})
    with pytest.raises(
        UserError, match=r"models.smollm2-135m-instruct.device: 'cuda' is not on this machine; `ragauge"
    ):
        made.measured(config)


@pytest.mark.parametrize(
    ("seconds", "said"), [(40, "40 s"), (720, "12 min"), (12600, "3.5 h"), (172800 * 1.5, "3.0 days")]
)
def test_durations_are_in_words(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_a_forecast_is_compared_with_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_checkpoint(tmp_path / "model")
    documents = [{"title": f"t{i}", "text": f"Tea number {i} grows here.", "is_gold": i == 0} for i in range(3)]
    lines = [{"id": str(i), "question": f"Which tea {i}?", "answers": ["0"], "documents": documents} for i in range(8)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = {
        "run": "tiny",
        "models": {"model": {"source": f"path:{tmp_path / 'model'}", "dtype": "float32"}},
        "datasets": {"questions": {"dataset": "study", "data": str(tmp_path / "q.jsonl"), "max_new_tokens": 6}},
        "methods": {"naive": {}, "superposition": {}},
        "items": ["frontier"],
    }
    (tmp_path / "config.yaml").write_text(json.dumps(settings))
    for name in ("naive", "superposition"):
        out = f"results/tiny/answers/questions/model/{name}.jsonl"
        asked = ["--config", "config.yaml", "--method", name, "--dataset", "questions", "--model", "model"]
        assert main(["run", *asked, "--threads", "1", "--out", out]) == 0
    capsys.readouterr()
    assert main(["forecast", "config.yaml", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    took, work = found["took_s"]["answers"], found["sections"]["answers"]["work"]
    assert work["low"] / FACTOR < took < work["high"] * FACTOR
    assert work["low"] < work["likely"] < work["high"]
    assert found["memory_gb"] > 0
    assert found["disk_gb"] == pytest.approx(16 * 3000 / 1e9)
