"""An installed wheel needs no clone: `ragauge init` writes the workflow, and Snakemake plans it."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from ragauge.cli.init import WRITTEN
from ragauge.study.settings import EXAMPLE
from workflow_folder import needs_snakemake

BUILT_FROM = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "src", *WRITTEN)


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory):
    """The wheel of this checkout, built in a copy of it."""
    pytest.importorskip("setuptools", reason="needs setuptools to build with", minversion="77")
    source = tmp_path_factory.mktemp("source")
    out = tmp_path_factory.mktemp("dist")
    for name in BUILT_FROM:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
        if (root / name).is_dir():
            shutil.copytree(root / name, source / name, ignore=left_out)
        else:
            shutil.copy(root / name, source / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    pip = [sys.executable, "-m", "pip", "wheel", *options, "-w", str(out), str(source)]
    subprocess.run(pip, check=True)
    (found,) = out.glob("ragauge-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment with the wheel, and with the packages of this one beside it."""
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    # --no-compile: of hundreds of modules some are imported
    options = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "--python", str(folder), *options, str(wheel)]
    subprocess.run(pip, check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    # whose own .pth files are not read
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def run(installed, folder, *command):
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
    }
    environment["PATH"] = f"{installed / 'bin'}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_wheel_has_the_workflow_and_nothing_beside_the_package(wheel, root):
    names = zipfile.ZipFile(wheel).namelist()
    assert {re.split("[-/]", name)[0] for name in names} == {"ragauge"}
    rules = {f"workflow/rules/{path.name}" for path in (root / "workflow" / "rules").glob("*.smk")}
    written = {"Snakefile", "workflow/Snakefile", "config.yaml", "configs/ci/smoke.yaml", *rules}
    assert {f"ragauge/_workflow/{name}" for name in written} <= set(names)
    example = [path for path in EXAMPLE.rglob("*") if path.is_file()]
    assert {path.relative_to(EXAMPLE.parents[2]).as_posix() for path in example} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".def")]


@needs_snakemake
def test_an_installed_wheel_plans_the_experiment(installed, tmp_path):
    place = run(installed, tmp_path, "python", "-c", "import ragauge; print(ragauge.__file__)")
    assert Path(place.stdout.strip()).is_relative_to(installed)
    begun = run(installed, tmp_path, "ragauge", "init", "mine")
    assert begun.returncode == 0, begun.stderr
    planned = run(installed, tmp_path / "mine", "python", "-m", "snakemake", "-n")
    assert planned.returncode == 0, planned.stderr + planned.stdout
    assert "superposition_table_1" in planned.stdout + planned.stderr
