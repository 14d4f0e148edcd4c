"""Folders that are made whole or not at all: two makers, a maker that fails or is killed, damage."""

import os
import signal
from pathlib import Path

import pytest

from killed_processes import die_at, in_child
from ragauge.errors import UserError
from ragauge.io import folders

KIND = "test folder"


def fill(folder, text=b"content"):
    (folder / "file").write_bytes(text)
    return {"note": 1}


def test_the_former_folder_stays_when_its_successor_fails(tmp_path):
    folders.build(tmp_path / "a", KIND, {"x": 1}, fill)

    def fails(folder):
        fill(folder, b"other")
        raise UserError("no corpus")

    with pytest.raises(UserError, match="no corpus"):
        folders.build(tmp_path / "a", KIND, {"x": 2}, fails)
    assert (tmp_path / "a" / "file").read_bytes() == b"content"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_only_folders_of_this_program_are_replaced(tmp_path):
    target = tmp_path / "a"
    target.mkdir()
    (target / "manifest.json").write_text('{"files": ["of another program"]}')
    with pytest.raises(UserError, match="holds files that ragauge did not make"):
        folders.build(target, KIND, {}, fill)
    (tmp_path / "b").write_text("a file")
    with pytest.raises(UserError, match="is a file where a folder is made"):
        folders.build(tmp_path / "b", KIND, {}, fill)
    assert [path.name for path in target.iterdir()] == ["manifest.json"]


def test_killed_at_any_step_the_next_build_succeeds(tmp_path):
    """Each call that changes names or waits for the disk is in turn the last one."""
    calls = [(os, "fsync"), (os, "replace"), (Path, "rename"), (Path, "mkdir")]
    step = 0
    is_killed = True
    while is_killed:
        target = tmp_path / f"{step}" / "a"
        folders.build(target, KIND, {"x": 1}, fill)

        def work(target=target, step=step):
            die_at(step, calls)
            folders.build(target, KIND, {"x": 2}, lambda folder: fill(folder, b"changed"))

        is_killed = in_child(work) == -signal.SIGKILL
        there = target if target.exists() else target.with_name(".a.former")
        assert folders.read(there, KIND, verify=True)["made_from"]["x"] in (1, 2)
        folders.build(target, KIND, {"x": 2}, lambda folder: fill(folder, b"changed"))
        assert (target / "file").read_bytes() == b"changed"
        assert sorted(path.name for path in target.parent.iterdir()) == ["a"]
        step += 1
    assert step > 6
