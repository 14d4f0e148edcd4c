"""Fixtures that every tier of tests shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
os.environ["RAGAUGE_KERNELS"] = "default"  # a test measures kernels only where they are its subject
os.environ["RAGAUGE_DTYPE"] = "float32"  # what `dtype: auto` stands for

LONG = ("workflow", "browser")  # folders whose files take minutes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes come first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: item.path.parent.name not in LONG)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository root."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real samples, which lies beside the repository and not in it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"needs the samples of the real data sets in {folder}")
    return folder
