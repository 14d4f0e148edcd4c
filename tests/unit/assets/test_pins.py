"""Pins: which sources give the same files to everybody, the keys that pin one, and lock files that
pin all of them.
"""

import hashlib
import json
import os
from pathlib import Path

import pytest

from hub_server import COMMIT, MODEL
from json_lines import last_value
from ragauge.assets import hub as hub_assets
from ragauge.assets import pins, resolver
from ragauge.cli._main import main
from ragauge.config import checks, loading, sources
from ragauge.config.launch.settings import write_settings
from ragauge.config.plan.plan import Plan
from ragauge.datasets.base import loader
from ragauge.errors import UserError
from ragauge.pipelines.database import hub as corpora
from ragauge.testing import write_questions
from served_site import BODY, Site, running

HASH = "0" * 64
OTHER = "b" * 40  # another commit


@pytest.fixture(autouse=True)
def no_lock(monkeypatch):
    """Whatever lock a test uses is in use no longer after it."""
    monkeypatch.setenv(pins.VARIABLE, "")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Go to another machine: its home and the hub's cache there are empty."""

    def go():
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "there" / "cache"))
        monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "there" / "home"))

    return go


@pytest.mark.parametrize(
    ("source", "pinned"),
    [
        ("minilm", True),
        ("bloomz-3b", False),
        ("hf:org/name", False),
        ("hf:org/name@main", False),
        (f"hf:org/name@{COMMIT}", True),
        ("https://host/m.gguf", False),
        (f"https://host/m.gguf#sha256={HASH}", True),
        ("retro", False),
        (f"path:{Path(__file__).parent}", True),
    ],
)
def test_what_is_pinned(source, pinned):
    assert resolver.is_pinned(source) is pinned


def written(path, **sections):
    """A configuration of one model and one data set, with other sections in place of its own."""
    data = {
        "models": {"smollm2-135m-instruct": {}},
        "datasets": {"wiki_single": {}},
        "methods": {"naive": {}},
    }
    path.write_text(json.dumps({"run": "small", "items": [], **data, **sections}))
    return path


def test_validate_names_what_is_not(tmp_path, capsys):
    databases = {"db": {"corpus": ["wikipedia", f"hf:org/texts@{COMMIT}"]}}
    models = {"smollm2-135m-instruct": {}, "bloomz-3b": {}}
    path = written(
        tmp_path / "small.yaml", models=models, datasets={"nq_open": {}}, databases=databases
    )
    assert main(["validate", str(path), "--json"]) == 0
    captured = capsys.readouterr()
    expected = ["bloomz-3b", "data set nq_open", "corpus hf:wikimedia/wikipedia:20231101.en"]
    assert last_value(captured.out)["unpinned"] == expected
    assert ", ".join(expected) in captured.err


# --- keys of a configuration ---


@pytest.mark.parametrize(
    ("section", "entry", "place"),
    [
        ("models", {"source": "hf:a/b@a b"}, "models.m.source: hf:a/b@a b: "),
        ("models", {"source": "https://h/m#sha256=1"}, "models.m.source: https://h/m#sha256=1: "),
        ("datasets", {"revision": "v1"}, "datasets.nq_open.revision: 'v1': "),
        ("datasets", {"sha256": "12"}, "datasets.nq_open.sha256: '12' "),
    ],
)
def test_what_pins_nothing_is_refused(section, entry, place, tmp_path):
    name = {"models": "m", "datasets": "nq_open"}[section]
    with pytest.raises(UserError, match=place):
        loading.load(written(tmp_path / "small.yaml", **{section: {name: entry}}))


def test_a_revision_of_a_model_is_fetched_and_no_other(hub):
    assert resolver.describe(f"hf:org/model@{COMMIT}")["fetched"] is False
    folder = resolver.resolve(f"hf:org/model@{COMMIT}")
    assert (folder / "model.safetensors").read_bytes() == MODEL["model.safetensors"]
    assert resolver.resolve("hf:org/model@main") != folder
    with pytest.raises(UserError, match=r"hf:org/model: .*no such revision"):
        resolver.resolve(f"hf:org/model@{OTHER}")
    found = resolver.fetch_pin("hf:org/model")
    assert resolver.resolve(f"hf:org/model@{COMMIT}#sha256={found.sha256}").is_dir()
    with pytest.raises(UserError, match=f"hf:org/model: .*{HASH}, found {found.sha256}"):
        resolver.resolve(f"hf:org/model@{COMMIT}#sha256={HASH}")


def test_a_data_sets_file_is_held_to_its_hash(tmp_path, capsys):
    official = write_questions(tmp_path / "nq.jsonl")
    right = hashlib.sha256(official.read_bytes()).hexdigest()
    ask = ["--dataset", "nq_open", "--out", str(tmp_path / "out.jsonl")]
    for sha256, code in ((right, 0), (HASH, 2)):
        entry = {"data": str(official), "sha256": sha256}
        path = written(tmp_path / "small.yaml", datasets={"nq_open": entry})
        assert fetched(path, *ask) == code
    assert f"expected {HASH}, found {right}" in capsys.readouterr().err


def test_a_revision_of_a_data_set_is_what_the_hub_is_asked_for(tmp_path, monkeypatch):
    import datasets as library

    requests = []

    class Loaded:
        def to_json(self, file, **_):
            file.write(b'{"id": "a"}\n')

    def load_dataset(**options):
        requests.append(options)
        return Loaded()

    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path))
    monkeypatch.setattr(library, "load_dataset", load_dataset)
    monkeypatch.setattr(
        hub_assets, "dataset_commit", lambda path, revision: {None: COMMIT, "v1": OTHER}[revision]
    )
    musique = loader.make("musique")
    plain = musique.official()
    assert musique.official(pins.Pin(revision="v1")) != plain
    locked = musique.fetched(pins.Pin(), lock=True)
    assert locked == pins.Pin(revision=COMMIT, sha256=hashlib.sha256(b'{"id": "a"}\n').hexdigest())
    assert [one.get("revision") for one in requests] == [None, "v1", COMMIT]
    with pytest.raises(UserError, match="wrong sha256 from the source of data set musique"):
        musique.official(pins.Pin(sha256=HASH))


# --- lock files ---


def fetched(path, *options):
    return main(["fetch", "--config", str(path), *options])


def locked(folder, source="hf:org/model"):
    """Write a configuration of a model and its lock."""
    path = written(folder / "small.yaml", models={"m": {"source": source}}, datasets={})
    assert fetched(path, "--lock") == 0
    return path


def test_a_lock_gives_its_commit_though_the_hub_moved_on(hub, tmp_path, elsewhere, capsys):
    path = locked(tmp_path)
    lock = pins.read(tmp_path / "small.lock.json")
    assert lock.assets == {"hf:org/model": resolver.fetch_pin("hf:org/model")}
    assert lock.assets["hf:org/model"].revision == COMMIT
    assert main(["validate", str(path)]) == 0
    captured = capsys.readouterr()
    assert "small.lock.json: 1 assets" in captured.out
    assert "not pinned" not in captured.err
    # of what was fetched before there was a lock
    assert fetched(path) == 0
    elsewhere()
    assert fetched(path) == 0
    hub.repositories["org/model"] = {**MODEL, "model.safetensors": b"other" * 10}
    hub.commit = OTHER
    assert fetched(path) == 0  # it is here
    weights = resolver.resolve("hf:org/model") / "model.safetensors"
    assert weights.read_bytes() == MODEL["model.safetensors"]


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    with running(Site()) as server:
        yield server


def test_a_file_that_changed_at_its_address_is_refused(
    site,
    tmp_path,
    elsewhere,
    monkeypatch,
    capsys,
):
    source = site.url("model.bin")
    monkeypatch.setattr(checks, "SOURCE_PREFIXES", ("http://",))
    path = locked(tmp_path, source)
    assert fetched(path) == 0
    assert len(site.asked) == 1
    elsewhere()
    site.body = b"other"
    assert fetched(path) == 2
    right, wrong = (hashlib.sha256(body).hexdigest() for body in (BODY, site.body))
    assert f"from {source}: expected {right}, found {wrong}" in capsys.readouterr().err
    assert not list((tmp_path / "there").rglob("model.bin"))


def test_what_a_lock_lacks_or_contradicts_is_refused(tmp_path):
    pin = pins.Pin(revision=COMMIT)
    path = tmp_path / "small.lock.json"
    pins.write(path, pins.Lock(assets={"hf:a/b": pin}, corpora={"hf:a/c": pin}))
    pins.activate_lock(written(tmp_path / "small.yaml"))
    assert os.environ[pins.VARIABLE] == str(path)
    with pytest.raises(UserError, match=f"hf:org/other: not in {path}; "):
        resolver.resolve("hf:org/other")
    assert resolver.is_pinned("minilm")  # which the catalog pins
    assert corpora.revision("hf:a/c") == COMMIT
    with pytest.raises(UserError, match=f"{OTHER}, not {COMMIT}"):
        pins.required_pin("assets", "hf:a/b", pins.Pin(revision=OTHER))
    assert pins.required_pin("assets", "hf:a/b", pins.Pin(revision="main")) == pin


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "[^\n]*JSON"),
        ('{"version": 2}', "version: Input should be 1"),
        ('{"assets": {"a": {"sha256": "1"}}}', "assets.a.sha256: "),
    ],
)
def test_a_lock_that_is_none_is_refused_in_one_line(text, message, tmp_path):
    (tmp_path / "small.lock.json").write_text(text)
    with pytest.raises(UserError, match=rf"small\.lock\.json: {message}[^\n]*$"):
        loading.load(written(tmp_path / "small.yaml"))


def test_a_run_copies_the_lock_to_its_settings_and_refuses_what_was_fetched_otherwise(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path / "small.yaml", models={"bloomz-3b": {"dtype": "float32"}}, datasets={})
    plan = Plan(loading.load(path))
    settled = tmp_path / "results" / "small" / "config.yaml"
    pins.write(pins.lock_path(path), pins.Lock(assets={"bloomz-3b": pins.Pin(revision=COMMIT)}))
    write_settings(plan.config, settled, [str(path)])
    assert os.environ[pins.VARIABLE] == str(settled.with_name("config.lock.json"))
    manifest = tmp_path / "resources" / "assets" / "bloomz-3b.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"pin": {"revision": COMMIT}}))
    sources.check_fetched(plan)
    manifest.write_text(json.dumps({"pin": {"revision": OTHER}}))
    with pytest.raises(UserError, match=f"bloomz-3b.json: .*{COMMIT}, not {OTHER}"):
        sources.check_fetched(plan)
    pins.lock_path(path).unlink()
    write_settings(plan.config, settled, [str(path)])
    assert not settled.with_name("config.lock.json").exists()
