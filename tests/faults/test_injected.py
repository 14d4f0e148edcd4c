"""A tenth of the faults of `make faults`, drawn by a seed; the full table stands in docs/reliability.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # a file system in memory, where there is one: nothing waits for a disk
ROOM_BYTES = 1 << 30


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="ragauge-faults-", dir=MEMORY) as folder:
        yield Path(folder)


@pytest.mark.slow
def test_no_promise_is_broken_by_a_tenth_of_the_faults(root: Path, room: Path) -> None:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("needs a C compiler")
    found = [str(root / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, found)), "TMPDIR": str(room)}
    command = [sys.executable, "-m", "injected", "--share", "0.1"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    told = re.search(r"^([\d,]+) faults .*no promise was broken", ended.stdout, re.MULTILINE)
    assert told is not None, ended.stdout
    assert int(told[1].replace(",", "")) > 100
