"""A run as an RO-Crate, read back by the package rocrate."""

import hashlib
import json
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from rocrate.rocrate import ROCrate

from ragauge.cli import _main
from synthetic_run import MODEL, write_latency, write_variant
from tables import cases

CONFIG = {
    "run": "small",
    "models": {MODEL: {"source": MODEL}},
    "datasets": {"nq_open": {"dataset": "nq_open"}},
    "methods": {"naive": {"method": "naive"}, "sp": {"method": "superposition", "top_k": 2}},
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A folder with a run's configuration, results and reports."""
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "results" / "small"
    write_variant(results, "naive", "naive", [True, True, False, None])
    write_variant(results, "sp", "superposition", [True, False, False, False], params={"top_k": 2})
    (results / "answers" / "x.jsonl.partial").write_text("unfinished")
    reports = tmp_path / "reports" / "small"
    reports.mkdir(parents=True)
    (reports / "a table.csv").write_text("a,b\n")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    return tmp_path


def published(*more):
    assert (
        _main.main(
            ["report", "crate", "--config", "config.yaml", "--out", "out/crate", "--quiet", *more]
        )
        == 0
    )
    return Path("out/crate")


def graph(folder):
    described = json.loads((folder / "ro-crate-metadata.json").read_text())
    assert described["@context"][0] == "https://w3id.org/ro/crate/1.1/context"
    entities = described["@graph"]
    found = {entity["@id"]: entity for entity in entities}
    assert len(found) == len(entities), "an entity is described once"
    return found


def test_everything_that_a_crate_refers_to_is_described(run):
    entities = graph(published())
    assert {"name", "description", "datePublished", "license"} <= set(entities["./"])
    for entity in entities.values():
        for value in entity.values():
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, dict) and not one["@id"].startswith("https://w3id.org/"):
                    assert one["@id"] in entities, one


def test_every_file_of_a_crate_is_described_with_its_hash(run):
    folder = published()
    entities = graph(folder)
    parts = {part["@id"] for part in entities["./"]["hasPart"]}
    assert "reports/a%20table.csv" in parts
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {unquote(part) for part in parts} == there - {"ro-crate-metadata.json", ".ragauge"}
    assert not [name for name in there if name.endswith(".partial")]
    for part in parts:
        content = (folder / unquote(part)).read_bytes()
        assert entities[part]["contentSize"] == str(len(content))
        assert entities[part]["sha256"] == hashlib.sha256(content).hexdigest()
    actions = [entity for entity in entities.values() if entity["@type"] == "CreateAction"]
    assert {action["result"]["@id"] for action in actions} <= parts
    assert len(actions) == 2


def test_a_licence_is_the_users_to_state(run):
    stated = graph(published("--license", "CC-BY-4.0"))
    assert stated["./"]["license"] == {"@id": "https://spdx.org/licenses/CC-BY-4.0"}
    assert graph(published())["#license"]["name"] == "Not stated"


def test_the_package_rocrate_reads_it_and_a_crate_is_written_over_a_former_one(run):
    crate = ROCrate(published())
    assert crate.root_dataset["name"] == "ragauge run small"
    assert {entity.type for entity in crate.data_entities} == {"File"}
    assert len(crate.get_by_type("CreateAction")) == 2
    (run / "reports/small/a table.csv").unlink()
    assert "reports/a%20table.csv" not in graph(published())


@pytest.mark.parametrize(
    ("arguments", "message"),
    cases("""
[--out, o, --results, none] -> none: holds no records
[--out, o, --reports, none] -> none: no such folder
[--out, results] -> holds files that ragauge did not make there
[--out, busy] -> nq_open/smollm2-135m-instruct.json: other processes took 30%: not to be published
[--out, config.yaml] -> is a file where a folder is made
"""),
)
def test_a_mistake_is_one_line(run, arguments, message, capsys):
    if "busy" in arguments:
        write_latency(
            run / "results/small", {"naive": [1.0]}, load={"busy": "other processes took 30%"}
        )
    assert _main.main(["report", "crate", "--config", "config.yaml", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert not Path("o").exists()
    assert (run / "results/small/answers").is_dir()
