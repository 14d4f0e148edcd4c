"""Adapters: without effect at first, the same merged and differentiable, in checked files; and
their training.
"""

import errno
from itertools import count

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file

import tiny_models
from json_lines import read_lines
from ragauge.errors import UserError
from ragauge.pipelines.modes._joint import Adapters, JointDecoder
from ragauge.pipelines.sources import RetrievalOptions
from ragauge.pipelines.windows import Windows
from ragauge.training import fit
from ragauge.training.fit import RetroFit, RetrofitMaterial
from ragauge.training.settings import RetrofitSettings
from retro_parts import ExactRetriever, logits_of, tokens

IDS = tokens(150, 1)
DOCUMENTS = [tokens(300, 2), tokens(70, 3), IDS[20:140], tokens(5, 5)]


def changed(lm):
    """Adapters as training might leave them."""
    adapters = Adapters.fresh(lm, 0)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in (*adapters.up, *adapters.offset):
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.3)
    return adapters


@pytest.mark.parametrize(
    ("family", "interval", "trained"),
    [
        ("llama", 16, False),
        ("llama", 64, False),
        *((family, 16, True) for family in tiny_models.FAMILIES),
    ],
)
def test_the_pass_for_gradients_equals_reading_window_by_window(family, interval, trained):
    lm = tiny_models.tiny_lm(tiny_models.FAMILIES[family])
    windows = Windows(interval)
    adapters = changed(lm) if trained else Adapters(lm.decoder.weights)
    model = JointDecoder(lm, adapted=adapters.merged(lm) if trained else None)
    logits, found = logits_of(model, IDS, windows, DOCUMENTS)
    nll = F.cross_entropy(logits[63:-1], torch.tensor(IDS[64:]), reduction="none")
    assert len(found) > 1
    torch.testing.assert_close(
        adapters.nll(lm.decoder, IDS, found, windows), nll, atol=2e-4, rtol=1e-4
    )
    adapters.nll(lm.decoder, IDS, found, windows).mean().backward()
    assert all(up.grad is not None and up.grad.abs().max() > 0 for up in adapters.up)
    plain = Adapters(lm.decoder.weights).nll(lm.decoder, IDS, found, windows)
    assert trained == (not torch.allclose(plain, nll, atol=1e-3))


# ---- training


def trainer(folder, **recipe):
    """Documents that repeat one text: what follows a neighbour's chunk is what follows the query."""
    text = tokens(256, 7)
    rest = [tokens(64 * 4, seed) for seed in range(20, 31)]
    searcher = ExactRetriever(
        [text, *([*text[:128], *text] if i % 2 else rest[i] for i in range(11))]
    )
    given = {"minutes": 0.01, "batch": 2, "held_out": 2, "curve_every_s": 0.2}
    material = RetrofitMaterial(searcher, searcher, RetrofitSettings(**given | recipe))  # type: ignore[arg-type]
    return RetroFit(tiny_models.tiny_lm(), material, folder, {"model": "tiny"})


@pytest.mark.parametrize(
    ("mode", "losses"),
    [
        ("joint", [6.025836, 6.009964, 6.079902, 6.048239, 6.039431, 5.916592]),
        ("cross_attention", [6.005742, 5.96989, 6.04995, 6.033908, 5.989625, 5.901273]),
    ],
)
def test_a_training_has_the_losses_of_the_plain_loop(mode, losses, tmp_path, monkeypatch):
    """As they were before transformers' Trainer took the steps, with the decoder left alone."""
    monkeypatch.setattr(fit, "MOST_STEPS", len(losses))
    # their rank then
    monkeypatch.setattr(
        Adapters, "fresh", lambda lm, seed: Adapters(lm.decoder.weights, rank=2, seed=seed)
    )
    made = trainer(tmp_path, mode=mode, minutes=1e6)
    layers = made.lm.decoder.weights.layers
    before = [layer.qkv.weight.clone() for layer in layers]
    found = [point["loss"] for point in made.run() if "loss" in point]
    assert found == pytest.approx(losses, abs=2e-5)
    torch.testing.assert_close(before, [layer.qkv.weight for layer in layers], rtol=0, atol=0)


def test_training_ends_with_its_budget_and_resumes_with_a_longer_one(tmp_path):
    def curve():
        return [*read_lines(tmp_path / "curve.jsonl")]

    made = trainer(tmp_path, minutes=0.004)
    path = made.fit()
    assert 0.24 <= made.seconds < 10
    points = curve()
    assert points[0]["step"] == 0
    assert points[-1]["step"] == made.state.global_step > 0
    assert points[-1].keys() >= {"held_out_retrieved", "held_out_random", "seconds", "training"}
    weights = load_file(path)
    path.unlink()  # as a workflow does before it makes a file anew
    same = trainer(tmp_path, minutes=0.004)
    assert same.fit() == path
    assert str(load_file(path)) == str(weights)
    assert same.state.global_step == made.state.global_step  # nothing was left to do
    longer = trainer(tmp_path, minutes=(made.seconds + 0.2) / 60)
    longer.fit()
    assert longer.state.global_step > made.state.global_step
    assert curve()[: len(points)] == points


def test_a_resumed_training_goes_on_with_the_texts_that_come_next(tmp_path, monkeypatch):
    def run(name, steps):
        monkeypatch.setattr(fit, "MOST_STEPS", steps)
        made = trainer(tmp_path / name, minutes=1e6)
        curve = made.run()
        weights = {name: tensor.detach() for name, tensor in made.model.state_dict().items()}
        return [point["loss"] for point in curve if "loss" in point], weights

    run("cut", 2)
    torch.testing.assert_close(run("cut", 5), run("whole", 5), rtol=0, atol=0)


def test_a_text_is_no_neighbour_of_its_own(tmp_path):
    material = trainer(tmp_path).material
    searcher = material.searcher
    for start in material.starts(held_out=False)[:8]:
        if material.text(start):
            example = material.example(start)
            own = set(range(start - 1, start + 3))
            asked = RetrievalOptions(searcher, 2, excluded_chunks=frozenset(own))
            found, _ = asked.search(example["ids"][:64], 1)
            allowed = [asked.texts(found, slice(0, 128))]
            assert example["neighbours"][0] == allowed[0]
            assert all(len(window) == 2 for window in example["neighbours"])


def test_a_database_of_short_documents_cannot_be_trained_on(tmp_path):
    searcher = ExactRetriever([tokens(100, i) for i in range(12)])
    material = RetrofitMaterial(searcher, searcher, RetrofitSettings())
    with pytest.raises(UserError, match="use a larger database"):
        RetroFit(tiny_models.tiny_lm(), material, tmp_path, {})


def test_one_long_document_among_thousands_of_short_ones_is_trained_on():
    short = [tokens(8, 1)] * 4001
    searcher = ExactRetriever([*short, tokens(64 * 3, 2)])
    searcher_of_short = ExactRetriever(short)
    settings = RetrofitSettings()
    material = RetrofitMaterial(searcher, searcher, settings)
    draw = np.random.default_rng([settings.seed, 0])
    starts = material.starts(held_out=False)
    long = starts[-3]
    misses = next(n for n in count() if starts[int(draw.integers(len(starts)))] == long)
    assert misses > 1000
    assert next(material.draw_starts()) == long
    with pytest.raises(UserError, match="no document has 3 chunks"):
        next(RetrofitMaterial(searcher_of_short, searcher_of_short, settings).draw_starts())


@pytest.mark.parametrize(
    ("where", "error"),
    [
        (
            "torch.save",
            RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 9 vs 8"),
        ),
        ("ragauge.training.fit.replace_atomically", OSError(errno.ENOSPC, "No space left")),
        ("ragauge.pipelines.modes._trained.save", SafetensorError("os error 28")),
    ],
)
def test_a_full_disk_is_one_line(where, error, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise error

    made = trainer(tmp_path, minutes=0.001)
    monkeypatch.setattr(where, fail)
    with pytest.raises(UserError, match=rf"^[^\n]*{tmp_path}/[^\n]*{str(error)[-8:]}[^\n]*$"):
        made.fit()


def test_without_neighbours_adapters_change_nothing():
    lm = tiny_models.tiny_lm()
    mine, plain = (
        a.nll(lm.decoder, IDS, [], Windows()) for a in (changed(lm), Adapters(lm.decoder.weights))
    )
    torch.testing.assert_close(mine, plain)
