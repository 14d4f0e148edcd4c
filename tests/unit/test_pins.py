"""Which sources give the same files to everybody, and that the others are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ragauge import assets
from ragauge.cli import main


@pytest.mark.parametrize(
    ("source", "pinned"),
    [("minilm", True), ("bloomz-3b", False), ("hf:org/name", False), ("https://host/m.gguf", False), ("retro", False)],
)
def test_what_is_pinned(source: str, pinned: bool) -> None:
    assert assets.is_pinned(source) is pinned


def test_a_local_file_is_what_it_is(tmp_path: Path) -> None:
    assert assets.is_pinned(f"path:{tmp_path}")


def test_validate_names_what_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(
        "run: small\nmodels: {smollm2-135m-instruct: {}, bloomz-3b: {}}\n"
        "datasets: {nq_open: {}}\nmethods: {naive: {}}\n"
    )
    assert main(["validate", str(path), "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out.splitlines()[-1])["unpinned"] == ["bloomz-3b"]
    assert "not pinned by a hash or a commit: bloomz-3b\n" in told.err
