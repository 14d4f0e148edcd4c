"""RETRO on random shapes: the decoder with its own encoder, converted from a released checkpoint,
and the passes of RETRO-fit, against plain ones in torch (Borgeaud et al., 2022, section 2.4 and
appendix B).
"""

import random
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import tiny_models
from ragauge.assets import retro
from ragauge.pipelines.decoding import read_through
from ragauge.pipelines.modes._cross_attention import CrossWeights
from ragauge.pipelines.modes._retro import RetroLM, read_folder
from ragauge.pipelines.sources import NeighbourSource
from ragauge.pipelines.windows import Windows
from retro_released import SETTINGS, Released, released_state, write_released

CHUNK = 64
VOCAB = 260
TOLERANCE = {"atol": 2e-4, "rtol": 1e-4}


class Given(NeighbourSource):
    """Neighbours by window, known before."""

    def __init__(self, found):
        self.found = found

    def neighbours(self, window, ids, more):
        return self.found[window]


def logits_of(lm, ids, found, interval, draw):
    """Logits of a sequence that is read in random pieces."""
    reader = lm.open(len(ids))
    windows = Windows(interval)
    source = Given(found)
    stops = sorted({len(ids), *(draw.randint(1, len(ids)) for _ in range(draw.randint(0, 5)))})
    parts = [read_through(reader, ids, stop, source, windows) for stop in stops]
    return torch.cat([logits for part in parts for *_, logits in part])


# ---- RETRO's own network


def random_settings(draw):
    """Settings of a retro.json."""
    heads = draw.randint(1, 3)
    encoder_heads = draw.randint(1, 3)
    width = heads * draw.choice((8, 10))
    encoder_width = encoder_heads * draw.choice((6, 8))
    layers = draw.randint(1, 5)
    encoder_layers = draw.randint(1, 3)
    return SETTINGS | {
        "dec_num_layers": layers,
        "dec_hidden_dim": width,
        "dec_qkv_dim": width,
        "dec_num_heads": heads,
        "dec_ffn_dim": draw.randint(5, 40),
        "dec_cca_layers": sorted(draw.sample(range(layers), draw.randint(1, layers))),
        "enc_num_layers": encoder_layers,
        "enc_hidden_dim": encoder_width,
        "enc_qkv_dim": encoder_width,
        "enc_num_heads": encoder_heads,
        "enc_ffn_dim": draw.randint(5, 40),
        "enc_ca_layers": list(range(draw.randint(0, encoder_layers), encoder_layers)),
        "dec_sa_pos_bias_num_buckets": draw.randint(2, 300),
        "dec_cca_pos_bias_num_buckets": draw.randint(2, 500),
        "enc_sa_pos_bias_num_buckets": draw.randint(2, 300),
        "enc_ca_pos_bias_num_buckets": draw.randint(2, 200),
    }


def random_ids(draw, count):
    return draw.choices(range(4, VOCAB), k=count)


def random_found(draw, length, interval, most):
    """Neighbours of every window: none to `most`, some of them short, some without tokens."""
    found = []
    for _ in range(Windows(interval).window_at(length - 1) + 1):
        lengths = [draw.choice((0, 1, CHUNK, 100, 128, 128)) for _ in range(draw.randint(0, most))]
        found.append([random_ids(draw, count) for count in lengths])
    return found


def random_length(draw, interval):
    """At a chunk's edge, one token from it, within one, or without a whole query."""
    edge = CHUNK - 1 + interval * draw.randint(0, 160 // interval)
    return max(2, draw.choice((edge, edge + 1, edge - 1, draw.randint(2, 220))))


@pytest.mark.parametrize("seed", range(24))
def test_a_random_retro_is_the_plain_one(seed, tmp_path):
    draw = random.Random(seed)
    settings = random_settings(draw)
    checkpoint = write_released(tmp_path, settings, seed) / "model.ckpt"
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "converted").mkdir()
    retro.convert(checkpoint, tmp_path / "converted")
    plain = Released(released_state(settings, seed), settings)
    interval = draw.choice((8, 16, 32, 64))
    ids = random_ids(draw, random_length(draw, interval))
    found = random_found(draw, len(ids), interval, draw.choice((1, 2, 4)))
    expected = plain.logits(ids, [texts or [[]] for texts in found], interval)
    without = plain.logits(ids, [], interval)
    lm = RetroLM(read_folder(tmp_path / "converted"))
    logits = logits_of(lm, ids, found, interval, draw)
    torch.testing.assert_close(logits, expected, **TOLERANCE)
    # what a window's neighbours are matters to its own tokens and those after it alone
    read = [u for u, texts in enumerate(found) if any(map(len, texts))]
    first = Windows(interval).first(read[0]) if read else len(ids)
    torch.testing.assert_close(logits[:first], without[:first], **TOLERANCE)
    if first < len(ids):
        assert (logits[first] - without[first]).abs().max() > 1e-4


# ---- RETRO-fit


def rotated(lm, x, positions):
    return tiny_models.rotated(x, torch.as_tensor(positions).double(), lm.shape.rope_theta)


def attention(q, k, v, hidden=None):
    """Queries (token, head, dim) over keys (key, kv_head, dim)."""
    k, v = (part.repeat_interleave(q.shape[1] // k.shape[1], 1) for part in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)


def heads_of(lm, layer, normed):
    """Queries, keys and values (token, head, dim) of a layer, not rotated."""
    shape = lm.shape
    parts = (normed @ layer.qkv.weight.mT).unflatten(-1, (-1, shape.head_dim))
    return parts.split([shape.heads[0], shape.kv_heads[0], shape.kv_heads[0]], 1)


def after_mlp(layer, x):
    gate, value = (tiny_models.norm(layer.mlp_norm, x) @ layer.up.weight.mT).chunk(2, -1)
    return x + (F.silu(gate) * value) @ layer.down.weight.mT


def after_attention(lm, layer, x):
    """States after a layer's causal self-attention."""
    at = torch.arange(len(x))
    q, k, v = heads_of(lm, layer, tiny_models.norm(layer.attention_norm, x))
    mixed = attention(rotated(lm, q, at), rotated(lm, k, at), v, at[None] > at[:, None])
    return x + mixed @ layer.out.weight.mT


def by_cross_attention(lm, weights, ids, found, windows):
    """Last states of a sequence whose windows attend to the encoded neighbours, window by window."""
    own = lm.decoder.weights
    parts = weights.layers(torch.float32)
    crosses = dict(zip(weights.places, parts.cross, strict=True))
    memory = []
    for texts in found:
        states = [own.embedding[text] for text in texts if text]
        for layer in parts.encoder:
            states = [after_mlp(layer, after_attention(lm, layer, x)) for x in states]
        memory.append(states)
    x = own.embedding[ids]
    for index, layer in enumerate(own.layers):
        x = after_attention(lm, layer, x)
        added = torch.zeros_like(x)
        for window, states in enumerate(memory):
            if index not in crosses or not states:
                continue
            cross = crosses[index]
            first = windows.first(window)
            places = torch.arange(first, min(len(ids), windows.first(window + 1)))
            keys_at = torch.cat([torch.arange(len(s)) + first - len(s) for s in states])
            normed = tiny_models.norm(cross.memory_norm, torch.cat(states))
            shaped = (normed @ cross.kv.weight.mT).unflatten(-1, (2, -1, lm.shape.head_dim))
            k, v = shaped.unbind(1)
            q = tiny_models.norm(cross.query_norm, x[places]) @ cross.q.weight.mT
            q = rotated(lm, q.unflatten(-1, (-1, lm.shape.head_dim)), places)
            mixed = attention(q, rotated(lm, k, keys_at), v) @ cross.out.weight.mT
            added = added.index_add(0, places, cross.gate.tanh() * mixed)
        x = after_mlp(layer, x + added)
    return x


def random_lm(draw):
    heads = draw.choice((2, 4))
    layers = draw.randint(1, 3)
    kv_heads = draw.choice([n for n in (1, 2, 4) if heads % n == 0])
    shape = replace(
        tiny_models.LLAMA,
        heads=(heads,) * layers,
        kv_heads=(kv_heads,) * layers,
        head_dim=draw.choice((4, 8)),
        d_model=draw.choice((16, 24)),
        ffn=(draw.randint(5, 40),) * layers,
    )
    return tiny_models.tiny_lm(shape, seed=draw.randint(0, 9))


def trained(draw, weights):
    """Weights as training might leave them."""
    made = torch.Generator().manual_seed(draw.randint(0, 99))
    with torch.no_grad():
        for parameter in weights.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=made)
    return weights


@pytest.mark.parametrize("seed", range(8))
def test_the_pass_that_retrofit_trains_is_the_plain_one(seed):
    """Losses, and the gradients of all weights."""
    draw = random.Random(f"cross_attention/{seed}")
    lm = random_lm(draw)
    layers = len(lm.shape.heads)
    places = draw.sample(range(layers), draw.randint(1, layers))
    weights = trained(draw, CrossWeights(lm.decoder, places, draw.randint(1, layers)))
    windows = Windows(draw.choice((16, 32, 64)))
    ids = random_ids(draw, max(66, random_length(draw, windows.interval)))
    # without the last window of some, as where the last token needs no neighbours
    found = random_found(draw, len(ids) - draw.choice((0, 1)), windows.interval, 3)
    if not any(text for texts in found for text in texts):
        found[0] = [random_ids(draw, 5)]
    nll = weights.nll(lm.decoder, ids, found, windows)
    own = lm.decoder.weights
    x = tiny_models.norm(own.norm, by_cross_attention(lm, weights, ids, found, windows))
    logits = x[CHUNK - 1 : -1] @ own.head.weight.mT
    expected = F.cross_entropy(logits, torch.tensor(ids[CHUNK:]), reduction="none")
    torch.testing.assert_close(nll, expected, **TOLERANCE)
    parameters = list(weights.parameters())
    gradients = torch.autograd.grad(nll.mean(), parameters)
    plain = torch.autograd.grad(expected.mean(), parameters)
    for gradient, same in zip(gradients, plain, strict=True):
        torch.testing.assert_close(gradient, same, atol=1e-5, rtol=1e-3)
    assert max(gradient.abs().max() for gradient in plain) > 1e-4
