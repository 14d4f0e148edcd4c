"""`ragauge new` from end to end: packages are written, installed, tested, run by the workflow and
reported.
"""

import json
import os
import re
import subprocess
import sys
from contextlib import chdir

import pytest

from json_lines import read_lines, write_lines
from ragauge.cli._main import main
from ragauge.testing import write_checkpoint
from workflow_folder import copy_workflow, needs_snakemake

pytestmark = [needs_snakemake, pytest.mark.slow]

NEW = {
    "method": "last_first",
    "dataset": "river_quiz",
    "metric": "answer_words",
    "ranker": "overlap",
    "compressor": "first_tokens",
    "item": "kept_share",
}
KV = "stored_ends"  # a method that `ragauge new method --kv` writes
RECORD = {
    "question": "Which city lies on the Danube?",
    "answers": ["Vienna"],
    "documents": [
        {"title": "Graz", "text": "Graz is a town.", "gold": False},
        {"title": "Vienna", "text": "Vienna is a city that lies on the Danube.", "gold": True},
    ],
}
EXPERIMENT = """\
run: plugged
models: {{tiny: {{source: "path:{folder}/model"}}}}
datasets: {{river_quiz: {{data: quiz.jsonl}}}}
methods:
  naive: {{}}
  last_k2: {{method: last_first, top_k: 2}}
  overlap: {{}}
  stored: {{method: stored_ends, reread: 10000}}
  first_half: {{method: compressed, inner: naive_reuse, compressor: first_tokens}}
generation: {{max_new_tokens: 4}}
items: [kept_share]
"""
# As pip has their wheels built, but setuptools is imported once for all.
BUILD = """
import os, sys
from setuptools import build_meta
for package in sys.argv[2:]:
    if not os.fork():
        os.chdir(package)
        build_meta.build_wheel(sys.argv[1])
        os._exit(0)
    assert os.wait()[1] == 0, package
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The packages, as `ragauge new` writes them."""
    folder = tmp_path_factory.mktemp("written")
    with chdir(folder):
        for arguments in (*NEW.items(), ("method", KV, "--kv")):
            assert main(["new", *arguments]) == 0
    packages = {f"ragauge-{name.replace('_', '-')}" for name in (*NEW.values(), KV)}
    assert {path.name for path in folder.iterdir()} == packages
    return folder


@pytest.fixture(scope="module")
def site(written, tmp_path_factory):
    """The folder that they are installed into."""
    target = tmp_path_factory.mktemp("site")
    wheels = tmp_path_factory.mktemp("wheels")
    packages = [str(path) for path in written.iterdir()]
    subprocess.run(
        [sys.executable, "-c", BUILD, str(wheels), *packages], capture_output=True, check=True
    )
    options = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile", "--target"]
    pip = [sys.executable, "-m", "pip", *options, str(target), *map(str, wheels.iterdir())]
    subprocess.run(pip, check=True)
    assert len(list(target.glob("*.dist-info"))) == len(packages)
    return target


@pytest.fixture(scope="module")
def places(root, site):
    """The path of a Python that sees them and ragauge."""
    return os.pathsep.join([str(site), str(root / "src")])


@pytest.fixture(scope="module")
def finished(root, places, tmp_path_factory, preloaded):
    """A run of the workflow with a method, a ranker's method, a data set and an item of theirs."""
    folder = copy_workflow(root, tmp_path_factory.mktemp("run"))
    write_checkpoint(folder / "model")
    write_lines(folder / "quiz.jsonl", ({**RECORD, "id": str(i)} for i in range(2)))
    (folder / "plugged.yaml").write_text(EXPERIMENT.format(folder=folder))
    arguments = ("-m", "snakemake", "--cores", "1", "--configfile", "plugged.yaml")
    preloaded.run("python", *arguments, folder=folder, PYTHONPATH=places)
    return folder


def test_their_own_tests_pass(written, places, preloaded):
    options = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib")
    output = preloaded.run(
        "python", *options, *map(str, written.iterdir()), folder=written, PYTHONPATH=places
    )
    assert re.search(r"\d passed", output), output
    assert len(list(written.glob("*/tests/test_*.py"))) == len(NEW) + 1


def test_their_methods_answered(finished):
    answers = finished / "results/plugged/answers/river_quiz/tiny"
    records = {path.stem: read_lines(path) for path in answers.glob("*.jsonl")}
    kept = {name: [record["kept"] for record in found] for name, found in records.items()}
    whole = {name: [[0, 1]] * 2 for name in ("naive", "stored", "first_half")}
    assert kept == {**whole, "last_k2": [[1, 0]] * 2, "overlap": [[1]] * 2}
    # its anchor
    assert [r["text"] for r in records["stored"]] == [r["text"] for r in records["naive"]]
    meta = json.loads((answers / "last_k2.meta.json").read_text())
    assert meta["provenance"]["packages"]["ragauge-last-first"] == "0.1.0"
