"""Exported encoders: the vectors of torch, and graphs that are known by the content of the checkpoint's folder."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_models
from ragauge.assets import store
from ragauge.rankers.dense import Encoder
from ragauge.retrieval.embed import OnnxEncoder
from ragauge.testing import write_checkpoint


def test_the_graph_pools_as_the_encoder_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    folder = tiny_models.encoder(tmp_path / "encoder")
    (folder / "modules.json").write_text(json.dumps([{"type": "x.Pooling", "path": "pooling"}]))
    (folder / "pooling").mkdir()
    (folder / "pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    texts = ["Tea is grown in Assam.", "Coffee", ""]
    np.testing.assert_allclose(OnnxEncoder(f"path:{folder}").encode(texts), Encoder(folder).encode(texts), atol=1e-5)


def test_graphs_are_known_by_content_not_by_a_folders_last_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = []

    def build(self: store.Store, target: Path, make: Any) -> Path:
        targets.append(target)
        raise InterruptedError

    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(store.Store, "build", build)
    one = write_checkpoint(tmp_path / "a" / "model")
    copy = Path(shutil.copytree(one, tmp_path / "b" / "model"))
    other = write_checkpoint(tmp_path / "c" / "model", num_hidden_layers=1)
    for folder in (one, copy, other):
        with pytest.raises(InterruptedError):
            OnnxEncoder(f"path:{folder}")
    assert targets[0] == targets[1] != targets[2]
