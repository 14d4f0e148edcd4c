"""The environments of conda have the versions that the package asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml


@pytest.mark.parametrize("name", ["cpu", "gpu", "training"])
def test_an_environment_has_the_versions_and_extras_of_the_package(root: Path, name: str) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = yaml.safe_load((root / f"envs/{name}.yaml").read_text())["dependencies"]
    versions = dict(entry.split("=", 1) for entry in listed)
    python = tuple(map(int, versions["python"].split(".")))
    assert python >= tuple(map(int, project["requires-python"].removeprefix(">=").split(".")))
    if "pytorch-cpu" in versions:
        assert f"torch=={versions['pytorch-cpu']}" in (root / "requirements-torch.txt").read_text().splitlines()
    (extras,) = re.findall(r"'ragauge\[([\w,]+)\]==", (root / f"envs/{name}.post-deploy.sh").read_text())
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
