"""Schedules: what is asked when, what is hidden behind decoding, and what a failing retriever does."""

import threading

import numpy as np
import pytest

import tiny_models
from ragauge.cost.overlap import AHEAD, PREFETCH, RETRIEVAL, WAIT
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
    total=160,
    ahead=False,
    reader=JointReader,
    **ask,
):
    lm = tiny_models.tiny_lm()
    made = reader(JointDecoder(lm), total + 256)
    asked = RetrievalOptions(searcher, **ask)  # type: ignore[arg-type]
    fresh = BlockingRetrieval(asked, windows, made.note)
    source = (
        PrefetchedRetrieval(asked, windows, made.note, made.prepare if ahead else None)
        if windows.stale
        else fresh
    )
    try:
        with lm.tracing() as trace:
            new = generate(made, PROMPT, total, source, windows)
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


@pytest.mark.parametrize("interval", [16, 64])
def test_reading_ahead_changes_no_token_and_tells_its_seconds(interval):
    windows = Windows(interval, stale=True)
    (new, trace), (others, _) = (
        run(ExactRetriever(DOCUMENTS), windows, ahead=ahead) for ahead in (True, False)
    )
    assert new == others
    asked = len(range(0, 160 - 64, interval)) - 1
    assert stages(trace, "neighbours", RETRIEVAL, PREFETCH, WAIT) == [
        RETRIEVAL,
        "neighbours",
        *[PREFETCH, WAIT] * asked,
    ]
    found = stages(trace, PREFETCH, AHEAD, WAIT)
    # none where all was known
    assert {found[i - 1] for i, stage in enumerate(found) if stage == AHEAD} == {PREFETCH}
    assert all(call.seconds and call.lengths for call in trace if call.stage == AHEAD)


def test_neighbours_are_searched_and_read_ahead_by_another_thread():
    searches = []
    reads = []
    main = threading.current_thread().name

    class Watched(ExactRetriever):
        def search(self, queries):
            searches.append(threading.current_thread().name.partition("_")[0])
            return super().search(queries)

    class WatchedReader(JointReader):
        def prepare(self, neighbours, length):
            reads.append(threading.current_thread().name.partition("_")[0])
            return super().prepare(neighbours, length)

    run(Watched(DOCUMENTS), Windows(32, stale=True), ahead=True, reader=WatchedReader)
    assert searches == [main, "prefetch", "prefetch"]
    # The second window's neighbours may be read before the first one's, which nothing was there to
    # hide behind.
    assert sorted(reads) == [main, "prefetch", "prefetch"]


def test_a_reading_ahead_that_fails_ends_the_generation():
    class Failing(JointReader):
        def prepare(self, neighbours, length):
            if length > len(PROMPT):
                raise MemoryError("no room for neighbours")
            return super().prepare(neighbours, length)

    with pytest.raises(MemoryError, match="no room for neighbours"):
        run(ExactRetriever(DOCUMENTS), Windows(32, stale=True), ahead=True, reader=Failing)


def test_a_budget_takes_the_place_of_nprobe_ahead_of_time_alone():
    searcher = ExactRetriever(DOCUMENTS)
    run(searcher, Windows(32, stale=True), nprobe=16, budget=lambda length: length / 1000)
    assert [(q.nprobe, q.budget_s) for q in searcher.queries] == [
        (16, None),
        (None, 0.064),
        (None, 0.096),
    ]


def test_documents_can_be_passed_over():
    searcher = ExactRetriever([PROMPT * 4, *DOCUMENTS])
    found, _ = RetrievalOptions(searcher).search(RetrievalOptions(searcher).query(PROMPT, 1))
    assert set(found.documents) == {0}
    ask = RetrievalOptions(searcher, excluded_documents=frozenset({0}))
    found, _ = ask.search(ask.query(PROMPT, 1))
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
