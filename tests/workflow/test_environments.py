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
    installs = re.findall(r"--editable '\.(?:\[([\w,]+)\])?'", (root / f"envs/{name}.post-deploy.sh").read_text())
    assert len(installs) == 1
    assert set(filter(None, installs[0].split(","))) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_has_the_versions_that_the_package_asks_for(
    root: Path, project: dict[str, Any], name: str
) -> None:
    listed = yaml.safe_load((root / f"envs/{name}.yaml").read_text())["dependencies"]
    versions = dict(entry.split("=", 1) for entry in listed)
    python = tuple(map(int, versions["python"].split(".")))
    assert python >= tuple(map(int, project["requires-python"].removeprefix(">=").split(".")))
    if "pytorch-cpu" in versions:
        assert f"torch=={versions['pytorch-cpu']}" in project["dependencies"]


def test_the_container_is_made_from_the_same_files(root: Path) -> None:
    recipe = (root / "envs/ragauge.def").read_text()
    copied = re.findall(r"^    (\S+) /opt/ragauge/\1$", recipe, re.MULTILINE)
    assert {"pyproject.toml", "src", "envs"} <= set(copied)
    assert all((root / name).exists() for name in copied)
    for used in re.findall(r"envs/(\S*\{\{ environment \}\}\S*)", recipe):
        assert all((root / "envs" / used.replace("{{ environment }}", name)).is_file() for name in ENVIRONMENTS)
