"""Schedules: what is asked when, what is hidden behind decoding, and what a failing retriever does."""

import numpy as np
import pytest

import tiny_models
from ragauge.cost.overlap import PREFETCH, RETRIEVAL, WAIT
from ragauge.errors import UserError
from ragauge.pipelines.decoding import generate
from ragauge.pipelines.modes._joint import JointDecoder, JointReader
from ragauge.pipelines.sources import (
    BlockingRetrieval,
    PrefetchedRetrieval,
    RandomNeighbours,
    RetrievalOptions,
)
from ragauge.pipelines.windows import Windows
from retro_parts import OF_ALL_LENGTHS as DOCUMENTS
from retro_parts import ExactRetriever, tokens

PROMPT = tokens(64, 1)


def run(
    searcher,
    windows,
    ahead=False,
    reader=JointReader,
):
    lm = tiny_models.tiny_lm()
    made = reader(JointDecoder(lm), 160 + 256)
    asked = RetrievalOptions(searcher)
    fresh = BlockingRetrieval(asked, windows, made.note)
    source = (
        PrefetchedRetrieval(asked, windows, made.note, made.prepare if ahead else None)
        if windows.stale
        else fresh
    )
    try:
        with lm.tracing() as trace:
            new = generate(made, PROMPT, 160, source, windows)
    finally:
        source.close()
    return new, list(trace)


def stages(trace, *names):
    return [call.stage for call in trace if call.stage in names]


@pytest.mark.parametrize("stale", [False, True], ids=["retro", "piperag"])
@pytest.mark.parametrize("interval", [16, 64])
def test_queries_are_64_tokens_and_piperag_asks_one_window_ahead_and_no_further(interval, stale):
    searcher = ExactRetriever(DOCUMENTS)
    new, trace = run(searcher, Windows(interval, stale))
    ids = [*PROMPT, *new]
    count = len(range(0, 160 - 64, interval))
    starts = [max(0, window - stale) * interval for window in range(count)]
    assert [q.tokens for q in searcher.queries] == [ids[start : start + 64] for start in starts]
    assert {q.continuation for q in searcher.queries} == {1 + stale}
    waits = [PREFETCH, WAIT] if stale else [RETRIEVAL]
    assert stages(trace, RETRIEVAL, PREFETCH, WAIT) == [RETRIEVAL, *waits * (count - 1)]


def test_a_reading_ahead_that_fails_ends_the_generation():
    class Failing(JointReader):
        def prepare(self, neighbours, length):
            if length > len(PROMPT):
                raise MemoryError("no room for neighbours")
            return super().prepare(neighbours, length)

    with pytest.raises(MemoryError, match="no room for neighbours"):
        run(ExactRetriever(DOCUMENTS), Windows(32, stale=True), ahead=True, reader=Failing)


def test_documents_can_be_passed_over():
    searcher = ExactRetriever([PROMPT * 4, *DOCUMENTS])
    found, _ = RetrievalOptions(searcher).search(PROMPT, 1)
    assert {row.document for row in found.rows} == {0}
    ask = RetrievalOptions(searcher, excluded_documents=frozenset({0}))
    found, _ = ask.search(PROMPT, 1)
    texts = ask.texts(found, slice(0, 128))
    assert len(texts) == 2
    chunks = [text[start : start + 128] for text in DOCUMENTS for start in range(0, len(text), 64)]
    assert all(text in chunks for text in texts)


def test_chance_draws_from_other_documents_and_the_same_for_the_same_seed():
    searcher = ExactRetriever(DOCUMENTS)

    def draw(seed, *excluded):
        source = RandomNeighbours(
            searcher, np.random.default_rng(seed), excluded_documents=frozenset(excluded)
        )
        return source.neighbours(0, [], False)

    draws = [draw(seed, 0, 1) for seed in (3, 3, 4)]
    assert draws[0] == draws[1] != draws[2]
    chunks = [DOCUMENTS[2][start : start + 128] for start in range(0, 400, 64)]
    assert all(text in chunks for draw in draws for text in draw)
    with pytest.raises(UserError, match="excluded documents"):
        draw(0, 0, 1, 2)
