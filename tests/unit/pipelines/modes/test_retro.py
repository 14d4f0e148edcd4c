"""RETRO's released checkpoint: converted, read as its architecture says, and scored."""

import json
from pathlib import Path

import pytest
import torch

from ragauge.assets import resolver, retro
from ragauge.errors import UserError
from ragauge.pipelines.modes._retro import read_folder
from retro_released import (
    SETTINGS,
    write_beside_database,
    write_released,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("released")
        patch.setenv("RAGAUGE_HOME", str(folder / "home"))
        yield write_beside_database(folder)


def test_a_conversion_is_whole_and_has_its_digest(root):
    source = f"path:{root / 'released'}"
    facts = resolver.describe(source, offline=False)
    folder = Path(facts["path"])
    assert set(facts["files"]) == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert len(facts["sha256"]) == 64
    assert json.loads((folder / "config.json").read_bytes())["cross"] == SETTINGS["dec_cca_layers"]
    assert resolver.is_retro(source)
    assert resolver.is_retro(str(folder))
    assert not resolver.is_retro(f"path:{root / 'model'}")


def test_a_tokenizer_that_is_not_beside_it_is_t5s_of_the_hub(tmp_path, monkeypatch):
    write_released(tmp_path / "released")
    (tmp_path / "hub.json").write_text("{}")
    asked = []
    monkeypatch.setattr(
        "ragauge.assets.hub.file", lambda *file: asked.append(file) or tmp_path / "hub.json"
    )
    (tmp_path / "made").mkdir()
    retro.convert(tmp_path / "released" / "model.ckpt", tmp_path / "made")
    assert asked == [("google-t5/t5-base", "tokenizer.json")]
    assert (tmp_path / "made" / "tokenizer.json").read_text() == "{}"


class Code:
    def __reduce__(self):
        return print, ("code of the checkpoint was run",)


def convert_and_read(checkpoint, folder):
    retro.convert(checkpoint, folder)
    read_folder(folder)


@pytest.mark.parametrize(
    ("settings", "state", "message"),
    [
        (
            {},
            {"x": Code()},
            "model.ckpt: refused: it is damaged, or holds more than tensors, which could run code",
        ),
        ({}, {"x": torch.ones(1)}, "model.ckpt: 'x': not a tensor of the released RETRO"),
        ({"chunk_size": 32}, None, "retro.json: chunk_size is 32; read is 64"),
        ({"dec_qkv_dim": 8}, None, "retro.json: dec_qkv_dim is 8; read is 32"),
        ({"dec_num_layers": "many"}, None, "config.json: not the sizes of a RETRO"),
        (
            {"dec_num_layers": 5},
            None,
            'model.safetensors: not the tensors .* "layers.4.attention.q.weight"',
        ),
        (
            {"dec_ffn_dim": 40},
            None,
            r"not the tensors .* size mismatch for layers.0.ffn.gate.weight",
        ),
    ],
)
def test_a_checkpoint_of_another_layout_is_refused(
    settings,
    state,
    message,
    tmp_path,
    capsys,
):
    folder = write_released(tmp_path / "released")
    (folder / "retro.json").write_text(json.dumps(SETTINGS | settings))
    (folder / "tokenizer.json").write_text("{}")
    if state:
        torch.save({"state_dict": state}, folder / "model.ckpt")
    with pytest.raises(UserError, match=message) as error:
        convert_and_read(folder / "model.ckpt", tmp_path)
    assert "\n" not in str(error.value)
    assert "was run" not in capsys.readouterr().out
