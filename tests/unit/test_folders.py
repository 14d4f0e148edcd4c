"""Folders that are made whole or not at all: two makers, a maker that fails or is killed, damage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ragauge.errors import UserError
from ragauge.io import folders

KIND = "test folder"


def fill(folder: Path, text: bytes = b"content") -> Mapping[str, Any]:
    (folder / "file").write_bytes(text)
    return {"note": 1}


def test_a_folder_of_the_same_origin_is_made_once(tmp_path: Path) -> None:
    target = tmp_path / "a"
    assert folders.build(target, KIND, {"x": 1}, fill)
    assert not folders.build(target, KIND, {"x": 1}, lambda _: pytest.fail("made again"))
    identity = folders.sha256(target)
    assert folders.build(target, KIND, {"x": 2}, fill)
    assert folders.sha256(target) != identity
    assert folders.read(target, KIND, verify=True)["note"] == 1


def test_two_makers_make_it_once(tmp_path: Path) -> None:
    made: list[bool] = []

    def slow(folder: Path) -> Mapping[str, Any]:
        time.sleep(0.1)
        return fill(folder)

    threads = [
        threading.Thread(target=lambda: made.append(folders.build(tmp_path / "a", KIND, {}, slow))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False, False, False, True]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.lock", "a"]


def test_the_former_folder_stays_when_its_successor_fails(tmp_path: Path) -> None:
    folders.build(tmp_path / "a", KIND, {"x": 1}, fill)

    def fails(folder: Path) -> Mapping[str, Any]:
        fill(folder, b"other")
        raise UserError("no corpus")

    with pytest.raises(UserError, match="no corpus"):
        folders.build(tmp_path / "a", KIND, {"x": 2}, fails)
    assert (tmp_path / "a" / "file").read_bytes() == b"content"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.lock", "a"]


def test_a_killed_maker_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; from pathlib import Path; from ragauge.io import folders\n"
        "def make(folder):\n"
        "    (folder / 'file').write_bytes(b'half'); print('now', flush=True); time.sleep(60)\n"
        f"folders.build(Path({str(tmp_path / 'a')!r}), {KIND!r}, {{}}, make)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        os.kill(process.pid, signal.SIGKILL)
    assert not (tmp_path / "a").exists()
    assert folders.build(tmp_path / "a", KIND, {}, fill)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".a.lock", "a"]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "file").unlink(), "missing from its test folder"),
        (lambda folder: (folder / "file").write_bytes(b"cont"), "4 bytes where its test folder has 7: cut short"),
        (lambda folder: (folder / "file").write_bytes(b"CONTENT"), "sha256 differs"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "not a manifest of a test folder"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "must be a test folder, not 'list'"),
    ],
)
def test_damage_is_told(tmp_path: Path, damage: Any, message: str) -> None:
    folders.build(tmp_path / "a", KIND, {}, fill)
    damage(tmp_path / "a")
    with pytest.raises(UserError, match=message):
        folders.read(tmp_path / "a", KIND, verify=True)
