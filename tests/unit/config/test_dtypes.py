"""`dtype: auto`: the fastest type of the machine, decided once for a run, and kept by its records."""

import json

import pytest
import yaml

from ragauge.config import dtypes, loading
from ragauge.config.launch.settings import write_settings
from ragauge.engines import tuning
from ragauge.engines.kernels.choice import Operation
from ragauge.errors import UserError
from ragauge.io.records import recorded_dtype

AUTO = {"source": "smollm2-135m-instruct"}
PIPELINES = {
    "databases": {"wiki": {}},
    "pipelines": {
        "p": {"schedule": "piperag", "model": "exported", "engine": "onnx", "tokens": 128}
    },
}


def config(**models):
    parts = {"run": "r", "models": models, "items": []}
    return loading.parse({**parts, **(PIPELINES if "exported" in models else {})}, "test")


@pytest.fixture
def answers(monkeypatch):
    """What the machine finds fastest, from the last one on; the list of what it was asked."""
    asked = []

    def found(device, threads=None, allowed=()):
        asked.append((device, tuple(allowed)))
        return str(allowed[-1])

    monkeypatch.setattr(tuning, "fastest_dtype", found)
    return asked


def test_settings_hold_what_auto_stood_for_and_the_next_run_takes_it(
    answers, monkeypatch, tmp_path
):
    path = tmp_path / "config.yaml"
    write_settings(config(a=AUTO, b={**AUTO, "dtype": "float16"}), path)
    assert dtypes_of(path) == {"a": "bfloat16", "b": "float16"}
    monkeypatch.setattr(tuning, "fastest_dtype", lambda *_, **__: "float32")
    write_settings(config(a=AUTO, c=AUTO), path)
    assert dtypes_of(path) == {"a": "bfloat16", "c": "float32"}
    write_settings(config(a={**AUTO, "dtype": "float32"}), path)  # a stated one comes first
    assert dtypes_of(path) == {"a": "float32"}


def dtypes_of(path):
    return {
        label: model["dtype"] for label, model in yaml.safe_load(path.read_text())["models"].items()
    }


def test_a_model_that_onnx_runs_is_float32(answers, tmp_path):
    resolved = dtypes.resolved(config(exported=AUTO), tmp_path / "none.yaml")
    assert resolved.models["exported"].dtype == "float32"
    assert answers == [("cpu", ("float32",))]


def test_records_keep_their_dtype(tmp_path):
    out = tmp_path / "a.jsonl"
    assert recorded_dtype(out) is None
    (tmp_path / "a.meta.json").write_text(
        json.dumps({"fingerprint": {"engine": {"dtype": "float32"}}})
    )
    assert recorded_dtype(out) == "float32"
    (tmp_path / "a.jsonl.partial").write_text(
        json.dumps({"fingerprint": {"dtype": "bfloat16"}}) + "\n"
    )
    assert recorded_dtype(out) == "bfloat16"
    for damaged in ("[]", '{"fingerprint": 3}'):
        (tmp_path / "a.jsonl.partial").write_text(f"{damaged}\n")
        assert recorded_dtype(out) is None


def test_the_least_sum_of_reading_and_writing_wins(monkeypatch, capsys):
    monkeypatch.delenv("RAGAUGE_DTYPE")
    # whatever `--quiet` a test before gave
    monkeypatch.setattr("ragauge.io.progress.hidden", False)
    for prompt_s, token_s, expected in (
        (1.0, 0.1, "bfloat16"),
        (1.0, 0.3, "float32"),
        (9.0, 0.1, "float32"),
    ):
        seconds = {
            "float32": {"prompt_s": 2.0, "token_s": 0.2},
            "bfloat16": {"prompt_s": prompt_s, "token_s": token_s},
        }
        monkeypatch.setattr(tuning, "dtype_speeds", lambda threads, seconds=seconds: seconds)
        assert tuning.fastest_dtype("cpu") == expected
        assert f"dtype auto: {expected} (" in capsys.readouterr().err
    assert tuning.fastest_dtype("cpu", allowed=("bfloat16",)) == "bfloat16"


def test_a_types_speed_follows_from_its_kernels(monkeypatch):
    """Prompts of 1,000 tokens by products of 256 rows and attentions of 512 queries; a token by 8
    layers' time.
    """
    rows = {Operation.MANY_ROWS: 0.256, Operation.ATTENTION: 0.512**2, Operation.ONE_TOKEN: 0.08}
    tables = {
        dtype: {o: {"kernel": "plain", "seconds": {"plain": factor * s}} for o, s in rows.items()}
        for dtype, factor in (("float32", 1), ("bfloat16", 2))
    }
    monkeypatch.setattr(tuning, "load_or_measure_tables", lambda dtypes, again=False: tables)
    speeds = tuning.dtype_speeds()
    assert speeds["float32"] == pytest.approx({"prompt_s": 2.0, "token_s": 0.01})
    assert speeds["bfloat16"] == pytest.approx({"prompt_s": 4.0, "token_s": 0.02})


def test_the_environment_says_it_or_is_refused(monkeypatch):
    monkeypatch.setenv("RAGAUGE_DTYPE", "bfloat16")
    assert tuning.fastest_dtype("cpu") == "bfloat16"
    monkeypatch.setenv("RAGAUGE_DTYPE", "half")
    with pytest.raises(UserError, match="RAGAUGE_DTYPE: unknown dtype 'half'"):
        tuning.fastest_dtype("cpu")
