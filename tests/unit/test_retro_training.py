"""Adapters: without effect at first, the same merged and differentiable, kept in files that are checked; and training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tiny_models
from ragauge.errors import UserError
from ragauge.retro.adapters import Adapters
from ragauge.retro.differentiable import check, joint_nll
from ragauge.retro.joint import JointAttention
from ragauge.retro.scoring import token_nll
from ragauge.retro.sources import Ask, Fresh
from ragauge.retro.windows import Windows
from retro_parts import ExactRetriever, tokens

IDS = tokens(150, 1)
DOCUMENTS = [tokens(300, 2), tokens(70, 3), IDS[20:140], tokens(5, 5)]


def changed(lm: object, seed: int = 1) -> Adapters:
    """Adapters as training might leave them."""
    adapters = Adapters(lm.decoder.weights, rank=3)  # type: ignore[attr-defined]
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (*adapters.up, *adapters.offset):
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.3)
    return adapters


@pytest.mark.parametrize("interval", [16, 64])
@pytest.mark.parametrize("trained", [False, True])
def test_the_pass_for_gradients_equals_reading_window_by_window(interval: int, trained: bool) -> None:
    lm, windows = tiny_models.tiny_lm(), Windows(interval)
    assert lm.decoder is not None
    adapters = changed(lm) if trained else Adapters(lm.decoder.weights)
    source = Fresh(Ask(ExactRetriever(DOCUMENTS)), windows, lambda call: None)
    reader = JointAttention().open(lm, len(IDS), 256, adapters.merged(lm) if trained else None)
    nll = token_nll(reader, IDS, source, windows)
    found = [source.ask.texts(one, windows.kept(i)) for i, one in enumerate(source.asked)]
    assert len(found) > 1
    torch.testing.assert_close(joint_nll(lm.decoder, adapters, IDS, found, windows), nll[63:], atol=2e-4, rtol=1e-4)
    plain = joint_nll(lm.decoder, Adapters(lm.decoder.weights), IDS, found, windows)
    assert trained == (not torch.allclose(plain, nll[63:], atol=1e-3))


def test_without_neighbours_adapters_change_nothing() -> None:
    lm = tiny_models.tiny_lm()
    assert lm.decoder is not None
    losses = [joint_nll(lm.decoder, a, IDS, [], Windows()) for a in (changed(lm), Adapters(lm.decoder.weights))]
    torch.testing.assert_close(*losses)


def test_files_are_checked(tmp_path: Path) -> None:
    lm = tiny_models.tiny_lm()
    adapters, path = changed(lm), tmp_path / "a.safetensors"
    adapters.save(path, model_sha256="abc", model="tiny")
    again = Adapters.load(path, lm, "abc")
    for name, tensor in adapters.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], tensor)
    with pytest.raises(UserError, match="trained for another decoder"):
        Adapters.load(path, lm, "def")
    with pytest.raises(UserError, match="of other sizes"):
        Adapters.load(path, tiny_models.tiny_lm(tiny_models.ALIBI))
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match="cannot be read as adapters"):
        Adapters.load(path, lm)
    with pytest.raises(UserError, match="cannot be read as adapters"):
        Adapters.load(tmp_path / "none", lm)


def test_only_the_llama_family_is_trained() -> None:
    decoder = tiny_models.tiny_lm(tiny_models.ALIBI).decoder
    assert decoder is not None
    with pytest.raises(UserError, match="not bloom"):
        check(decoder)
