"""Locks: whether a file system has them, and whether other nodes see them, as its options say."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ragauge.errors import UserError
from ragauge.experiment import launch
from ragauge.io import disks, folders
from ragauge.io.records import Record, Writer


def mounted(monkeypatch: pytest.MonkeyPatch, folder: Path, kind: str, options: str = "rw") -> None:
    """The folder is on a file system of this kind."""
    mounts = folder / "mounts"
    mounts.write_text(f"overlay / overlay rw 0 0\nserver:/data {folder} {kind} {options} 0 0\n")
    monkeypatch.setattr(disks, "MOUNTS", mounts)


def refusing(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def flock(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disks.fcntl, "flock", flock)


@pytest.mark.parametrize(
    ("kind", "options", "alone"),
    [
        ("ext4", "rw,nolock", ""),
        ("nfs4", "rw,vers=4.2,local_lock=none", ""),
        ("nfs", "rw,vers=3,nolock", "nolock"),
        ("nfs", "rw,vers=3,local_lock=all", "local_lock=all"),
        ("nfs", "rw,vers=3,local_lock=posix", ""),  # of the other kind of locks, which is not used
        ("lustre", "rw,flock", ""),
        ("lustre", "rw,localflock", "localflock"),
        ("fuse.sshfs", "rw", "sshfs"),
    ],
)
def test_locks_that_each_node_keeps_for_itself_are_told(
    kind: str, options: str, alone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted(monkeypatch, tmp_path, kind, options)
    found = disks.lock_trouble(tmp_path)
    assert disks.locks_reach_all(tmp_path) == (not alone)
    assert bool(found) == bool(alone)
    if alone:
        assert found.startswith(f"{tmp_path}: its file system ({kind}, {alone}) keeps locks for each node alone")
    assert "\n" not in found
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mounts"]  # no probe is left


def test_a_file_system_that_nothing_is_known_of_is_trusted_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted(monkeypatch, tmp_path, "newfs")
    assert disks.lock_trouble(tmp_path) == ""
    assert not disks.locks_reach_all(tmp_path)


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP])
def test_refused_locks_are_one_line_wherever_one_is_taken(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted(monkeypatch, tmp_path, "nfs")
    refusing(monkeypatch, code)
    told = rf"its file system \(nfs\) refuses locks \({os.strerror(code)}\), without which two runs"
    with pytest.raises(UserError, match=told):
        launch.hold_folder(tmp_path / "lock")
    with pytest.raises(UserError, match=told), Writer(tmp_path / "x.jsonl", {}, [], kind=Record):
        pytest.fail("written without a lock")
    with pytest.raises(UserError, match=told):
        folders.build(tmp_path / "a", "thing", {}, lambda folder: {})
    assert not (tmp_path / "a").exists()


def test_a_second_workflow_on_another_node_never_cancels_the_firsts_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its lock is not seen there, but its name is; a run that ended has taken it out, a killed one has not."""
    mounted(monkeypatch, tmp_path, "lustre", "rw,localflock")
    at_exit: list[Callable[[], None]] = []
    with monkeypatch.context() as patch:
        patch.setattr(launch.atexit, "register", lambda call, *given: at_exit.append(partial(call, *given)))
        first = launch.hold_folder(tmp_path / "lock")
    assert "keeps locks for each node alone" in capsys.readouterr().err
    with monkeypatch.context() as patch:  # the other node's locks are its own
        patch.setattr(disks.fcntl, "flock", lambda *_: None)
        patch.setattr(launch.socket, "gethostname", lambda: "other")
        with pytest.raises(UserError, match=r"may be active in this folder on node .*; if none is, remove .*lock$"):
            launch.hold_folder(tmp_path / "lock")
        for call in at_exit:  # the first run ends
            call()
        launch.hold_folder(tmp_path / "lock").close()
    first.close()


def test_a_killed_run_of_the_same_node_is_followed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted(monkeypatch, tmp_path, "lustre", "rw,localflock")
    launch.hold_folder(tmp_path / "lock").close()  # as the system closes it; the name stays
    launch.hold_folder(tmp_path / "lock").close()


def test_where_locks_reach_all_nodes_a_killed_run_of_another_is_followed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted(monkeypatch, tmp_path, "nfs4")
    (tmp_path / "lock").write_text("another node")
    launch.hold_folder(tmp_path / "lock").close()
    assert (tmp_path / "lock").read_text() == launch.socket.gethostname()
