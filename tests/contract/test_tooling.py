"""The linter and the type checker look at every Python file of the repository."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

GENERATED = "_pb2"  # in the names of modules that protoc writes


@pytest.fixture(scope="module")
def tracked(root: Path) -> set[Path]:
    """Every Python file that git tracks, without generated ones."""
    if not (root / ".git").exists():
        pytest.skip("needs a git checkout")
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=root, capture_output=True, text=True, check=True)
    paths = (root / line for line in listed.stdout.splitlines())
    return {path for path in paths if path.exists() and GENERATED not in path.stem}


def test_ruff_checks_every_tracked_file(root: Path, tracked: set[Path]) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--show-files"]
    shown = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert tracked <= {Path(line) for line in shown.stdout.splitlines()}


def test_mypy_checks_every_tracked_file_of_the_package(
    root: Path, tracked: set[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mypy.main import process_options

    monkeypatch.chdir(root)
    sources, options = process_options([])
    package = root / "src"
    assert {path for path in tracked if path.is_relative_to(package)} <= {root / s.path for s in sources if s.path}
    assert not options.ignore_errors


def test_no_exception_for_a_module_of_the_package(root: Path) -> None:
    overrides = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    exempt = [module for entry in overrides for module in entry["module"] if module.startswith("ragauge")]
    assert exempt == []
