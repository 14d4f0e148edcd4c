"""The benchmarks run as their page says; what they measure is no test's business."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_checkpoint import write_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"))


def benchmark(root: Path, script: str, *arguments: str) -> str:
    command = [sys.executable, str(root / "benchmarks" / script), "--threads", "1", *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_decode_prints_a_ratio_for_every_task_and_attention(root: Path, model: Path) -> None:
    sizes = ["--context", "40", "--new-tokens", "3", "--prompt", "50", "--trials", "2"]
    output = benchmark(root, "decode.py", "--model", str(model), *sizes)
    assert len(re.findall(r"^  transformers (?:sdpa|eager) .* [\d.]+ times ours$", output, re.MULTILINE)) == 8
    assert output.count("competing load") == 4


def test_online_latency_prints_times_over_the_floor(root: Path, model: Path, tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.json"
    lengths.write_text('{"preamble": 4, "documents": [30, 30, 30], "query": 5, "task": 3}')
    sizes = ["--tokens", str(lengths), "--trials", "2", "--dtypes", "float32", "--allow-load"]
    output = benchmark(root, "online_latency.py", "--model", str(model), *sizes)
    assert output.count("time over floor") == 2
    assert re.search(r"naive over superposition: [\d.]+ in time, [\d.]+ between the floors, [\d.]+ in FLOPs", output)
