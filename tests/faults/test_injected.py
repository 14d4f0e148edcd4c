"""A tenth of the faults of `make faults`, drawn by a seed; the full table stands in docs/reliability.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_no_promise_is_broken_by_a_tenth_of_the_faults(root: Path, tmp_path: Path) -> None:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("needs a C compiler")
    found = [str(root / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, found)), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "injected", "--share", "0.1"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    told = re.search(r"^([\d,]+) faults .*no promise was broken", ended.stdout, re.MULTILINE)
    assert told is not None, ended.stdout
    assert int(told[1].replace(",", "")) > 100
