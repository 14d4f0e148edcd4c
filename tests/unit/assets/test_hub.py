"""Assets of the hub: the choice of files, the errors and the local folder."""

import pytest

from hub_server import BARE, COMMIT, MODEL, OLD
from ragauge.assets import resolver
from ragauge.assets.catalog import Entry
from ragauge.errors import UserError


def names(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} - {
        "ragauge-asset.json"
    }


def test_safetensors_settings_and_tokenizer_are_fetched_once_and_no_code(
    hub, monkeypatch, tmp_path
):
    folder = resolver.resolve("hf:org/model")
    assert names(folder) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert (folder / "model.safetensors").read_bytes() == MODEL["model.safetensors"]
    facts = resolver.describe("hf:org/model")
    assert facts["revision"] == COMMIT
    assert facts["bytes"] == sum(len(MODEL[n]) for n in names(folder))
    hub.repositories.clear()
    assert resolver.resolve("hf:org/model") == folder
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "another"))  # the hub's own cache has them
    assert names(resolver.resolve("hf:org/model")) == names(folder)


def test_bin_files_are_the_fallback(hub):
    assert names(resolver.resolve("hf:org/old")) == set(OLD)


def test_a_tokenizer_may_come_from_another_repository(hub, monkeypatch):
    entry = Entry(kind="model", source="hf:org/bare", tokenizer="org/model", template="plain")
    monkeypatch.setattr(resolver, "entries", lambda: {"bare": entry})
    folder = resolver.resolve("bare")
    assert names(folder) == {"config.json", "model.safetensors", "tokenizer.json"}
    assert (folder / "config.json").read_bytes() == BARE["config.json"]
    assert "org/model/model.safetensors" not in hub.sent


def test_a_wrong_hash_is_refused_and_the_file_removed(hub, tmp_path):
    hub.lies = True
    expected = r"model\.safetensors: expected [0-9a-f]{64}, found [0-9a-f]{64}"
    with pytest.raises(UserError, match=expected):
        resolver.resolve("hf:org/model")
    assert not list((tmp_path / "cache").rglob("blobs/" + "[0-9a-f]" * 64))


def test_errors_of_the_hub_are_one_line_with_the_alternative(hub):
    hub.gated.add("org/bare")
    cases = {
        "hf:org/none": "no such repository, .*path:/folder",
        "hf:org/bare": "http.*/org/bare, .*hf auth login",
        "hf:org/empty": r"\*\.safetensors nor pytorch_model\*\.bin",
    }
    for source, expected in cases.items():
        with pytest.raises(UserError, match=rf"^[^\n]*{source}: [^\n]*{expected}[^\n]*$"):
            resolver.resolve(source)


def test_a_hub_out_of_reach_is_said_so(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"hf:org/model: .*http://127.0.0.1:9: .*path:/folder"):
        resolver.resolve("hf:org/model")
