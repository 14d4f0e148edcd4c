"""The load benchmark counts every request once, and says where one was lost; what it measures is no test's business."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import service_parts as parts


def load(root: Path, address: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "benchmarks" / "service_load.py"), "--server", address, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_every_request_of_every_client_is_answered_once_and_alike(root: Path) -> None:
    with parts.process("--workers", "2") as server:
        done = load(root, server.address, "--clients", "6", "--requests", "15")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "answered 90 of 90 requests, 0 of them more than once, 0 changed" in done.stdout
    assert re.search(r"^latency p50 [\d.]+ ms, p99 [\d.]+ ms, longest [\d.]+ ms$", done.stdout, re.MULTILINE)
    assert re.search(r"^throughput [\d.]+ requests a second", done.stdout, re.MULTILINE)


def test_lost_requests_are_counted_and_end_with_an_error(root: Path) -> None:
    with parts.process("--concurrent", "1", "--delay", "0.05") as server:
        done = load(root, server.address, "--clients", "4", "--requests", "5")
    assert done.returncode == 1
    found = re.search(r"^answered (\d+) of 20 requests", done.stdout, re.MULTILINE)
    assert found
    assert 1 <= int(found[1]) < 20
    assert "takes no more requests: 1 requests are under way, which is the limit" in done.stdout


def test_a_server_that_is_not_there_is_told_in_a_line(root: Path) -> None:
    done = load(root, "127.0.0.1:9")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("service_load: retrieval server 127.0.0.1:9, describe: the server cannot be reached")
