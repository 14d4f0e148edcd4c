"""Exported encoders: the vectors of torch, and graphs that are known by the content of the
checkpoint's folder.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_models
from ragauge.assets import store
from ragauge.errors import UserError
from ragauge.methods.rankers.dense import Encoder, load_encoder
from ragauge.pipelines.database.embed import OnnxEncoder
from ragauge.testing import write_checkpoint


def encoder(folder, weight=None):
    """An encoder of one layer, which is exported in half the time; one of its weights can be given."""
    from transformers import BertModel

    model = BertModel.from_pretrained(tiny_models.encoder(folder), num_hidden_layers=1)
    if weight is not None:
        with torch.no_grad():
            model.encoder.layer[0].output.dense.weight[0, 0] = weight
    model.save_pretrained(folder)
    return folder


def test_the_graph_pools_as_the_encoder_does(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    folder = encoder(tmp_path / "encoder")
    (folder / "modules.json").write_text(json.dumps([{"type": "x.Pooling", "path": "pooling"}]))
    (folder / "pooling").mkdir()
    (folder / "pooling" / "config.json").write_text('{"pooling_mode": "cls"}')
    texts = ["Tea is grown in Assam.", "Coffee", ""]
    np.testing.assert_allclose(
        OnnxEncoder(f"path:{folder}").encode(texts), Encoder(folder).encode(texts), atol=1e-5
    )


@pytest.mark.parametrize(
    ("kind", "module"), [(Encoder, None), (Encoder, "Normalize"), (OnnxEncoder, "Normalize")]
)
def test_a_vector_that_is_not_finite_is_one_line(tmp_path, monkeypatch, kind, module):
    """As of encoders whose weights overflowed when they were saved in float16."""
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    folder = encoder(tmp_path / "encoder", float("inf"))
    (folder / "modules.json").write_text(
        json.dumps([{"type": f"x.{module}", "path": ""}] if module else [])
    )
    name = folder if kind is Encoder else f"path:{folder}"
    with pytest.raises(UserError) as refused:
        kind(name).encode(["Tea", "Coffee is grown in Kenya." * 3])
    message = (
        f"encoder {name}: 2 of 2 texts have values that are not finite numbers, the first is 'Tea'"
    )
    assert str(refused.value).startswith(message)


def test_graphs_are_known_by_content_not_by_a_folders_last_name(tmp_path, monkeypatch):
    targets = []

    def build(self, target, make):
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


@pytest.mark.parametrize("kind", [load_encoder, OnnxEncoder])
def test_a_text_is_encoded_with_the_prompt_of_its_role(tmp_path, monkeypatch, kind):
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    folder = encoder(tmp_path / "encoder")
    prompts = folder / "config_sentence_transformers.json"
    prompts.write_text(json.dumps({"prompts": {"query": "who ", "passage": "text "}}))
    plain = encoder(tmp_path / "plain")
    reference = Encoder(plain).encode(["who Tea", "text Tea"])
    prompted = kind(f"path:{folder}")
    np.testing.assert_allclose(prompted.encode(["Tea"], query=True)[0], reference[0], atol=1e-5)
    np.testing.assert_allclose(prompted.encode(["Tea"])[0], reference[1], atol=1e-5)
