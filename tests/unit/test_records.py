"""Files of records: whatever interrupts a run, doing it again gives the file of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ragauge.errors import UserError
from ragauge.io import records
from ragauge.io.folders import file_sha256
from ragauge.io.records import Record, Writer

KEYS = [f"q{i}" for i in range(6)]
SETTINGS = {"method": "bm25", "top_k": 2}


def answered(key: str, text: str = "x\u2028é", **changes: Any) -> Record:
    fields = {"status": "ok", "question": "who", "answers": ["me"], "gold": [0], "documents": 2, "prompt_sha256": "0"}
    return Record.model_validate({"key": key, "text": text + key, "saliency": [0.1, None], **fields, **changes})


def run(out: Path, keys: list[str] = KEYS, settings: dict[str, Any] = SETTINGS, **options: Any) -> list[str]:
    """A whole run; gives the keys that were asked."""
    asked = []
    with Writer(out, settings, keys, **options) as writer:
        for key in keys:
            if key not in writer.done:
                writer.append(answered(key))
                asked.append(key)
        writer.finish({"host": "here"})
    return asked


def in_child(work: Callable[[], Any]) -> int:
    """The pid of a forked process that does the work; its exit status is 0, or 2 after a UserError."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except UserError:
        status = 2
    finally:
        os._exit(status)


@pytest.fixture
def undisturbed(tmp_path: Path) -> bytes:
    run(tmp_path / "undisturbed.jsonl")
    return (tmp_path / "undisturbed.jsonl").read_bytes()


def test_a_finished_run(tmp_path: Path) -> None:
    out = tmp_path / "new" / "x.jsonl"
    assert run(out) == KEYS
    assert [r.key for r in records.read(out)] == KEYS
    assert records.read(out)[0] == answered("q0")
    meta = json.loads((tmp_path / "new" / "x.meta.json").read_text())
    assert meta.pop("sha256") == file_sha256(out)
    assert meta == {"version": 1, "host": "here", "fingerprint": SETTINGS, "counts": {"records": 6, "failed": 0}}
    assert sorted(p.name for p in out.parent.iterdir()) == ["x.jsonl", "x.meta.json"]


def test_a_finished_run_again_touches_nothing(tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    run(out)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
    assert run(out) == []
    assert {p: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == before


def test_a_finished_run_lends_its_records_to_another_limit(tmp_path: Path, undisturbed: bytes) -> None:
    out = tmp_path / "x.jsonl"
    run(out, KEYS[:2])
    assert run(out) == KEYS[2:]
    assert out.read_bytes() == undisturbed
    assert run(out, KEYS[:3]) == []
    assert [r.key for r in records.read(out)] == KEYS[:3]


DISK_OPERATIONS = ("fsync", "replace", "unlink")


def die_at(operation: int, after: bool) -> None:
    """From now on the given disk operation of this process, counted from 0, is its last."""
    left = iter(range(operation, -1, -1))

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **named: Any) -> Any:
            last = next(left) == 0
            if last and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **named)
            if last:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return wrapped

    for name in DISK_OPERATIONS:
        setattr(os, name, dying(getattr(os, name)))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("earlier", ["nothing", "a shorter run", "another run"])
def test_killed_at_every_disk_operation(tmp_path: Path, undisturbed: bytes, earlier: str, after: bool) -> None:
    operation, killed = 0, True
    while killed:
        out = tmp_path / f"{operation}.jsonl"
        if earlier == "a shorter run":
            run(out, KEYS[:2])
        if earlier == "another run":
            run(out, settings={"method": "naive"})
        again = earlier == "another run"

        def work(out: Path = out, operation: int = operation, again: bool = again) -> None:
            die_at(operation, after)
            run(out, overwrite=again)

        killed = os.waitstatus_to_exitcode(os.waitpid(in_child(work), 0)[1]) == -signal.SIGKILL
        run(out, overwrite=again)
        assert out.read_bytes() == undisturbed
        assert sorted(p.suffix for p in tmp_path.glob(f"*{operation}.*")) == [".json", ".jsonl"]
        operation += 1
    assert operation > 12  # of six questions, each with a sync


def test_killed_at_random_until_it_is_through(tmp_path: Path) -> None:
    keys, out = [f"q{i}" for i in range(300)], tmp_path / "x.jsonl"
    chance = random.Random(0)
    kills = 0
    while not out.exists() and kills < 200:
        pid = in_child(lambda: run(out, keys))
        time.sleep(chance.uniform(0.0, 0.03))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        kills += 1
    run(out, keys)
    run(tmp_path / "undisturbed.jsonl", keys)
    assert out.read_bytes() == (tmp_path / "undisturbed.jsonl").read_bytes()
    assert kills > 1


def interrupted(out: Path, keys: list[str], settings: dict[str, Any] = SETTINGS) -> None:
    """A run that was left before it was finished."""
    with Writer(out, settings, KEYS) as writer:
        for key in keys:
            writer.append(answered(key))


def test_a_torn_last_line_is_dropped(tmp_path: Path, undisturbed: bytes) -> None:
    out = tmp_path / "x.jsonl"
    interrupted(out, KEYS[:2])
    partial = out.with_name("x.jsonl.partial")
    whole = partial.read_bytes()
    for cut in (1, 2, 40, len(whole.split(b"\n")[2]), len(whole) - 3, len(whole)):
        partial.write_bytes(whole[:-cut])
        asked = run(out)
        assert set(KEYS[1:]) <= set(asked) <= set(KEYS)
        assert out.read_bytes() == undisturbed
        out.unlink()


def test_a_partial_of_other_settings_is_moved_aside(
    tmp_path: Path, undisturbed: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    out, former = tmp_path / "x.jsonl", tmp_path / "former"
    for number, name in enumerate(("x.jsonl.partial", "x.2.jsonl.partial"), start=1):
        interrupted(out, KEYS[:number], {"method": "bm25", "top_k": 4})
        left = out.with_name("x.jsonl.partial").read_bytes()
        assert run(out) == KEYS
        told = f"it belongs to another run: top_k is 4 there, 2 here; its records are in {former / name}"
        assert told in caplog.text
        assert (former / name).read_bytes() == left
        assert out.read_bytes() == undisturbed
        out.unlink()
    interrupted(out, [], {"method": "bm25", "top_k": 4})  # nothing to keep
    assert run(out) == KEYS
    assert len(list(former.iterdir())) == 2


def test_finished_records_that_are_discarded_are_moved_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of other settings, of an unknown run, or beyond the limit of this one; each with what stood beside them."""
    out, former = tmp_path / "x.jsonl", tmp_path / "former"
    run(out)
    first = out.read_bytes()
    run(out, settings={"method": "naive"}, overwrite=True)
    assert f"{former / 'x.jsonl'}" in caplog.text
    assert (former / "x.jsonl").read_bytes() == first
    assert json.loads((former / "x.meta.json").read_bytes())["fingerprint"] == SETTINGS
    run(out, KEYS[:2], settings={"method": "naive"})
    assert "holds 4 records that this run does not ask for; it was moved to" in caplog.text
    assert [r.key for r in records.read(former / "x.2.jsonl")] == KEYS
    records.meta_path(out).unlink()
    out.write_text("precious")
    run(out, overwrite=True)
    assert (former / "x.3.jsonl").read_text() == "precious"
    assert sorted(p.name for p in former.iterdir()) == sorted(
        ["x.jsonl", "x.meta.json", "x.2.jsonl", "x.2.meta.json", "x.3.jsonl"]
    )


def test_records_of_a_newer_version_are_refused_by_name_and_left(tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    told = f"records of version 99, and this ragauge reads them up to version {records.VERSION}; use a newer ragauge"
    run(out)
    meta = json.loads(records.meta_path(out).read_bytes())
    records.meta_path(out).write_text(json.dumps({**meta, "version": 99}))
    before = out.read_bytes()
    for overwrite in (False, True):
        with pytest.raises(UserError, match=f"{out}: {told}"):
            run(out, overwrite=overwrite)
    with pytest.raises(UserError, match=f"{out}: {told}"):
        records.read(out)
    assert out.read_bytes() == before
    other = tmp_path / "y.jsonl"
    interrupted(other, KEYS[:2])
    partial = other.with_name("y.jsonl.partial")
    header, *lines = partial.read_text().split("\n")
    partial.write_text("\n".join([json.dumps({**json.loads(header), "version": 99}), *lines]))
    before = partial.read_bytes()
    with pytest.raises(UserError, match=f"{partial}: {told}"):
        run(other)
    assert partial.read_bytes() == before


def test_records_of_before_there_was_a_version_are_read(tmp_path: Path, undisturbed: bytes) -> None:
    out = tmp_path / "x.jsonl"
    run(out)
    meta = json.loads(records.meta_path(out).read_bytes())
    del meta["version"]
    records.meta_path(out).write_text(json.dumps(meta))
    assert run(out) == []
    interrupted(tmp_path / "y.jsonl", KEYS[:2])
    partial = tmp_path / "y.jsonl.partial"
    header, *lines = partial.read_text().split("\n")
    partial.write_text("\n".join([json.dumps({"fingerprint": json.loads(header)["fingerprint"]}), *lines]))
    assert run(tmp_path / "y.jsonl") == KEYS[2:]
    assert (tmp_path / "y.jsonl").read_bytes() == undisturbed


def test_processes_that_die_at_a_question_are_counted(tmp_path: Path) -> None:
    """Not those that end in order, nor at a question that has its record by then."""
    out = tmp_path / "x.jsonl"

    def dies() -> None:
        with Writer(out, SETTINGS, KEYS) as writer:
            for key in KEYS[:2]:
                if key not in writer.done:
                    writer.begin(key)
                    writer.append(answered(key))
            writer.begin("q2")
            writer.begin("q2")  # asked again, alone: one death
            os.kill(os.getpid(), signal.SIGKILL)

    def counted() -> dict[str, int]:
        with Writer(out, SETTINGS, KEYS) as writer:
            return dict(writer.died)

    assert counted() == {}
    for times in (1, 2, 3):
        assert os.WTERMSIG(os.waitpid(in_child(dies), 0)[1]) == signal.SIGKILL
        assert counted() == {"q2": times}
        assert counted() == {"q2": times}  # it ended in order
    with suppress(KeyboardInterrupt), Writer(out, SETTINGS, KEYS) as writer:
        writer.begin("q3")
        raise KeyboardInterrupt
    assert counted() == {"q2": 3}
    assert run(out) == KEYS[2:]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.jsonl", "x.meta.json"]


def test_a_finished_file_of_other_settings_is_kept(tmp_path: Path, undisturbed: bytes) -> None:
    out = tmp_path / "undisturbed.jsonl"
    with pytest.raises(UserError, match=r"another run: top_k is 2 there, 4 here; use --overwrite or another --out"):
        run(out, settings={"method": "bm25", "top_k": 4})
    assert out.read_bytes() == undisturbed
    assert run(out, settings={"method": "bm25", "top_k": 4}, overwrite=True) == KEYS


def test_a_finished_file_without_provenance_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    out.write_text("precious")
    for meta in (None, "{", "[]"):
        if meta:
            (tmp_path / "x.meta.json").write_text(meta)
        with pytest.raises(UserError, match=r"unknown run \(x\.meta\.json is missing or not valid JSON\)"):
            run(out)
    assert out.read_text() == "precious"


def test_two_writers(tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    with Writer(out, SETTINGS, KEYS):
        with pytest.raises(UserError, match="another process is writing this file"):
            run(out)
        assert os.waitstatus_to_exitcode(os.waitpid(in_child(lambda: run(out)), 0)[1]) == 2
    assert run(out) == KEYS


def test_a_file_that_may_not_grow(tmp_path: Path, undisturbed: bytes) -> None:
    out = tmp_path / "x.jsonl"

    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))
        run(out)

    assert os.waitstatus_to_exitcode(os.waitpid(in_child(work), 0)[1]) == 2
    partial = out.with_name("x.jsonl.partial").read_bytes()
    assert partial.endswith(b"}\n")  # what did not fit was taken back
    kept = len(partial.splitlines()) - 1
    assert 0 < kept < len(KEYS)
    assert run(out) == KEYS[kept:]
    assert out.read_bytes() == undisturbed


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 64 KiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path / "disk")]
    (tmp_path / "disk").mkdir()
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield tmp_path / "disk"
    subprocess.run(["umount", str(tmp_path / "disk")], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    out = small_disk / "x.jsonl"
    (small_disk / "filler").write_bytes(bytes(40_000))
    with pytest.raises(UserError, match=r"x\.jsonl\.partial: No space left on device"):
        run(out, [f"q{i}" for i in range(500)])
    kept = out.with_name("x.jsonl.partial").read_bytes().splitlines()
    (small_disk / "filler").unlink()
    keys = [f"q{i}" for i in range(len(kept) + 1)]
    assert run(out, keys) == keys[len(kept) - 1 :]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "Invalid JSON"),
        ('{"key": "a"}', "status: Field required"),
        (answered("a").model_dump_json()[:-1] + ',"extra":1}', "extra: Extra inputs are not permitted"),
        (answered("a").model_dump_json().replace('"documents":2', '"documents":"two"'), "documents: Input should be"),
    ],
)
def test_a_foreign_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(answered("q0").model_dump_json() + "\n" + line + "\n")
    with pytest.raises(UserError) as error:
        records.read(path)
    assert str(error.value).startswith(f"{path}:2: not a record: ")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_finished_file_that_was_cut_or_changed_is_told(tmp_path: Path, undisturbed: bytes) -> None:
    path = tmp_path / "undisturbed.jsonl"
    lines = undisturbed.splitlines(keepends=True)
    for content in (b"".join(lines[:-1]), undisturbed.replace(b"q0", b"q9", 1)):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"undisturbed\.jsonl: not as it was finished"):
            records.read(path)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.jsonl: No such file"):
        records.read(tmp_path / "none.jsonl")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file: (File exists|Not a directory)"):
        run(tmp_path / "file" / "x.jsonl")


def test_an_unfinished_run_cannot_be_finished(tmp_path: Path) -> None:
    with Writer(tmp_path / "x.jsonl", SETTINGS, KEYS) as writer, pytest.raises(RuntimeError, match="6 questions"):
        writer.finish({})


# ---- parts of a run


def parts_of(folder: Path, count: int = 3, **options: Any) -> list[Path]:
    paths = [folder / f"{part}-of-{count}.jsonl" for part in range(count)]
    for part, path in enumerate(paths):
        run(path, KEYS[part * len(KEYS) // count : (part + 1) * len(KEYS) // count], **options)
    return paths


@pytest.mark.parametrize("count", [1, 2, 3, 6, 9])
def test_gathered_parts_are_the_file_of_one_run(tmp_path: Path, undisturbed: bytes, count: int) -> None:
    out = tmp_path / "all.jsonl"
    records.gather(parts_of(tmp_path, count), out)
    assert out.read_bytes() == undisturbed
    meta = records.read_meta(out)
    assert meta is not None
    assert meta["fingerprint"] == SETTINGS
    assert meta["counts"] == {"records": len(KEYS), "failed": 0}
    assert len(meta["parts"]) == count


def test_what_the_parts_ran_on_stands_beside_them(tmp_path: Path) -> None:
    paths = parts_of(tmp_path, 2)
    for path, cpu, peak in zip(paths, ("A", "B"), (5, 7), strict=True):
        meta = records.read_meta(path)
        assert meta is not None
        given = {**meta, "provenance": {"cpu": cpu, "threads": 1}, "peak_memory_bytes": peak}
        records.meta_path(path).write_text(json.dumps(given))
    records.gather(paths, tmp_path / "all.jsonl")
    meta = records.read_meta(tmp_path / "all.jsonl")
    assert meta is not None
    assert meta["provenance"] == {"cpu": "A / B", "threads": 1}
    assert meta["peak_memory_bytes"] == 7
    assert [part["cpu"] for part in meta["parts"]] == ["A", "B"]


def test_parts_that_do_not_fit_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    paths, out = parts_of(tmp_path, 2), tmp_path / "all.jsonl"
    with pytest.raises(UserError, match="question q0 is in another part as well"):
        records.gather([paths[0], paths[0]], out)
    other = tmp_path / "other.jsonl"
    run(other, KEYS[3:], settings={**SETTINGS, "top_k": 3})
    with pytest.raises(UserError, match=r"other.jsonl: from another run than .*: top_k is 3 there, 2 here"):
        records.gather([paths[0], other], out)
    records.meta_path(paths[1]).unlink()
    with pytest.raises(UserError, match=r"1-of-2.jsonl: 1-of-2.meta.json is missing or not valid JSON; run"):
        records.gather(paths, out)
    with pytest.raises(UserError, match=r"none.jsonl: none.meta.json is missing"):
        records.gather([tmp_path / "none.jsonl"], out)
    assert not out.exists()
