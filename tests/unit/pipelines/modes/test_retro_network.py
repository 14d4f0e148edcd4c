"""RETRO at the paper's sizes by count, its relative biases, and the weights of a folder."""

import json
from dataclasses import asdict

import pytest
import torch
from safetensors.torch import save_file

from ragauge.errors import UserError
from ragauge.pipelines.modes._retro import random_network, read_folder
from ragauge.pipelines.sizes import PAPER, Sizes
from retro_parts import TINY


def test_the_papers_sizes_have_633_million_weights():
    model = random_network(PAPER, device="meta")
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == 633
    assert all(parameter.is_meta for parameter in model.parameters())


def test_a_converted_folder_is_loaded_and_checked(tmp_path):
    model = random_network(TINY, seed=5)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(asdict(TINY)))
    path = tmp_path / "model.safetensors"
    save_file(model.state_dict(), path)
    again = read_folder(tmp_path)
    for name, tensor in again.state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name])
    config.write_text(json.dumps(asdict(Sizes(260, 2, 32, 4, 48, (1,), 2, 24, 2, 40))))
    with pytest.raises(UserError, match="not the tensors of this architecture"):
        read_folder(tmp_path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"damaged"):
        read_folder(tmp_path)
    path.unlink()
    with pytest.raises(UserError, match="no such file"):
        read_folder(tmp_path)
