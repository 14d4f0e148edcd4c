"""The kit for a machine with a GPU: packed, unpacked elsewhere, and rehearsed on the CPU, every step
with the command that runs there.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import pandas as pd
import pytest

import gpu_kit
import reproduction
from _gpu_kit_material import configuration
from ragauge.config import loading
from ragauge.measure.timing import shape_of
from ragauge.results.publications import ON_SHAPE, read_csv

pytestmark = pytest.mark.slow
ENGINE = ["--rehearse", "--device", "cpu", "--dtype", "float32", "--trials", "1", "--allow-load"]


def kit(root, *arguments, python=sys.executable):
    """Its script, with nothing of this checkout on the path, in a group of its own."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [python, str(root / "benchmarks/gpu_kit.py"), *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, env=environment, start_new_session=True, **pipes)


def finished(process):
    output, _ = process.communicate(timeout=1800)
    return process.returncode, output


@pytest.fixture(scope="module")
def unpacked(root, tmp_path_factory):
    if not (root / ".git").exists():
        pytest.skip("the kit is packed from a git checkout")
    folder = tmp_path_factory.mktemp("kit")
    code, output = finished(kit(root, "pack", folder / "kit.tar.gz"))
    assert code == 0, output
    assert (folder / "kit.tar.gz").stat().st_size < 64 << 20
    subprocess.run(["tar", "-xzf", "kit.tar.gz"], cwd=folder, check=True)
    return folder / "gpu-kit"


@pytest.fixture(scope="module")
def rehearsed(unpacked, preloaded):
    """What all steps wrote; the first start is killed after one of them."""
    if not os.environ.get("RAGAUGE_GPU_KIT"):
        pytest.skip("runs every step of the kit and takes minutes: `make gpu-kit` runs it")
    out = unpacked.parent / "out"
    python = str(preloaded.folder / "python")  # every step of it is, too
    killed = kit(unpacked, "run", out, *ENGINE, python=python)
    while not (out / "summary.json").is_file():
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.02)
    os.killpg(killed.pid, signal.SIGKILL)
    finished(killed)
    before = summary_of(out)
    code, output = finished(kit(unpacked, "run", out, *ENGINE, python=python))
    failed = [step["output"] for step in summary_of(out).values() if step["status"] == "failed"]
    assert (code, failed) == (0, []), output
    return out, before


def summary_of(out):
    return json.loads((out / "summary.json").read_text())["steps"]


def test_a_killed_start_goes_on_where_it_was(rehearsed):
    out, before = rehearsed
    assert "machine" in before
    assert len(before) < 4
    after = summary_of(out)
    assert {name: after[name] for name in before} == before
    known = {step["name"].partition("{")[0] for step in gpu_kit.read_kit()["steps"]}
    assert {one for one in known if not any(name.startswith(one) for name in after)} == set()
    assert {step["status"] for step in after.values()} <= {"ok", "not run"}
    reasons = {step["reason"] for step in after.values() if step["status"] == "not run"}
    assert all(reason.endswith("not installed") for reason in reasons)


def test_what_is_timed_is_put_over_its_roofline(rehearsed):
    out, _ = rehearsed
    steps = summary_of(out)
    timed = {name: step["over_roofline"] for name, step in steps.items() if "over_roofline" in step}
    assert timed.keys() > {"proof", "table_5_mpt-7b-instruct", "cfic_musique", "reuse_2048"}
    for name, ratios in timed.items():
        result = json.loads((out / f"{name}.json").read_text())
        assert ratios.keys() == {row["variant"] for row in result["rows"]}
        assert not result["unsupported"]
        assert all(stages["decode"] > 0 for stages in ratios.values()), name
    rates = json.loads((out / "machine.json").read_text())["bandwidth_bytes_per_s"]
    assert result["machine"]["bandwidth_bytes_per_s"] == rates
    decoder = json.loads((out / "decoder_64.json").read_text())
    assert decoder["rates"]["side_by_side_tokens_per_s"] > 0
    assert any(name.startswith("prefill, ") for name in decoder["times"])


def test_tables_have_what_was_measured_and_the_state_of_reproduction_counts_it(rehearsed, tmp_path):
    out, _ = rehearsed
    written = gpu_kit.write_tables(out, tmp_path / "gpu-shapes")
    tables = {path.stem: pd.read_csv(path) for path in written}
    assert tables.keys() == gpu_kit.read_kit()["tables"].keys()
    for name, column in (("superposition_table_5", "cuda_speedup"), ("cfic_table_8", "latency_ms")):
        table = tables[name]
        shown = table[table["quantity"] == column]
        assert shown["published"].tolist() == [float(row[column]) for row in read_csv(name)]
    for table in tables.values():
        assert (table["measured"] >= 0).all()
        assert table["status"].str.startswith(ON_SHAPE).all()
        assert table["ratio"].isna().all(), "of two machines"
    sevens = tables["superposition_table_7"]
    assert (sevens.loc[sevens["method"] == "naive", "measured"] == 1).all()
    (tmp_path / "planned").mkdir()
    cells = reproduction.states(reproduction.planned(tmp_path / "planned"), tmp_path)
    counted = Counter(cell.table for cell in cells if cell.state is reproduction.State.ON_SHAPE)
    assert counted == {name: len(table) for name, table in tables.items()}


def test_what_runs_there_is_a_valid_experiment_over_known_shapes(tmp_path):
    kit = gpu_kit.read_kit()
    for name in (*kit["sizes"]["full"]["articles"], "corpus"):
        (tmp_path / f"{name}.jsonl").write_text("{}")
    written = configuration(kit, kit["sizes"]["full"], tmp_path, "cuda", False)
    made = loading.parse(written, "kit.json")
    for name in kit["models"]:
        assert shape_of(made.models[name].source).d_model >= 576
    assert made.pipelines["retro_s3"].hides_search
