"""Gated cross-attention: the decoder before training, a plain pass after it, itself in steps; files
and training.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tiny_models
from ragauge.cost.overlap import AHEAD
from ragauge.engines.loading import random_lm
from ragauge.errors import UserError
from ragauge.pipelines.evaluation import EvaluationStretch
from ragauge.pipelines.modes._cross_attention import CrossDecoder, CrossWeights, cross_layers
from ragauge.pipelines.modes._joint import JointDecoder
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.modes.cross_attention import CrossAttention
from ragauge.pipelines.modes.joint import JointAttention
from ragauge.pipelines.pipeline import Pipeline
from ragauge.pipelines.windows import Windows
from retro_parts import ExactRetriever, cross_weights, logits_of, record_of, specified, tokens

IDS = tokens(150, 1)
DOCUMENTS = [tokens(300, 2), tokens(70, 3), IDS[20:140], tokens(5, 5)]


@pytest.fixture(scope="module")
def weights(lm):
    return cross_weights(lm)


@pytest.fixture(scope="module")
def cross(lm, weights):
    return CrossDecoder(lm, weights)


# ---- what it computes


def attention(q, k, v, hidden=None):
    """Queries (token, head, dim) over keys (key, kv_head, dim), by the formula."""
    k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], 1) for part in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    scores = scores if hidden is None else scores.masked_fill(hidden, float("-inf"))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)


def after_attention(lm, layer, x, first):
    """States after a layer's causal self-attention, the tokens at positions from `first` on."""
    places = torch.arange(len(x), dtype=torch.float64) + first
    shape = lm.shape
    heads = shape.heads[0]
    kv = shape.kv_heads[0]
    parts = F.linear(tiny_models.norm(layer.attention_norm, x), layer.qkv.weight).view(
        len(x), -1, shape.head_dim
    )
    q, k = (
        tiny_models.rotated(p, places, shape.rope_theta)
        for p in parts[:, : heads + kv].split([heads, kv], 1)
    )
    mixed = attention(q, k, parts[:, heads + kv :], places[None] > places[:, None])
    return x + mixed @ layer.out.weight.T


def after_mlp(layer, x):
    gate, value = (tiny_models.norm(layer.mlp_norm, x) @ layer.up.weight.T).chunk(2, -1)
    return x + (F.silu(gate) * value) @ layer.down.weight.T


def found_by_one(lm, layer, x, place, states, first):
    """What cross-attention adds to the token at a place, whose window begins at `first`."""
    shape = lm.shape
    theta = lm.shape.rope_theta
    at = [torch.arange(len(s), dtype=torch.float64) + first - len(s) for s in states]
    normed = tiny_models.norm(layer.memory_norm, torch.cat(list(states)))
    k, v = (normed @ layer.kv.weight.T).view(len(normed), 2, -1, shape.head_dim).unbind(1)
    q = (tiny_models.norm(layer.query_norm, x) @ layer.q.weight.T).view(1, -1, shape.head_dim)
    q = tiny_models.rotated(q, torch.tensor([place], dtype=torch.float64), theta)
    mixed = attention(q, tiny_models.rotated(k, torch.cat(at), theta), v)[0]
    return layer.gate.tanh() * (layer.out.weight @ mixed)  # type: ignore[no-any-return]


def reference(lm, weights, found, windows):
    """Logits of the whole sequence, token by token where they attend to neighbours."""
    own = lm.decoder.weights
    parts = weights.layers(torch.float32)
    memory: list[list[Tensor]] = []
    for texts in found:
        memory.append([own.embedding[text] for text in texts])
        for layer in parts.encoder:
            memory[-1] = [
                after_mlp(layer, after_attention(lm, layer, states, 0)) for states in memory[-1]
            ]
    x = own.embedding[IDS]
    for index, layer in enumerate(own.layers):
        x = after_attention(lm, layer, x, 0)
        added = torch.zeros_like(x)
        for place in range(windows.first(0), len(IDS)):
            window = windows.window_at(place)
            inner = parts.cross[weights.places.index(index)]
            at = windows.first(window)
            added[place] = found_by_one(lm, inner, x[place], place, memory[window], at)
        x = after_mlp(layer, x + added)
    return tiny_models.norm(own.norm, x) @ own.head.weight.T


@pytest.mark.parametrize("interval", [16, 64])
def test_windows_equal_a_plain_pass_and_the_pass_for_gradients(lm, weights, cross, interval):
    windows = Windows(interval)
    logits, found = logits_of(cross, IDS, windows, DOCUMENTS)
    with torch.no_grad():
        torch.testing.assert_close(
            logits, reference(lm, weights, found, windows), atol=2e-4, rtol=1e-4
        )
    nll = F.cross_entropy(logits[63:-1], torch.tensor(IDS[64:]), reduction="none")
    torch.testing.assert_close(
        weights.nll(lm.decoder, IDS, found, windows), nll, atol=2e-4, rtol=1e-4
    )


@pytest.mark.parametrize(
    ("family", "changes", "dtype", "atol"),
    [
        ("llama", {"attention_bias": True}, "float32", 1e-4),
        ("llama", {}, "bfloat16", 0.05),
        *((family, {}, "float32", 2e-4) for family in tiny_models.FAMILIES if family != "llama"),
        ("mpt", {}, "bfloat16", 0.05),
    ],
)
def test_every_family_and_half_precision(family, changes, dtype, atol):
    lm = random_lm(replace(tiny_models.FAMILIES[family], **changes), dtype=dtype, threads=1)
    windows = Windows()
    weights = cross_weights(lm)
    assert ("cross_0_q_bias" in weights.weights) == (lm.shape.bias or lm.shape.attention_bias)
    logits, found = logits_of(CrossDecoder(lm, weights), IDS, windows, DOCUMENTS)
    nll = F.cross_entropy(logits[63:-1].float(), torch.tensor(IDS[64:]), reduction="none")
    again = weights.nll(lm.decoder, IDS, found, windows)
    torch.testing.assert_close(again, nll, atol=atol, rtol=1e-3)
    again.mean().backward()
    assert all(weight.grad is not None for weight in weights.weights.values())


@pytest.mark.parametrize("interval", [16, 64])
def test_before_training_it_is_the_decoder(lm, interval):
    untrained = CrossWeights(lm.decoder, (0, 1))
    windows = Windows(interval)
    plain = JointDecoder(lm, JointAttention()).open(len(IDS)).read(IDS)
    logits, found = logits_of(CrossDecoder(lm, untrained), IDS, windows, DOCUMENTS)
    torch.testing.assert_close(logits, plain, atol=1e-5, rtol=1e-4)
    nll = F.cross_entropy(plain[63:-1], torch.tensor(IDS[64:]), reduction="none")
    torch.testing.assert_close(
        untrained.nll(lm.decoder, IDS, found, windows), nll, atol=1e-4, rtol=1e-4
    )


# ---- records


def record(lm, schedule, interval=64, task="perplexity", **changes):
    chosen = specified(
        schedule, interval, task, mode="cross_attention", adapters="a.safetensors", **changes
    )
    searcher = ExactRetriever(DOCUMENTS)
    return record_of(
        Pipeline(lm, chosen, searcher, searcher), EvaluationStretch("0", -1, tuple(IDS))
    )


def test_neighbours_are_read_ahead(cross):
    found = {
        ahead: record(cross, "piperag", 32, "generate", read_ahead=ahead) for ahead in (True, False)
    }
    assert found[True].generated == found[False].generated
    stages = [call["stage"] for call in found[True].trace]
    assert stages.count("neighbours") == 1
    assert stages.count(AHEAD) == 2
    [call] = [call for call in found[True].trace if call["stage"] == "neighbours"]
    texts = call["lengths"]
    width = 32
    layer = width * 8 * (4 + 2 * 2 + 4) + 3 * width * 48  # attention's and MLP's weights
    pairs = sum(2 * n * n * 4 * 8 for n in texts)
    # keys and values of two layers
    assert call["macs"] == sum(texts) * (layer + 2 * width * 2 * 2 * 8) + pairs


def test_a_plain_decoder_has_no_cross_attention(lm):
    with pytest.raises(UserError, match="requires trained weights"):
        CrossAttention().load(Checkpoint())


# ---- its layers


@pytest.mark.parametrize(
    ("layers", "count", "chosen"), [(30, 3, (9, 19, 29)), (12, 3, (3, 7, 11)), (2, 3, (0, 1))]
)
def test_layers_are_spread_over_the_decoder(layers, count, chosen):
    assert cross_layers(layers, count) == chosen
