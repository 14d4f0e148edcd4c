"""Generation and teacher forcing agree, whatever the attention mode and the source of neighbours."""

import numpy as np
import pytest
import torch

import tiny_models
from ragauge.pipelines.decoding import generate, read_through
from ragauge.pipelines.modes._cross_attention import CrossDecoder
from ragauge.pipelines.modes._joint import JointDecoder
from ragauge.pipelines.sources import (
    BlockingRetrieval,
    NoNeighbours,
    PrefetchedRetrieval,
    RandomNeighbours,
    RetrievalOptions,
)
from ragauge.pipelines.windows import Windows
from retro_parts import ExactRetriever, cross_weights, logits_of, tokens

IDS = tokens(200, 1)
DOCUMENTS = [tokens(300, 2), tokens(70, 3), IDS[20:140], tokens(5, 5)]


@pytest.fixture(scope="module", params=["joint", "cross_attention"])
def model(request):
    lm = tiny_models.tiny_lm()
    return JointDecoder(lm) if request.param == "joint" else CrossDecoder(lm, cross_weights(lm))


def sources(windows, reader):
    asked = RetrievalOptions(ExactRetriever(DOCUMENTS))
    made = {
        "none": NoNeighbours(),
        "fresh": BlockingRetrieval(asked, windows, reader.note),
        "once": BlockingRetrieval(asked, windows, reader.note, reads_at=lambda window: window == 0),
        "random": RandomNeighbours(ExactRetriever(DOCUMENTS), np.random.default_rng(0)),
    }
    if windows.stale:
        made["prefetched"] = PrefetchedRetrieval(asked, windows, reader.note)
        made["read ahead"] = PrefetchedRetrieval(asked, windows, reader.note, reader.prepare)
    return made


@pytest.mark.parametrize("interval", [8, 64])
@pytest.mark.parametrize("stale", [False, True])
def test_generation_takes_the_likeliest_tokens_of_teacher_forcing(model, interval, stale):
    """Scored as given text, every generated token is the one of the highest logit, whatever the
    neighbours.
    """
    windows = Windows(interval, stale)
    prompt = IDS[:70]
    for name in sources(windows, model.open(132, 256)):
        reader = model.open(132, 256)
        again = model.open(132, 256)
        source = sources(windows, reader)[name]
        other = sources(windows, again)[name]
        new = generate(reader, prompt, 132, source, windows)
        assert len(new) == 62
        forced = read_through(again, [*prompt, *new], 131, other, windows)
        logits = torch.cat([part for *_, part in forced])
        assert logits[69:].argmax(-1).tolist() == new, name
        for made in (source, other):
            made.close()


def test_one_token_at_a_time_has_the_logits_of_teacher_forcing(model):
    torch.testing.assert_close(
        *(logits_of(model, IDS, Windows(16, stale=True), DOCUMENTS, s)[0] for s in (1, None))
    )


def test_a_window_without_neighbours_forgets_those_before(model):
    readers = [model.open(100, 128) for _ in range(2)]
    for reader in readers:
        reader.read(IDS[:64])
    readers[0].attach([DOCUMENTS[0][:128]])
    readers[0].attach([])
    torch.testing.assert_close(readers[0].read(IDS[64:80]), readers[1].read(IDS[64:80]))
