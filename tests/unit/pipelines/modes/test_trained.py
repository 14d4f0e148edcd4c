"""Files of trained weights are read as they were written, and refused where they belong to
something else.
"""

import pytest
import torch

import tiny_models
from ragauge.errors import UserError
from ragauge.pipelines.modes._cross_attention import CrossWeights
from ragauge.pipelines.modes._joint import Adapters
from retro_parts import cross_weights


@pytest.fixture(params=["joint", "cross_attention"])
def weights(request, lm):
    return Adapters.fresh(lm, 1) if request.param == "joint" else cross_weights(lm)


def test_files_are_checked(lm, weights, tmp_path):
    path = tmp_path / "a.safetensors"
    kind = type(weights)
    other = CrossWeights if kind is Adapters else Adapters
    weights.save(path, model_sha256="abc", model="tiny")
    again = kind.load(path, lm, "abc")
    for name, tensor in weights.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor)
    with pytest.raises(UserError, match=r"trained for another decoder \(tiny\)"):
        kind.load(path, lm, "def")
    with pytest.raises(UserError, match=f"for mode '{kind.mode}', not '{other.mode}'"):
        other.load(path, lm)
    with pytest.raises(UserError, match="of other sizes"):
        kind.load(path, tiny_models.tiny_lm(tiny_models.ALIBI))
    earlier = (
        Adapters(lm.decoder.weights, rank=3)
        if kind is Adapters
        else CrossWeights(lm.decoder, (0, 1), encoder_layers=1)
    )
    earlier.save(path)
    with pytest.raises(UserError, match=f"than mode '{kind.mode}' has on this decoder"):
        kind.load(path, lm)
    path.write_bytes(path.read_bytes()[:100])
    for name in (path, tmp_path / "none"):
        with pytest.raises(UserError, match="cannot be read as adapters"):
            kind.load(name, lm)
