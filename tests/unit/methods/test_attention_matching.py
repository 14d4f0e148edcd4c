"""Attention Matching: its two least squares against scipy and numpy, and attention with fitted keys
by a formula.
"""

import numpy as np
import pytest
import torch
from scipy import optimize

import tiny_models
from ragauge.engines.spans import Row, Span
from ragauge.methods.base.compression import Press
from ragauge.methods.base.method import plain_row
from ragauge.methods.compressors import attention_matching
from ragauge.methods.compressors.attention_matching import (
    BOUNDS,
    AttentionMatching,
    fit_values,
    fit_weights,
)
from ragauge.methods.compressors.base import Context
from ragauge.methods.prompts import unit_steps
from tiny_models import tiny_prompt

TOKENS = 30


@pytest.fixture(scope="module", params=["llama", "bloom", "openelm"])
def lm(request):
    return tiny_models.tiny_lm(tiny_models.FAMILIES[request.param])


def exponentials():
    draw = torch.Generator().manual_seed(0)
    raw = torch.randn(2, 60, TOKENS, dtype=torch.float64, generator=draw) * 1.5
    return (raw - raw.amax(-1, keepdim=True)).exp()


def test_weights_are_those_of_scipy(monkeypatch):
    every = exponentials()
    selected = every[..., :8]
    mass = every.sum(-1)
    monkeypatch.setattr(attention_matching, "STEPS", 2000)
    found = fit_weights(selected, mass)
    for head in range(2):
        bounded = optimize.lsq_linear(selected[head].numpy(), mass[head].numpy(), BOUNDS, tol=1e-14)
        np.testing.assert_allclose(found[head].numpy(), bounded.x, rtol=1e-6)
    monkeypatch.undo()
    losses = [
        (selected @ w[..., None])[..., 0] - mass for w in (found, fit_weights(selected, mass))
    ]
    best, quick = (float(loss.square().sum()) for loss in losses)
    assert quick <= best * 1.001


def test_values_are_least_squares():
    """The normal equations; where queries are too few, the nearest to the tokens' own of those that
    fit.
    """
    every = exponentials()
    draw = torch.Generator().manual_seed(1)
    output, own = (torch.randn(2, n, 5, dtype=torch.float64, generator=draw) for n in (60, 8))
    for queries in (60, 4):
        weighted = every[:, :queries, :8]
        wanted = output[:, :queries]
        attention = (weighted / weighted.sum(-1, keepdim=True)).numpy()
        problems = zip(attention, wanted.numpy(), own.numpy(), strict=True)
        nearest = torch.tensor(
            np.stack([o + np.linalg.pinv(a) @ (y - a @ o) for a, y, o in problems])
        )
        torch.testing.assert_close(fit_values(weighted, wanted, own), nearest, atol=1e-3, rtol=1e-3)


def fitted(lm, ratio, budget="head"):
    """A document's cache, what is left of it, and the compressor with its reference queries."""
    ids = tiny_prompt([TOKENS]).documents[0]
    cache = lm.new_cache(len(ids))
    lm.extend(cache, [plain_row(ids)], stage="documents")
    compressor = AttentionMatching(0)
    context = Context(lm, cache, Span(0, len(ids)), ids, offline=True)
    small = Press(lm, lambda: compressor, ratio, budget).compress(context, compressor)  # type: ignore[arg-type]
    return cache, small, compressor


@pytest.mark.parametrize("budget", ["head", "layer"])
def test_fitted_keys_give_the_attention_of_all(lm, budget):
    """Outputs and masses of the reference queries, by a plain formula, are nearer than those of the
    tokens alone.
    """
    cache, small, compressor = fitted(lm, 0.7, budget)
    assert small.head_bias is not None
    assert small.head_positions is not None
    for layer, queries in compressor.reference.queries.items():
        bias = compressor.biases[0] if compressor.biases else torch.zeros(1, 1, TOKENS)
        group = lm.shape.heads[layer] // lm.shape.kv_heads[layer]
        errors = {"fitted": np.zeros(2), "tokens": np.zeros(2)}
        for head, q in enumerate(queries):
            at = small.head_positions[layer][head // group][: small.length]
            slots = at[at.isfinite()].long()
            count = len(slots)
            shift = bias[min(head, len(bias) - 1)]
            k, v = (x[layer][head // group, :TOKENS] for x in (cache.k, cache.v))
            raw = q @ k.T / 8**0.5 + shift
            output = raw.softmax(-1) @ v
            mass = raw.logsumexp(-1)
            torch.testing.assert_close(small.k[layer][head // group, :count], k[slots])
            beta = small.head_bias[layer][head // group, :count]
            values = small.v[layer][head // group, :count]
            assert beta.abs().max() <= 3 + 1e-5
            for name, left, c in (
                ("fitted", raw[:, slots] + beta, values),
                ("tokens", raw[:, slots], v[slots]),
            ):
                mse = (left.softmax(-1) @ c - output).square().sum()
                errors[name] += [float(mse), float((left.logsumexp(-1) - mass).square().sum())]
        assert (errors["fitted"] < 0.8 * errors["tokens"]).all()


@pytest.mark.parametrize("budget", ["head", "layer"])
def test_a_decoder_adds_the_bias_of_each_head(lm, budget):
    """w copies of a key and its value are one key with the bias log w: read with the weights 1 to
    3.
    """
    cache, small, _ = fitted(lm, 0.7, budget)
    assert small.head_positions is not None
    slots = [
        [at[at.isfinite()].long().tolist() for at in heads[:, : small.length]]
        for heads in small.head_positions
    ]
    few = cache.select_by_head(slots, 12)
    copies = [
        [[s for i, s in enumerate(head) for _ in range(1 + i % 3)] for head in heads]
        for heads in slots
    ]
    many = cache.select_by_head(copies, 12)
    few._set_values("head_bias")
    for bias in few.head_bias:
        bias[:, : few.length] = torch.tensor([1 + i % 3 for i in range(few.length)]).log()
    joined = lm.join(few, [Span(0, few.length)], 8)
    grown = lm.new_cache(1)
    grown.append(few, Span(0, few.length))
    outputs = []
    for target in (many, few, joined, grown):
        length = target.length
        first = Row([5, 9, 7], unit_steps(40, 3), (Span(0, length),))
        lm.extend(target, [first], stage="query")
        target.truncate(length)
        lm.extend(target, [first], stage="query")
        row = Row([8], [43.0], (Span(0, target.length),))
        outputs.append(lm.extend(target, [row], stage="query", last_logits=True).last_logits)
    for found in outputs[1:]:
        torch.testing.assert_close(found, outputs[0], atol=1e-4, rtol=1e-4)


def test_biases_cost_bytes_and_cannot_be_selected_again(lm):
    _, small, _ = fitted(lm, 0.5)
    plain = sum(x.shape[0] * x.shape[2] * 4 for _, x in small.tensors()) * small.length
    assert small.bytes == plain + 4 * sum(lm.shape.kv_heads) * small.length
    with pytest.raises(ValueError, match="without score biases"):
        small.select_by_head([[[0]] * heads for heads in lm.shape.kv_heads])


@pytest.mark.parametrize("budget", ["layer", "all"])
def test_heads_without_tokens_add_nothing(lm, budget):
    _, small, _ = fitted(lm, 0.97, budget)
    assert any(at[:, : small.length].isinf().all(1).any() for at in small.head_positions or ())
    assert all(values.isfinite().all() for values in (*small.v, *(small.head_bias or ())))
