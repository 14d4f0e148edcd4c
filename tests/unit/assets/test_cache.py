"""What is kept on disk: seen, verified and pruned, and nothing else."""

import os
import time
from pathlib import Path

import pytest

from json_lines import last_value
from ragauge.assets import cache, store
from ragauge.cli import _main

DAY_S = 24 * 3600


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with an asset used a hundred days ago, one used now, a table of kernels, and files of
    somebody else.
    """
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home"
    for name, days in (("old-0123456789", 100), ("new-0123456789", 0)):
        for path in store.Store(folder).build(folder / "pypi" / name, _fill).iterdir():
            os.utime(path, (time.time() - days * DAY_S,) * 2)
    (folder / "kernels").mkdir()
    (folder / "kernels" / "cpu-2-threads-0123456789.json").write_text("{}")
    for foreign in (
        "notes/mine.txt",
        "pypi/thesis/chapter.txt",
        "kernels/notes.json",
        "datasets/thesis.jsonl",
    ):
        (folder / foreign).parent.mkdir(parents=True, exist_ok=True)
        (folder / foreign).write_text("mine")
        os.utime(folder / foreign, (0, 0))
    return folder


def _fill(folder):
    (folder / "weights.bin").write_bytes(b"w" * 1000)
    return {"source": "test"}


def run_cache(capsys, *arguments):
    assert _main.main(["cache", *arguments, "--json"]) == 0
    return last_value(capsys.readouterr().out)


def names(found):
    return sorted(Path(one["path"]).name for one in found["entries"])  # type: ignore[attr-defined]


def snapshot(folder):
    return {path: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def test_the_list_has_what_is_ours(home, capsys):
    found = run_cache(capsys, "list")
    sizes = {Path(one["path"]).name: one["bytes"] for one in found["entries"]}  # type: ignore[attr-defined]
    assert sizes.keys() == {"cpu-2-threads-0123456789.json", "new-0123456789", "old-0123456789"}
    manifest = (home / "pypi" / "old-0123456789" / store.MANIFEST).stat().st_size
    assert sizes["old-0123456789"] == 1000 + manifest
    assert found["bytes"] == sum(sizes.values())


def test_pruning_by_age_removes_what_is_old_and_ours(home, capsys):
    before = snapshot(home)
    assert names(run_cache(capsys, "prune", "--older-than-days", "30")) == ["old-0123456789"]
    assert snapshot(home) == before
    run_cache(capsys, "prune", "--older-than-days", "30", "--remove")
    left = {path: size for path, size in before.items() if "old-0123456789" not in path.parts}
    assert snapshot(home) == left
    assert not (home / "pypi" / "old-0123456789").exists()


def test_age_and_size_together():
    entries = [cache.CacheEntry("pypi", Path(str(day)), 10, -day * DAY_S) for day in (1, 5, 9)]
    assert cache.to_prune(entries, 0.0, 7, None) == [entries[2]]
    assert cache.to_prune(entries, 0.0, 7, 15) == [entries[2], entries[1]]
    assert cache.to_prune(entries, 0.0, None, None) == []


def test_a_changed_file_is_found_and_looking_is_no_use_of_it(home, capsys):
    assert run_cache(capsys, "verify")["damaged"] == {}
    assert names(run_cache(capsys, "prune", "--older-than-days", "30")) == ["old-0123456789"]
    weights = home / "pypi" / "new-0123456789" / "weights.bin"
    weights.write_bytes(b"w" * 999 + b"x")
    assert _main.main(["cache", "verify"]) == 2
    captured = capsys.readouterr()
    assert "weights.bin" in captured.out
    assert captured.err.count("\n") == 1


def test_a_symbolic_link_is_not_followed(home, tmp_path, capsys):
    elsewhere = store.Store(tmp_path / "elsewhere").build(tmp_path / "elsewhere" / "a" / "b", _fill)
    (home / "pypi" / "linked").symlink_to(elsewhere)
    run_cache(capsys, "prune", "--keep-gb", "0", "--remove")
    assert (elsewhere / "weights.bin").exists()
    assert (home / "notes" / "mine.txt").exists()


def test_a_folder_that_lost_its_mark_meanwhile_is_left_alone(home):
    [one] = [each for each in cache.entries(home) if each.path.name == "old-0123456789"]
    (one.path / store.MANIFEST).unlink()
    with pytest.raises(ValueError, match="not made by ragauge"):
        cache.discard(one)
    assert (one.path / "weights.bin").exists()


def test_entries_of_a_document_store(home, tmp_path, capsys):
    from ragauge.engines.spans import Row
    from ragauge.engines.store import DocumentStore
    from tiny_models import tiny_lm

    folder = tmp_path / "documents"
    lm = tiny_lm()
    lm.documents = DocumentStore(folder, "tiny", 10**9)
    lm.extend(lm.new_cache(3), [Row([5, 6, 7], [0.0, 1.0, 2.0])], stage="documents", offline=True)
    [entry] = folder.iterdir()
    (folder / "thesis.safetensors").write_bytes(b"mine")
    named = ("--document-store", str(folder))
    assert entry.name in names(run_cache(capsys, "list", *named))
    assert run_cache(capsys, "verify", *named)["damaged"] == {}
    entry.write_bytes(entry.read_bytes()[:-1] + b"\1")
    assert _main.main(["cache", "verify", *named]) == 2
    assert "not the bytes that were written" in capsys.readouterr().out
    run_cache(capsys, "prune", "--keep-gb", "0", "--remove", *named)
    assert [path.name for path in folder.iterdir()] == ["thesis.safetensors"]
    assert _main.main(["cache", "list", "--document-store", str(tmp_path / "none")]) == 2
