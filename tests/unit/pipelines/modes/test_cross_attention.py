"""Gated cross-attention: windows read one after another, the pass for gradients (which
`tests/equivalence/test_retro.py` compares with a plain one), and the decoder before training.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import tiny_models
from ragauge.cost.overlap import AHEAD
from ragauge.engines.loading import random_lm
from ragauge.errors import UserError
from ragauge.pipelines.evaluation import EvaluationStretch
from ragauge.pipelines.modes._cross_attention import CrossDecoder, CrossWeights, cross_layers
from ragauge.pipelines.modes._joint import JointDecoder
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.modes.cross_attention import CrossAttention
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


@pytest.mark.parametrize(
    ("family", "changes", "dtype", "atol"),
    [
        ("llama", {}, "float32", 2e-4),
        ("llama", {"attention_bias": True}, "float32", 1e-4),
        ("llama", {}, "bfloat16", 0.05),
        *((family, {}, "float32", 2e-4) for family in tiny_models.FAMILIES if family != "llama"),
        ("mpt", {}, "bfloat16", 0.05),
    ],
)
@pytest.mark.parametrize("interval", [16, 64])
def test_windows_equal_the_pass_for_gradients(family, changes, dtype, atol, interval):
    lm = random_lm(replace(tiny_models.FAMILIES[family], **changes), dtype=dtype, threads=1)
    windows = Windows(interval)
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
    plain = JointDecoder(lm).open(len(IDS)).read(IDS)
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
    # the encoder's two layers, and keys and values of two layers of the decoder
    assert call["macs"] == sum(texts) * 2 * (layer + width * 2 * 2 * 8) + 2 * pairs


def test_a_plain_decoder_has_no_cross_attention(lm):
    with pytest.raises(UserError, match="requires trained weights"):
        CrossAttention().load(Checkpoint())


# ---- its layers


@pytest.mark.parametrize(("layers", "chosen"), [(30, (9, 19, 29)), (12, (3, 7, 11)), (2, (0, 1))])
def test_layers_are_spread_over_the_decoder(layers, chosen):
    assert cross_layers(layers) == chosen
