"""The environments of conda and of the container are made from the package's own files, for its own versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ENVIRONMENTS = ("cpu", "gpu", "training")


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_installs_the_package_itself(root: Path, project: dict[str, Any], name: str) -> None:
    """In a clone with the locked versions, elsewhere with the extras that the environment's jobs need."""
    script = (root / f"envs/{name}.post-deploy.sh").read_text()
    assert "--require-hashes --no-deps --requirement requirements.lock" in script
    assert "--no-deps --editable ." in script
    (extras,) = re.findall(r"'ragauge\[([\w,]+)\]==", script)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert ("gpu" in extras) == (name != "cpu")


def test_the_gpu_environments_have_one_build_of_onnx_runtime_of_the_locked_version(root: Path) -> None:
    (locked,) = re.findall(r"^onnxruntime==(\S+)", (root / "requirements.lock").read_text(), re.MULTILINE)
    for name in ("gpu", "training"):
        script = (root / f"envs/{name}.post-deploy.sh").read_text()
        assert script.index("pip uninstall --yes onnxruntime") < script.index(f"onnxruntime-gpu=={locked}")


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_has_the_versions_that_the_package_asks_for(
    root: Path, project: dict[str, Any], name: str
) -> None:
    listed = yaml.safe_load((root / f"envs/{name}.yaml").read_text())["dependencies"]
    versions = dict(entry.split("=", 1) for entry in listed)
    python = tuple(map(int, versions["python"].split(".")))
    assert python >= tuple(map(int, project["requires-python"].removeprefix(">=").split(".")))
    if "pytorch-cpu" in versions:
        assert f"torch=={versions['pytorch-cpu']}" in (root / "requirements-torch.txt").read_text().splitlines()


def test_the_container_is_made_from_the_same_files(root: Path) -> None:
    recipe = (root / "envs/ragauge.def").read_text()
    copied = re.findall(r"^    (\S+) /opt/ragauge/\1$", recipe, re.MULTILINE)
    assert {"pyproject.toml", "setup.py", "requirements.lock", "src", "envs"} <= set(copied)
    assert all((root / name).exists() for name in copied)
    for used in re.findall(r"envs/(\S*\{\{ environment \}\}\S*)", recipe):
        assert all((root / "envs" / used.replace("{{ environment }}", name)).is_file() for name in ENVIRONMENTS)
