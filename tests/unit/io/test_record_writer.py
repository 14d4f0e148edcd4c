"""Writing records: after any interruption, the same command gives the file of an undisturbed run."""

import os
import random
import resource
import signal

import pytest

from killed_processes import die_at, in_child
from ragauge.errors import UserError
from ragauge.io import records
from ragauge.io.files import UNFINISHED
from ragauge.io.record_writer import RecordWriter
from written_records import KEYS, SETTINGS, answered, run

OTHER = {"method": "bm25", "top_k": 4}


def files_of(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def kept_keys(out):
    return [record.key for record in records.read(out)]


def interrupted(out, keys, settings=SETTINGS):
    """Leave a run before it is finished; return its partial file."""
    with RecordWriter(out, settings, KEYS) as writer:
        for key in keys:
            writer.append(answered(key))
    return records.partial_path(out)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "x.jsonl"


def test_records_of_several_machines_have_all_in_their_provenance(out):
    """Of a killed run that went on elsewhere, and of one whose limit was raised there."""

    def provenance(machine, keys):
        run(out, keys, machine=machine)
        return records.read_meta(out).get("provenance", {})

    with RecordWriter(out, SETTINGS, KEYS, machine="a") as writer:
        writer.append(answered("q0"))
    assert provenance("a", KEYS[:2]) == provenance("b", KEYS[:2]) == {}
    assert provenance("b", KEYS[:3]) == {"cpu": "a / b", "gpu": None}
    assert provenance("c", KEYS) == {"cpu": "a / b / c", "gpu": None}


def test_another_limit_reuses_finished_records_and_moves_those_beyond_it_aside(
    tmp_path, out, undisturbed, caplog
):
    run(out, KEYS[:2])
    assert run(out) == KEYS[2:]
    assert out.read_bytes() == undisturbed
    assert run(out, KEYS[:3]) == []
    assert kept_keys(out) == KEYS[:3]
    [former] = (tmp_path / "former").glob("*.jsonl")
    assert "holds 3 records" in caplog.text
    assert str(former) in caplog.text
    assert kept_keys(former) == KEYS


# --- interruptions ---


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("earlier", ["nothing", "a shorter run", "another run"])
def test_killed_at_every_disk_operation(tmp_path, undisturbed, earlier, after, monkeypatch):
    # a killed process, unlike a power cut, loses nothing by it
    monkeypatch.setattr(os, "fsync", lambda file: None)
    operation = 0
    killed = True
    again = earlier == "another run"
    while killed:
        out = tmp_path / str(operation) / "x.jsonl"
        if earlier == "a shorter run":
            run(out, KEYS[:2])
        if again:
            run(out, settings={"method": "naive"})

        def work(out=out, operation=operation):
            die_at(operation, [(os, name) for name in ("fsync", "replace", "unlink")], after)
            run(out, overwrite=again)

        killed = in_child(work) == -signal.SIGKILL
        run(out, overwrite=again)
        assert out.read_bytes() == undisturbed
        left = [name for name in files_of(out.parent) if not name.endswith(UNFINISHED)]
        assert left == ["x.jsonl", "x.meta.json"]
        operation += 1
    assert operation > 12  # of six questions, each with a sync


@pytest.mark.parametrize("keys", [KEYS, KEYS[:3]])
def test_a_finished_file_that_changed_is_moved_aside_and_answered_again(
    tmp_path, out, undisturbed, keys, caplog
):
    run(out, keys)
    changed = out.read_bytes().replace(b'"x\xe2', b'"y\xe2', 1)
    out.write_bytes(changed)
    assert run(out) == KEYS
    assert out.read_bytes() == undisturbed
    [former] = (tmp_path / "former").glob("*.jsonl")
    assert former.read_bytes() == changed
    assert str(former) in caplog.text


def test_a_changed_byte_of_an_unfinished_file_costs_its_question_alone(out, undisturbed, caplog):
    whole = interrupted(out, KEYS[:4]).read_bytes()
    start = whole.index(b"\n") + 1
    rng = random.Random(3)
    for position in rng.sample(range(start, len(whole)), 40):
        content = bytearray(whole)
        content[position] ^= 1 << rng.randrange(7)
        if b"\n" in (content[position : position + 1], whole[position : position + 1]):
            continue  # other lines
        caplog.clear()
        records.partial_path(out).write_bytes(content)
        at = whole[start:position].count(b"\n")
        assert run(out) == [KEYS[at], *KEYS[4:]]
        assert out.read_bytes() == undisturbed
        assert "1 lines changed" in caplog.text
        out.unlink()


def test_failed_questions_that_are_asked_again_stand_once_in_the_unfinished_file(out, undisturbed):
    failed = answered("q1").model_copy(update={"status": "failed", "reason": "why"})
    with RecordWriter(out, SETTINGS, KEYS) as writer:
        for record in (answered("q0"), failed):
            writer.append(record)
    with RecordWriter(out, SETTINGS, KEYS) as writer:
        writer.forget_failed()
        writer.append(answered("q1"))
    assert run(out) == KEYS[2:]
    assert out.read_bytes() == undisturbed


def test_a_full_disk_keeps_whole_records(out, undisturbed):

    def work():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        run(out)

    assert in_child(work) == 2
    lines = records.partial_path(out).read_bytes().split(b"\n")
    assert lines.pop() == b""  # what did not fit was taken back
    written = len(lines) - 1
    assert 0 < written < len(KEYS)
    assert run(out) == KEYS[written:]
    assert out.read_bytes() == undisturbed


def test_two_writers(out):
    with RecordWriter(out, SETTINGS, KEYS):
        with pytest.raises(UserError, match=r"x\.jsonl: another process"):
            run(out)
        assert in_child(lambda: run(out)) == 2
    assert run(out) == KEYS


# --- records of other runs ---


def test_unfinished_records_of_other_settings_are_moved_aside(tmp_path, out, undisturbed, caplog):
    left = interrupted(out, KEYS[:2], OTHER).read_bytes()
    assert run(out) == KEYS
    [former] = (tmp_path / "former").glob("*.partial")
    assert "top_k is 4 there, 2 here" in caplog.text
    assert former.read_bytes() == left
    assert out.read_bytes() == undisturbed
