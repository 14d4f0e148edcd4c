"""RETRO at the paper's sizes by count, and a tiny one against a plain pass over whole chunks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from ragauge.errors import UserError
from ragauge.generation.decoding import generate, read_through
from ragauge.generation.modes._retro import RetroLM, load_weights, random_network
from ragauge.generation.modes._retro_network import RelativeBias, RetroNetwork
from ragauge.generation.sizes import PAPER, Sizes
from ragauge.generation.sources import BlockingRetrieval, PrefetchedRetrieval, RetrievalOptions
from ragauge.generation.windows import Windows
from retro_parts import ExactRetriever, tokens

TINY = Sizes(260, 4, 32, 4, 48, (1, 3), 2, 24, 2, 40, (1,))
IDS = tokens(220, 1)
DOCUMENTS = [tokens(300, 2), tokens(70, 3), tokens(400, 4)]


def test_the_papers_sizes_have_633_million_weights() -> None:
    model = random_network(PAPER, device="meta")
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == 633
    assert all(parameter.is_meta for parameter in model.parameters())


@pytest.mark.parametrize(
    ("count", "bidirectional", "expected"),
    [
        (2, True, [[0, 1, 1], [0, 0, 1], [0, 0, 0]]),
        (3, True, [[1, 2, 2], [0, 1, 2], [0, 0, 1]]),
        (2, False, [[1, 1, 1], [0, 1, 1], [0, 0, 1]]),
        (3, False, [[2, 2, 2], [1, 2, 2], [0, 1, 2]]),
    ],
)
def test_each_distance_has_its_bias_up_to_a_bound(count: int, bidirectional: bool, expected: list[list[int]]) -> None:
    bias, places = RelativeBias(1, count, bidirectional), torch.arange(3)
    bias.table.weight.data = torch.arange(float(count))[:, None]
    assert bias(places, places)[0].tolist() == expected


def attend(
    attention: object, x: Tensor, source: Tensor, mask: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """Plain attention, head by head."""
    q, k, v = attention.q(x), attention.k(source), attention.v(source)  # type: ignore[attr-defined]
    dim, parts = q.shape[-1] // attention.heads, []  # type: ignore[attr-defined]
    for head in range(attention.heads):  # type: ignore[attr-defined]
        own = slice(head * dim, (head + 1) * dim)
        scores = q[:, own] @ k[:, own].T
        scores = scores if bias is None else scores + bias[head]
        scores = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
        parts.append(scores.softmax(-1) @ v[:, own])
    return attention.out(torch.cat(parts, 1))  # type: ignore[attr-defined]


def encoded(model: RetroNetwork, text: list[int], states: Tensor) -> Tensor:
    x, places, asked = model.encoder.embedding(torch.tensor(text)), torch.arange(len(text)), torch.arange(len(states))
    for layer in model.encoder.layers:
        y = layer.attention_norm(x)
        x = x + attend(layer.attention, y, y, bias=layer.attention.bias(places, places))
        if layer.cross is not None:
            x = x + attend(layer.cross, layer.cross_norm(x), states, bias=layer.cross.bias(places, asked))
        x = x + layer.ffn(layer.ffn_norm(x))
    return x


@torch.no_grad()
def plain(model: RetroNetwork, ids: list[int], found: list[list[list[int]]], windows: Windows) -> Tensor:
    """All layers over the whole sequence, one after another; each window attends to its own neighbours."""
    x, places = model.embedding(torch.tensor(ids)), torch.arange(len(ids))
    states: list[Tensor] = []
    for index, layer in enumerate(model.layers):
        y = layer.attention_norm(x)
        x = x + attend(layer.attention, y, y, places[None] <= places[:, None], layer.attention.bias(places, places))
        if index == model.sizes.cross[0]:
            queries = [x[windows.first(w) - 63 : windows.first(w) + 1] for w in range(len(found))]
            states = [torch.cat([encoded(model, t, q) for t in ts]) for ts, q in zip(found, queries, strict=True)]
        if layer.cross is not None:
            change = torch.zeros_like(x)
            for window, state in enumerate(states):
                mine = slice(windows.first(window), windows.first(window + 1))
                behind = torch.arange(len(x[mine]))
                keys = torch.cat([128 * number + torch.arange(len(t)) for number, t in enumerate(found[window])])
                change[mine] = attend(
                    layer.cross, layer.cross_norm(x)[mine], state, bias=layer.cross.bias(behind, keys)
                )
            x = x + change
        x = x + layer.ffn(layer.ffn_norm(x))
    return model.head(model.norm(x))


@pytest.mark.parametrize("interval", [16, 64])
@pytest.mark.parametrize("step", [1, 7, 300])
def test_reading_with_a_cache_equals_a_plain_pass(interval: int, step: int) -> None:
    model, windows, searcher = random_network(TINY), Windows(interval), ExactRetriever(DOCUMENTS)
    reader = RetroLM(model).open(len(IDS))
    source = BlockingRetrieval(RetrievalOptions(searcher), windows, reader.note)
    stops = [*range(step, len(IDS), step), len(IDS)]
    logits = torch.cat([part for stop in stops for *_, part in read_through(reader, IDS, stop, source, windows)])
    found = [source.options.texts(one, windows.part(i)) for i, one in enumerate(source.results)]
    torch.testing.assert_close(logits, plain(model, IDS, found, windows), atol=1e-4, rtol=1e-4)


def test_neighbours_matter_and_generation_pipelines() -> None:
    lm, windows = RetroLM(random_network(TINY)), Windows(16, stale=True)
    source = PrefetchedRetrieval(RetrievalOptions(ExactRetriever(DOCUMENTS)), windows, lm.note)
    with lm.tracing() as trace:
        new = generate(lm.open(160), IDS[:64], 160, source, windows)
    source.close()
    assert len(new) == 96
    assert {call.stage for call in trace} == {"read", "decode", "neighbours", "retrieval", "prefetch", "wait"}
    readers = [lm.open(80) for _ in range(2)]
    for reader in readers:
        reader.read(IDS[:63])
    readers[0].attach([DOCUMENTS[0][:128]])
    assert not torch.allclose(*(reader.read(IDS[63:70]) for reader in readers))


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_users_checkpoint_is_loaded_and_checked(tmp_path: Path, suffix: str) -> None:
    model, path = random_network(TINY, seed=5), tmp_path / f"retro{suffix}"
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
