"""The kit for a machine with a GPU: packed, unpacked elsewhere, and run on the CPU at small shapes."""

import json
import os
import subprocess
import sys

import pytest

from ragauge.testing import write_checkpoint

pytestmark = pytest.mark.slow
# Invented rates: what is put over them means nothing.
RATE = {"median": 1e11, "low": 1e11, "high": 1e11, "n": 1}
RATES = {"bandwidth_bytes_per_s": RATE, "matmul_flop_per_s": {"float32": RATE}, "load_share": 0.0}
COUNTS = {"preamble": 4, "documents": [30, 30], "query": 5, "task": 4}


def kit(root, *arguments, python=sys.executable):
    """Its script, with nothing of this checkout on the path."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [python, str(root / "benchmarks/gpu_kit.py"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)


@pytest.fixture(scope="module")
def unpacked(root, tmp_path_factory):
    """The kit, and beside it a model and lengths that are read in no time."""
    if not (root / ".git").exists():
        pytest.skip("the kit is packed from a git checkout")
    folder = tmp_path_factory.mktemp("kit")
    done = kit(root, "pack", str(folder / "kit.tar.gz"))
    assert done.returncode == 0, done.stderr
    assert (folder / "kit.tar.gz").stat().st_size < 64 << 20
    subprocess.run(["tar", "-xzf", "kit.tar.gz"], cwd=folder, check=True)
    write_checkpoint(folder / "model")
    (folder / "few.json").write_text(json.dumps(COUNTS))
    return folder / "gpu-kit"


def measured(unpacked, out, *options, python=sys.executable):
    """(exit code, summary) of a run on the CPU."""
    few = str(unpacked.parent / "few.json")
    sizes = [
        "--models",
        str(unpacked.parent / "model"),
        "--lengths",
        few,
        "--cfic-lengths",
        few,
        "--trials",
        "2",
    ]
    engine = ["--device", "cpu", "--dtype", "float32", "--allow-load"]
    done = kit(unpacked, "run", str(out), *sizes, *engine, *options, python=python)
    assert (out / "summary.json").is_file(), done.stdout + done.stderr
    return done.returncode, json.loads((out / "summary.json").read_text())


@pytest.mark.parametrize(
    ("part", "step", "variants", "known"),
    [
        ("latency", "latency_model_few", {"naive", "superposition"}, False),
        ("cfic", "cfic_model_few", {"cfic", "free_extraction"}, True),
    ],
)
def test_what_is_timed_is_put_over_its_roofline(
    unpacked,
    tmp_path,
    preloaded,
    part,
    step,
    variants,
    known,
):
    (tmp_path / "rates.json").write_text(json.dumps(RATES))
    rates = ["--machine", str(tmp_path / "rates.json")] if known else []
    python = str(preloaded.folder / "python")  # every step of it is, too
    code, summary = measured(unpacked, tmp_path / "out", "--part", part, *rates, python=python)
    assert code == 0, summary
    assert ("machine" in summary["steps"]) is not known
    assert len(summary["kit"]["commit"]) == 40
    assert {ended["status"] for ended in summary["steps"].values()} == {"ok"}
    ratios = summary["steps"][step]["over_roofline"]
    assert ratios.keys() == variants
    assert all(stages["decode"] > 0 for stages in ratios.values())
    timed = json.loads((tmp_path / f"out/{step}.json").read_text())
    assert timed["provenance"]
    used = json.loads((tmp_path / ("rates.json" if known else "out/machine.json")).read_text())
    assert timed["machine"]["bandwidth_bytes_per_s"] == used["bandwidth_bytes_per_s"]


def test_a_step_that_lacks_something_or_takes_too_long_says_so(unpacked, tmp_path):
    code, summary = measured(unpacked, tmp_path, "--part", "retro")
    assert code == 0
    assert all("no --database" in step["reason"] for step in summary["steps"].values())
    code, summary = measured(unpacked, tmp_path, "--part", "machine", "--limit", "0.1")
    assert (code, summary["steps"]["machine"]["status"]) == (1, "failed")
