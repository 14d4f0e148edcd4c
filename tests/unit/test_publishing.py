"""A run for MLflow, for Weights & Biases and as an RO-Crate, read back by their own packages where there are any."""

from __future__ import annotations

import hashlib
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

from ragauge import cli
from synthetic_run import MODEL, write_latency, write_variant

CONFIG = {
    "run": "small",
    "models": {MODEL: {"source": MODEL}},
    "datasets": {"nq_open": {"dataset": "nq_open"}},
    "methods": {"naive": {"method": "naive"}, "sp": {"method": "superposition", "top_k": 2}},
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run's configuration, results and reports."""
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "results" / "small"
    write_variant(results, "naive", "naive", [True, True, False, None])
    write_variant(results, "sp", "superposition", [True, False, False, False], params={"top_k": 2})
    write_latency(results, {"naive": [4.0, 5.0, 6.0], "sp": [1.0, 2.0, 3.0]})
    (results / "answers" / "x.jsonl.partial").write_text("unfinished")
    reports = tmp_path / "reports" / "small"
    reports.mkdir(parents=True)
    (reports / "a table.csv").write_text("a,b\n")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    return tmp_path


def published(form: str, *more: str) -> Path:
    assert cli.main(["publish", form, "--config", "config.yaml", "--out", f"out/{form}", "--quiet", *more]) == 0
    return Path("out", form)


# Of `sp`, which is right on one of four questions. The mean of four drawn with replacement is k/4 with the chances of
# Binomial(4, 1/4): 0.32 for k = 0, and 0.949 up to k = 2, 0.996 up to k = 3: the 2.5% and 97.5% points are 0 and 3/4.
EXPECTED = {"best_subspan_em": 0.25, "best_subspan_em_low": 0.0, "best_subspan_em_high": 0.75, "total_s": 2.0}


# --- MLflow ---


def of_store(folder: Path) -> dict[str, Path]:
    """The runs of MLflow's file store by their names."""
    found = {yaml.safe_load(path.read_text())["run_name"]: path.parent for path in folder.glob("mlruns/*/*/meta.yaml")}
    return {name.rpartition("/")[2]: path for name, path in found.items()}


def test_mlflow_has_a_run_a_variant_with_intervals_parameters_and_provenance(run: Path) -> None:
    (experiment,) = published("mlflow").glob("mlruns/*/meta.yaml")
    assert yaml.safe_load(experiment.read_text())["name"] == "small"
    stored = of_store(Path("out/mlflow"))
    assert set(stored) == {"naive", "sp"}
    folder = stored["sp"]
    for name, value in EXPECTED.items():
        _, shown, step = (folder / "metrics" / name).read_text().split(" ")
        assert (float(shown), step) == (value, "0")
    assert (folder / "params" / "options.top_k").read_text() == "2"
    assert (folder / "params" / "engine.dtype").read_text() == "bfloat16"
    assert (folder / "tags" / "machine").read_text() == "Invented CPU, 2 threads"
    assert (folder / "tags" / "packages.torch").read_text() == "2.13.0"
    assert (folder / "artifacts" / "sp.jsonl").read_bytes() == (
        run / "results/small/answers/nq_open" / MODEL / "sp.jsonl"
    ).read_bytes()
    assert float((stored["naive"] / "metrics" / "failed").read_text().split(" ")[1]) == 1


def test_the_same_records_have_the_same_identity(run: Path) -> None:
    first = {name: path.name for name, path in of_store(published("mlflow")).items()}
    assert {name: path.name for name, path in of_store(published("mlflow")).items()} == first
    write_variant(run / "results/small", "sp", "superposition", [True, True], params={"top_k": 3})
    second = {name: path.name for name, path in of_store(published("mlflow")).items()}
    assert second["naive"] == first["naive"]
    assert second["sp"] != first["sp"]


def test_mlflow_itself_reads_the_store(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    tracking = pytest.importorskip("mlflow.tracking", reason="MLflow is not installed: pip install mlflow-skinny")
    client = tracking.MlflowClient((published("mlflow") / "mlruns").resolve().as_uri())
    (experiment,) = [one for one in client.search_experiments() if one.name == "small"]
    found = {one.info.run_name.rpartition("/")[2]: one for one in client.search_runs([experiment.experiment_id])}
    assert set(found) == {"naive", "sp"}
    assert found["sp"].info.status == "FINISHED"
    assert EXPECTED.items() <= found["sp"].data.metrics.items()
    assert found["sp"].data.params["options.top_k"] == "2"
    assert found["sp"].data.tags["machine"] == "Invented CPU, 2 threads"
    assert {one.path for one in client.list_artifacts(found["sp"].info.run_id)} == {"sp.jsonl", "sp.meta.json"}


# --- Weights & Biases ---


def test_wandb_is_named_where_it_is_not_installed(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert cli.main(["publish", "wandb", "--config", "config.yaml", "--out", "out"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "pip install wandb" in told
    assert not Path("out").exists()


def messages(path: Path) -> Iterator[bytes]:
    """The messages of a `.wandb` file: LevelDB's log, blocks of 32 KiB after a header of 7 bytes."""
    data, at, parts = path.read_bytes(), 7, list[bytes]()
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        parts.append(data[at + 7 : at + 7 + size])
        at += 7 + size
        if kind in (1, 4):  # whole, or the last of several
            yield b"".join(parts)
            parts = []


def test_wandb_writes_runs_that_it_can_sync(run: Path) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases is not installed: pip install wandb")
    from wandb.proto import wandb_internal_pb2

    values: dict[str, dict[str, Any]] = {}
    for path in published("wandb").rglob("*.wandb"):
        name, found = "", dict[str, Any]()
        for message in messages(path):
            record = wandb_internal_pb2.Record.FromString(message)
            name = record.run.display_name or name
            found |= {one.key: json.loads(one.value_json) for one in record.run.config.update}
            found |= {one.key or ".".join(one.nested_key): json.loads(one.value_json) for one in record.history.item}
        values[name.rpartition("/")[2]] = found
    assert set(values) == {"naive", "sp"}
    assert EXPECTED.items() <= values["sp"].items()
    assert values["sp"]["options.top_k"] == 2
    assert values["sp"]["provenance"]["machine"] == "Invented CPU, 2 threads"


# --- RO-Crate ---


def graph(folder: Path) -> dict[str, dict[str, Any]]:
    described = json.loads((folder / "ro-crate-metadata.json").read_text())
    assert described["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    entities: list[dict[str, Any]] = described["@graph"]
    found = {entity["@id"]: entity for entity in entities}
    assert len(found) == len(entities), "an entity is described once"
    return found


def test_a_crate_has_what_the_specification_requires(run: Path) -> None:
    folder = published("crate")
    found = graph(folder)
    descriptor, root = found["ro-crate-metadata.json"], found["./"]
    assert descriptor["@type"] == "CreativeWork"
    assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    assert descriptor["about"] == {"@id": "./"}
    assert root["@type"] == "Dataset"
    assert {"name", "description", "datePublished", "license"} <= set(root)
    for entity in found.values():
        for value in entity.values():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, dict) and not one["@id"].startswith("https://w3id.org/"):
                    assert one["@id"] in found, one


def test_every_file_of_a_crate_is_described_with_its_hash(run: Path) -> None:
    folder = published("crate")
    found = graph(folder)
    parts = {part["@id"] for part in found["./"]["hasPart"]}
    assert "reports/a%20table.csv" in parts
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {unquote(part) for part in parts} == there - {"ro-crate-metadata.json", ".ragauge"}
    assert not [name for name in there if name.endswith(".partial")]
    for part in parts:
        content = (folder / unquote(part)).read_bytes()
        assert found[part]["contentSize"] == str(len(content))
        assert found[part]["sha256"] == hashlib.sha256(content).hexdigest()
    actions = [entity for entity in found.values() if entity["@type"] == "CreateAction"]
    assert {action["result"]["@id"] for action in actions} <= parts
    assert len(actions) == 2


def test_a_licence_is_the_users_to_state(run: Path) -> None:
    stated = graph(published("crate", "--license", "CC-BY-4.0"))
    assert stated["./"]["license"] == {"@id": "https://spdx.org/licenses/CC-BY-4.0"}
    assert graph(published("crate"))["#license"]["name"] == "Not stated"


def test_the_package_rocrate_reads_it(run: Path) -> None:
    rocrate = pytest.importorskip("rocrate.rocrate", reason="rocrate is not installed: pip install rocrate")
    crate = rocrate.ROCrate(published("crate"))
    assert crate.root_dataset["name"] == "ragauge run small"
    assert {entity.type for entity in crate.data_entities} == {"File"}
    assert len(crate.get_by_type("CreateAction")) == 2


# Terms of the context of RO-Crate 1.1, which the validator would take from the network.
SCHEMA = (
    *("about", "contentSize", "datePublished", "description", "encodingFormat", "endTime", "hasPart", "instrument"),
    *("license", "mentions", "name", "object", "result", "softwareVersion"),
    *("CreateAction", "CreativeWork", "Dataset", "SoftwareApplication"),
)
TERMS = {
    "conformsTo": "http://purl.org/dc/terms/conformsTo",
    "File": "http://schema.org/MediaObject",
    **{term: f"http://schema.org/{term}" for term in SCHEMA},
}


def test_the_validator_of_ro_crate_finds_nothing_wrong(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = pytest.importorskip(
        "rocrate_validator.services",
        reason="not among the packages of `dev`, whose rich is newer than it takes: pip install roc-validator",
    )
    from rocrate_validator.models import Severity
    from rocrate_validator.utils.http import HttpRequester

    context = {"@context": TERMS}
    answer = SimpleNamespace(status_code=200, headers={"Content-Type": "application/ld+json"}, json=lambda: context)
    monkeypatch.setattr(HttpRequester, "get", lambda *_, **__: answer, raising=False)
    monkeypatch.setattr("rdflib.plugins.shared.jsonld.context.source_to_json", lambda *_, **__: (context, None))
    folder = published("crate")

    def issues() -> list[str]:
        settings = services.ValidationSettings(
            rocrate_uri=str(folder.resolve()),
            profile_identifier="ro-crate-1.1",
            requirement_severity=Severity.REQUIRED,
            abort_on_first=False,
        )
        return [issue.message for issue in services.validate(settings).get_issues()]

    assert not issues()
    described = folder / "ro-crate-metadata.json"
    described.write_text(described.read_text().replace('"datePublished"', '"dateGuessed"'))
    assert issues(), "the validator looks at nothing"


# --- the folder, and mistakes ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mlfow", "--config", "config.yaml", "--out", "o"], "did you mean 'mlflow'?"),
        (["mlflow", "--config", "config.yaml", "--out", "o", "--license", "MIT"], "--license: not valid with form"),
        (["mlflow", "--config", "config.yaml", "--out", "o", "--results", "none"], "none: holds no records"),
        (["crate", "--config", "config.yaml", "--out", "o", "--reports", "none"], "none: no such folder"),
        (["mlflow", "--config", "config.yaml", "--out", "results"], "holds files that ragauge did not make there"),
        (["mlflow", "--config", "config.yaml", "--out", "config.yaml"], "is a file where a folder is made"),
    ],
)
def test_a_mistake_is_one_line(
    run: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = cli.main(["publish", *arguments])
    except SystemExit as left:
        code = left.code
    told = capsys.readouterr().err
    assert (code, told.count("\n")) == (2, 1)
    assert message in told
    assert not Path("o").exists()
    assert (run / "results/small/answers").is_dir()
