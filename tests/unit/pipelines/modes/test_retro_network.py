"""RETRO at the paper's sizes by count, its relative biases, and weights of a user's file."""

import pytest
import torch
from safetensors.torch import save_file

from ragauge.errors import UserError
from ragauge.pipelines.modes._retro import load_weights, random_network
from ragauge.pipelines.sizes import PAPER, Sizes
from retro_parts import TINY


def test_the_papers_sizes_have_633_million_weights():
    model = random_network(PAPER, device="meta")
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == 633
    assert all(parameter.is_meta for parameter in model.parameters())


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_users_checkpoint_is_loaded_and_checked(tmp_path, suffix):
    model = random_network(TINY, seed=5)
    path = tmp_path / f"retro{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(model.state_dict(), path)  # type: ignore[operator]
    again = load_weights(path, TINY)
    for name, tensor in again.state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name])
    with pytest.raises(UserError, match="not the tensors of this architecture"):
        load_weights(path, Sizes(260, 2, 32, 4, 48, (1,), 2, 24, 2, 40))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"damaged"):
        load_weights(path, TINY)
    with pytest.raises(UserError, match="no such file"):
        load_weights(tmp_path / f"none{suffix}", TINY)
