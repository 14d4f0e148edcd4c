"""Sizes of databases by hand."""

import pytest

from ragauge.assets.catalog import Entry, entries
from ragauge.pipelines.retrieval import sizes
from small_config import parsed

SIZE = {"documents": 1000, "document_bytes": 446, "download_gb": 2.0}  # 100 tokens a document


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setitem(
        entries(), "wikipedia", Entry(kind="corpus", source="hf:some/texts", **SIZE)
    )


def settings(**changes):
    return parsed(databases={"d": {"corpus": "wikipedia", **changes}}).databases["d"]


def test_a_database_by_hand(small):
    indexes = {"ivf": {}, "half": {"shards": 2}, "filled": {"filled": 10**6, "parts": 2}}
    database = settings(shards=4, indexes=indexes)
    made = sizes.size(database)
    assert made.held_out == 1000, "the tail of every document is held out"
    assert made.chunks == pytest.approx(1000 * 100 / 64 + 500)
    vectors = {label: sizes.index_vectors(database, label) for label in indexes}
    assert vectors == pytest.approx({"ivf": made.chunks, "half": made.chunks / 2, "filled": 10**6})
    assert sizes.index_mb(database, "filled") == 72


def test_the_first_documents_are_a_part_of_the_corpus(small):
    part, complete = (sizes.size(settings(**limit)) for limit in ({"limit": 100}, {}))
    assert part.chunks == pytest.approx(complete.chunks / 10)


def test_c4_has_the_papers_three_billion_chunks():
    made = sizes.size(settings(corpus="c4-en"))
    assert made.chunks == pytest.approx(3e9, rel=0.05)


def test_a_corpus_that_is_not_known_before_it_is_read_has_no_size():
    assert sizes.size(settings(corpus="hf:org/unknown")) is None
    sample = sizes.size(settings(corpus="wikipedia-sample", limit=16))
    assert sample is not None
    # 16 x 29,000 bytes / 4.46 / 64, and half a chunk a document
    assert sample.chunks == pytest.approx(1634, abs=1)
