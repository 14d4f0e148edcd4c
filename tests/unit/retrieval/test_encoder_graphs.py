"""Exported encoders are known by their content, not by the last name of their folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ragauge.assets import store
from ragauge.retrieval.embed import OnnxEncoder
from ragauge.testing import write_checkpoint


class MadeError(Exception):
    """An export that is about to be made."""

    def __init__(self, target: Path) -> None:
        super().__init__(target)
        self.target = target


def test_graphs_are_known_by_content_not_by_a_folders_last_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(self: store.Store, target: Path, make: Any) -> Path:
        raise MadeError(target)

    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(store.Store, "build", made)
    one = write_checkpoint(tmp_path / "a" / "model")
    copy = Path(shutil.copytree(one, tmp_path / "b" / "model"))
    other = write_checkpoint(tmp_path / "c" / "model", num_hidden_layers=1)

    def target(folder: Path) -> Path:
        with pytest.raises(MadeError) as found:
            OnnxEncoder(f"path:{folder}")
        return found.value.target

    assert target(one) == target(copy) != target(other)
