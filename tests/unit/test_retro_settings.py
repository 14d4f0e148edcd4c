"""The section `pipelines` of a configuration: defaults, and mistakes told in one line with their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ragauge.cli import main
from ragauge.errors import UserError
from ragauge.experiment import schema
from ragauge.generation.schedule import KINDS, Schedule
from ragauge.generation.settings import PipelineSettings

BASE: dict[str, Any] = {
    "run": "x",
    "models": {"smollm2-135m-instruct": {}},
    "datasets": {"wiki_single": {}},
    "methods": {"naive": {}},
    "databases": {"wiki": {}},
}


def parsed(pipelines: dict[str, Any], **changes: Any) -> schema.Config:
    return schema.parse({**BASE, "pipelines": pipelines, **changes}, "c.yaml")


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_its_schedule_and_every_schedule_can_be_configured(kind: Any) -> None:
    made = parsed({kind: {}})
    assert made.pipelines[kind].asks == Schedule(kind).asks
    assert made.pipeline_model(made.pipelines[kind]) == "smollm2-135m-instruct"
    assert made.pipeline_database(made.pipelines[kind]) == "wiki"


@pytest.mark.parametrize(
    ("pipelines", "message"),
    [
        ({"retro": {"interval": 32}}, "c.yaml: pipelines.retro.interval: the schedule retro asks every 64"),
        ({"p": {"schedule": "piperag", "interval": 7}}, "c.yaml: pipelines.p.interval: 7 does not divide"),
        ({"retro": {"nprobe": "hide"}}, "c.yaml: pipelines.retro.nprobe: hide is of the schedule piperag alone"),
        ({"retro": {"nprobe": 0}}, "c.yaml: pipelines.retro.nprobe: must be at least 1, not 0"),
        (
            {"retro": {"form": "cross_attention"}},
            "c.yaml: pipelines.retro.form: cross_attention reads nothing before it was trained; give retrofit_minutes",
        ),
        (
            {"retro": {"form": "cross_attention", "retrofit_minutes": 8.0, "reach": 0}},
            "c.yaml: pipelines.retro.form: reach and bias are of the form joint alone, not of cross_attention",
        ),
        (
            {"retro": {"form": "cross_attention", "retrofit_minutes": 8.0, "engine": "onnx"}},
            "pipelines.retro.engine: onnx reads neighbours by the forms joint and retro, not by cross_attention",
        ),
        ({"retro": {"form": "cross"}}, "c.yaml: pipelines.retro.form: must be"),
        ({"retro": {"index": "iv"}}, "unknown index 'iv'; did you mean 'ivf'?"),
        ({"retro": {"model": "llama"}}, "c.yaml: pipelines.retro.model: unknown model 'llama'"),
        ({"retro": {"database": "wikis"}}, "did you mean 'wiki'?"),
        ({"retro": {"intervall": 8}}, "did you mean 'interval'?"),
        ({"piprag": {}}, "c.yaml: pipelines.piprag.schedule: must be"),
        ({"retro": {"form": "retro"}}, "pipelines.retro.task: perplexity of random weights says nothing"),
        ({"retro": {"weights": "w.pt"}}, "pipelines.retro.weights: are of the form retro alone, not of joint"),
        (
            {"retro": {"form": "retro", "task": "generate", "retrofit_minutes": 8.0}},
            "pipelines.retro.retrofit_minutes: trains a decoder",
        ),
    ],
)
def test_mistakes_name_their_place(pipelines: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        parsed(pipelines)
    assert message in str(error.value)


def test_onnx_runs_a_decoder_in_float32() -> None:
    half: dict[str, Any] = {"smollm2-135m-instruct": {"dtype": "bfloat16"}}
    assert parsed({"retro": {"engine": "onnx"}}).pipelines["retro"].engine == "onnx"
    with pytest.raises(UserError, match=r"c.yaml: pipelines.retro.engine: onnx runs a decoder in float32, not in bflo"):
        parsed({"retro": {"engine": "onnx"}}, models=half)


def test_an_exported_decoder_is_given_where_the_engine_is_onnx(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        yaml.safe_dump({**BASE, "pipelines": {"none": {"schedule": "random", "engine": "onnx"}, "random": {}}})
    )
    common = ["pipeline", "--config", str(path), "--database", str(tmp_path), "--out", str(tmp_path / "x.jsonl")]
    assert main([*common, "--pipeline", "none"]) == 2
    assert "--pipeline none: needs --onnx, by its engine onnx" in capsys.readouterr().err
    assert main([*common, "--pipeline", "random", "--onnx", str(tmp_path)]) == 2
    assert "--pipeline random: takes no --onnx, by its engine torch" in capsys.readouterr().err


def test_a_pipeline_needs_a_database() -> None:
    with pytest.raises(UserError, match="needs a chunk database"):
        parsed({"retro": {}}, databases={})


def test_what_settings_refuse_a_schedule_refuses() -> None:
    for interval in range(1, 65):
        for kind in KINDS:
            settings = PipelineSettings(schedule=kind, interval=interval)
            if settings.problem():
                with pytest.raises(UserError):
                    Schedule(kind, interval)
            else:
                Schedule(kind, interval)
