"""RETRO on random shapes: the decoder with its own encoder, and the passes of RETRO-fit, against
plain ones in torch (Borgeaud et al., 2022, section 2.4 and appendix B), and the values of the
released code.

The plain decoder reads a whole sequence at once, as the paper writes it: the states are cut into
chunks that begin at a query's last token, and each attends to its own neighbours, padded to equal
lengths and numbers.
"""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tiny_models
from ragauge.assets import retro
from ragauge.pipelines.decoding import read_through
from ragauge.pipelines.modes._cross_attention import CrossWeights
from ragauge.pipelines.modes._joint import Adapters
from ragauge.pipelines.modes._retro import RetroLM, random_network, read_folder
from ragauge.pipelines.sizes import Sizes
from ragauge.pipelines.sources import NeighbourSource
from ragauge.pipelines.windows import Windows

CHUNK = 64
NEIGHBOUR = 128
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


class PlainRetro:
    """RETRO of these tensors."""

    def __init__(self, network):
        self.weights = dict(network.named_parameters())
        self.sizes = network.sizes

    def norm(self, at, x):
        return self.weights[f"{at}.weight"] * x / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-8)

    def feed_forward(self, at, x):
        y = self.norm(f"{at}.ffn_norm", x)
        gate, up = (y @ self.weights[f"{at}.ffn.{name}.weight"].mT for name in ("gate", "up"))
        inner = 0.5 * gate * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate**3)))
        return (inner * up) @ self.weights[f"{at}.ffn.down.weight"].mT

    def attention(self, at, x, source, heads, hidden=None, causal=False):
        """Of (..., token, width) to (..., key, width), positions from 0 in both; hidden (..., key)."""
        q, k, v = (
            (states @ self.weights[f"{at}.{name}.weight"].mT).unflatten(-1, (heads, -1))
            for name, states in (("q", x), ("k", source), ("v", source))
        )
        table = self.weights[f"{at}.bias.table.weight"]
        ahead = 0 if causal else len(table) // 2  # the last entry is of this distance or more
        distance = torch.arange(k.shape[-3])[None] - torch.arange(q.shape[-3])[:, None]
        entry = (distance + len(table) - 1 - ahead).clamp(0, len(table) - 1)
        scores = torch.einsum("...qhd,...khd->...hqk", q, k) + table[entry].permute(2, 0, 1)
        if causal:
            scores = scores.masked_fill(distance > 0, -torch.inf)
        if hidden is not None:
            scores = scores.masked_fill(hidden[..., None, None, :], -torch.inf)
        mixed = torch.einsum("...hqk,...khd->...qhd", scores.softmax(-1).nan_to_num(), v)
        return mixed.flatten(-2) @ self.weights[f"{at}.out.weight"].mT

    def encode(self, ids, hidden, queries):
        """Neighbours (chunk, neighbour, token) given the states of the queries (chunk, token,
        width).
        """
        sizes = self.sizes
        x = self.weights["encoder.embedding.weight"][ids]
        states = queries[:, None].expand(-1, ids.shape[1], -1, -1)
        for layer in range(sizes.encoder_layers):
            at = f"encoder.layers.{layer}"
            y = self.norm(f"{at}.attention_norm", x)
            x = x + self.attention(f"{at}.attention", y, y, sizes.encoder_heads, hidden)
            if layer in sizes.encoder_cross:
                y = self.norm(f"{at}.cross_norm", x)
                x = x + self.attention(f"{at}.cross", y, states, sizes.encoder_heads)
            x = x + self.feed_forward(at, x)
        return x

    def logits(self, ids, found, interval):
        """(token, vocab) of a sequence, of whose chunk u `found[u]` are the neighbours."""
        sizes = self.sizes
        length = len(ids)
        chunks = max(0, -(-(length - CHUNK + 1) // interval))
        most = max([1, *(len(texts) for texts in found[:chunks])])
        rows = torch.zeros(chunks, most, NEIGHBOUR, dtype=torch.long)
        hidden = torch.ones(chunks, most, NEIGHBOUR, dtype=torch.bool)
        for chunk, texts in enumerate(found[:chunks]):
            for number, text in enumerate(texts):
                rows[chunk, number, : len(text)] = torch.tensor(text, dtype=torch.long)
                hidden[chunk, number, : len(text)] = False
        x = self.weights["embedding.weight"][torch.tensor(ids)]
        for layer in range(sizes.layers):
            at = f"layers.{layer}"
            y = self.norm(f"{at}.attention_norm", x)
            x = x + self.attention(f"{at}.attention", y, y, sizes.heads, causal=True)
            if layer == min(sizes.cross) and chunks:
                queries = torch.stack([x[u * interval :][:CHUNK] for u in range(chunks)])
                encoded = self.encode(rows, hidden, queries)
            if layer in sizes.cross and chunks:
                y = self.norm(f"{at}.cross_norm", x)[CHUNK - 1 :]
                y = F.pad(y, (0, 0, 0, chunks * interval - len(y))).unflatten(0, (chunks, -1))
                keys = encoded.flatten(1, 2)
                added = self.attention(f"{at}.cross", y, keys, sizes.heads, hidden.flatten(1))
                added = added.flatten(0, 1)[: length - CHUNK + 1]
                x = x + F.pad(added, (0, 0, CHUNK - 1, 0))
            x = x + self.feed_forward(at, x)
        return self.norm("norm", x) @ self.weights["head.weight"].mT


def random_sizes(draw):
    heads, encoder_heads = (draw.choice((1, 2, 3)) for _ in range(2))
    layers = draw.randint(1, 5)
    encoder_layers = draw.randint(1, 3)
    return Sizes(
        vocab=VOCAB,
        layers=layers,
        width=heads * draw.choice((8, 10)),
        heads=heads,
        ffn=draw.randint(5, 40),
        cross=tuple(sorted(draw.sample(range(layers), draw.randint(1, layers)))),
        encoder_layers=encoder_layers,
        encoder_width=encoder_heads * draw.choice((6, 8)),
        encoder_heads=encoder_heads,
        encoder_ffn=draw.randint(5, 40),
        encoder_cross=tuple(range(encoder_layers))[draw.randint(0, encoder_layers) :],
        buckets=draw.randint(2, 300),
        cross_buckets=draw.randint(2, 500),
        encoder_buckets=draw.randint(2, 300),
        encoder_cross_buckets=draw.randint(2, 200),
    )


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
def test_a_random_retro_is_the_plain_one(seed):
    draw = random.Random(seed)
    network = random_network(random_sizes(draw), seed)
    interval = draw.choice((8, 16, 32, 64))
    ids = random_ids(draw, random_length(draw, interval))
    found = random_found(draw, len(ids), interval, draw.choice((1, 2, 4)))
    with torch.no_grad():
        expected = PlainRetro(network).logits(ids, found, interval)
        without = PlainRetro(network).logits(ids, [[] for _ in found], interval)
    logits = logits_of(RetroLM(network), ids, found, interval, draw)
    torch.testing.assert_close(logits, expected, **TOLERANCE)
    # what a window's neighbours are matters to its own tokens and those after it alone
    read = [u for u, texts in enumerate(found) if any(map(len, texts))]
    first = Windows(interval).first(read[0]) if read else len(ids)
    torch.testing.assert_close(logits[:first], without[:first], **TOLERANCE)
    if first < len(ids):
        assert (logits[first] - without[first]).abs().max() > 1e-4


# ---- the released code


@pytest.fixture(scope="module")
def arrays(shared_data):
    return np.load(shared_data.parent / "released/retro.npz", allow_pickle=False)


@pytest.fixture(scope="module")
def released(shared_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("retro")
    retro.convert(shared_data.parent / "released/tiny_retro/model.ckpt", folder)
    return read_folder(folder)


@pytest.mark.parametrize(
    ("values", "interval"),
    [
        ("norlund", 64),
        *((f"piperag/i{m}/{part}", m) for m in (16, 64) for part in ("L192", "L205", "once")),
    ],
)
def test_the_released_values(values, interval, arrays, released):
    neighbours = arrays[f"{values}/neighbours"]
    expected = torch.from_numpy(arrays[f"{values}/logits"])
    ids = arrays["ids"][: len(expected)].tolist()
    count = Windows(interval).window_at(len(ids) - 1) + 1
    if values.endswith("once"):  # in every window
        neighbours = np.broadcast_to(neighbours, (count, *neighbours.shape))
    # without the padding
    found = [[np.trim_zeros(text, "b").tolist() for text in texts] for texts in neighbours]
    with torch.no_grad():
        plain = PlainRetro(released).logits(ids, found, interval)
    torch.testing.assert_close(plain, expected, **TOLERANCE)
    logits = logits_of(RetroLM(released), ids, found, interval, random.Random(0))
    torch.testing.assert_close(logits, expected, **TOLERANCE)


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


def heads_of(lm, layer, normed, added=0.0):
    """Queries, keys and values (token, head, dim) of a layer, not rotated."""
    shape = lm.shape
    parts = (normed @ layer.qkv.weight.mT + added).unflatten(-1, (-1, shape.head_dim))
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


def by_joint_attention(lm, weights, ids, found, windows):
    """Last states of a sequence that attends to its windows' neighbours and itself in one softmax;
    each neighbour reads the sequence's first token and itself, through the adapters.
    """
    own = lm.decoder.weights
    texts = [(u, own.embedding[text]) for u, texts in enumerate(found) for text in texts if text]
    x = own.embedding[ids]
    at = torch.arange(len(ids))
    for index, layer in enumerate(own.layers):
        q, k, v = heads_of(lm, layer, tiny_models.norm(layer.attention_norm, x))
        q, k = (rotated(lm, part, at) for part in (q, k))
        rows, keys, values, read = [], [k], [v], [at[None] <= at[:, None]]
        for window, states in texts:
            places = torch.arange(len(states)) - len(states)
            normed = tiny_models.norm(layer.attention_norm, states)
            low = normed @ weights.down[index].mT @ weights.up[index].mT + weights.offset[index]
            a, b, c = heads_of(lm, layer, normed, low)
            a, b = (rotated(lm, part, places) for part in (a, b))
            hidden = F.pad(places[None] > places[:, None], (1, 0))
            mixed = attention(a, torch.cat([k[:1], b]), torch.cat([v[:1], c]), hidden)
            rows.append((window, after_mlp(layer, states + mixed @ layer.out.weight.mT)))
            keys.append(b)
            values.append(c)
            owner = torch.tensor([windows.window_at(int(place)) for place in at])
            read.append((owner == window)[:, None].expand(-1, len(states)))
        mixed = attention(q, torch.cat(keys), torch.cat(values), ~torch.cat(read, 1))
        x = after_mlp(layer, x + mixed @ layer.out.weight.mT)
        texts = rows
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


@pytest.mark.parametrize("mode", ["cross_attention", "joint"])
@pytest.mark.parametrize("seed", range(8))
def test_the_pass_that_retrofit_trains_is_the_plain_one(seed, mode):
    """Losses, and the gradients of all weights."""
    draw = random.Random(f"{mode}/{seed}")
    lm = random_lm(draw)
    layers = len(lm.shape.heads)
    places = draw.sample(range(layers), draw.randint(1, layers))
    if mode == "joint":
        weights = Adapters(lm.decoder.weights, rank=draw.randint(1, 3))
        states = by_joint_attention
    else:
        weights = CrossWeights(lm.decoder, places, draw.randint(1, layers))
        states = by_cross_attention
    trained(draw, weights)
    windows = Windows(draw.choice((16, 32, 64)))
    ids = random_ids(draw, max(66, random_length(draw, windows.interval)))
    # without the last window of some, as where the last token needs no neighbours
    found = random_found(draw, len(ids) - draw.choice((0, 1)), windows.interval, 3)
    if not any(text for texts in found for text in texts):
        found[0] = [random_ids(draw, 5)]
    nll = weights.nll(lm.decoder, ids, found, windows)
    own = lm.decoder.weights
    x = tiny_models.norm(own.norm, states(lm, weights, ids, found, windows))
    logits = x[CHUNK - 1 : -1] @ own.head.weight.mT
    expected = F.cross_entropy(logits, torch.tensor(ids[CHUNK:]), reduction="none")
    torch.testing.assert_close(nll, expected, **TOLERANCE)
    parameters = list(weights.parameters())
    gradients = torch.autograd.grad(nll.mean(), parameters)
    plain = torch.autograd.grad(expected.mean(), parameters)
    for gradient, same in zip(gradients, plain, strict=True):
        torch.testing.assert_close(gradient, same, atol=1e-5, rtol=1e-3)
    assert max(gradient.abs().max() for gradient in plain) > 1e-4
