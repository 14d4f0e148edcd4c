"""The load test in short: kills of a part, a slow reader, a flood of oversized requests, and nothing is lost."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def test_nothing_is_lost_or_answered_twice_whatever_happens(root: Path) -> None:
    command = [sys.executable, str(root / "benchmarks" / "service.py"), "--clients", "4"]
    command += ["--seconds", "1.5", "--kill-every", "0.7", "--vectors", "500"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    table = dict(re.findall(r"^\| (.*?) \| (.*) \|$", done.stdout, re.MULTILINE))
    assert int(table["requests sent"].replace(",", "")) > 0
    assert [table[f"{what}"] for what in ("lost", "answered twice", "answered differently")] == ["0", "0", "0"]
    assert int(table["kills of a part"]) > 0
    assert re.match(r"RESOURCE_EXHAUSTED [1-9]", table["oversized requests, by status"])
    assert int(table["bytes read by the slow reader"].replace(",", "")) > 0
    assert all(re.fullmatch(r"[\d,.]+ ms", table[f"latency, {which}"]) for which in ("p50", "p95", "p99", "longest"))
