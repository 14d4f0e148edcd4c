"""What stale queries find: the nearest chunks of shifted queries, compared by an encoder of one's
own choice.
"""

import json

import numpy as np
import pytest

import tiny_database
from ragauge.cli import _main
from ragauge.pipelines.evaluation import EvaluationStretch
from ragauge.pipelines.retrieval.staleness import Comparison
from tiny_database import CHUNK, CountEncoder

STALE = (1, CHUNK)


@pytest.fixture
def comparison(retriever):
    return Comparison(retriever, retriever.database, CountEncoder(), nprobe=8, stale_tokens=STALE)


def tokens(comparison, count):
    """The first tokens of the database, chunk after chunk."""
    rows = comparison.database.tokens(np.arange(len(comparison.database)))
    return [token for row in rows for token in row][:count]


def test_a_place_is_asked_for_once_fresh_and_once_for_each_staleness(
    comparison,
):
    ids = tokens(comparison, 5 * CHUNK)
    found = comparison.compare("a", ids)
    assert comparison.compare("short", ids[: 2 * CHUNK - 1]) == []
    assert [(one.key, one.start) for one in found] == [
        ("a", place) for place in range(CHUNK, 5 * CHUNK, CHUNK)
    ]
    assert all(len(one.chunks) == 1 + len(STALE) == 1 + len(one.cosine) for one in found)


def test_the_cosine_is_that_of_the_two_chunks(comparison):
    for one in comparison.compare("a", tokens(comparison, 4 * CHUNK)):
        for chunk, cosine in zip(one.chunks[1:], one.cosine, strict=True):
            texts = [
                comparison.database.tokenizer.decode(_tokens(comparison, c))
                for c in (one.chunks[0], chunk)
            ]
            fresh, stale = CountEncoder().encode(texts)
            assert cosine == pytest.approx(float(fresh @ stale), abs=1e-5)


def test_what_finds_nothing_has_no_cosine(comparison, monkeypatch):
    search = comparison.searcher.index.search  # type: ignore[attr-defined]

    def empty(vectors, k, nprobe):
        distances, ids = search(vectors, k, nprobe)
        ids[0] = -1
        distances[0] = np.inf
        return distances, ids

    monkeypatch.setattr(comparison.searcher.index, "search", empty)  # type: ignore[attr-defined]
    first = comparison.compare("a", tokens(comparison, 2 * CHUNK))[0]
    assert first.chunks[0] == -1
    assert first.cosine == [None, None]


def test_a_comparison_reports_the_texts_that_it_had_time_for_and_goes_on(
    folder, tmp_path, monkeypatch
):
    tiny_database.stand_in(monkeypatch)
    out = tmp_path / "s.json"
    monkeypatch.setattr(
        "ragauge.pipelines.retrieval.staleness.texts",
        lambda _, n, *__: [_text("a", n), _text("b", n)],
    )

    def run(*options, tokens=160):
        command = f"piperag staleness --database {folder} --tokens {tokens} --encoder other".split()
        assert _main.main([*command, *options, "--out", str(out)]) == 0
        return json.loads(out.read_text())

    assert run("--minutes", "0.000001", tokens=144)["texts"] == 1
    first = run("--minutes", "0.000001")
    assert len(first["queries"]) == 6, "those of shorter texts are no part of it"
    assert (first["texts"], {one["key"] for one in first["queries"]}) == (1, {"a"})
    both = run()
    assert (both["texts"], len(both["queries"])) == (2, 2 * len(first["queries"]))
    assert both["queries"][: len(first["queries"])] == first["queries"]
    assert not list(tmp_path.glob(".s.json*"))


def _text(key, count):
    return EvaluationStretch(
        key, 0, tuple(np.random.default_rng(len(key)).integers(97, 122, count).tolist())
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tokens", "30"], "--tokens: must be greater than or equal to 128, not '30'"),
        (["--tokens", "9999"], "none of its held-out texts has 9999 tokens"),
    ],
)
def test_the_command_tells_a_mistake_in_one_line(
    folder,
    tmp_path,
    monkeypatch,
    capsys,
    options,
    message,
):
    tiny_database.stand_in(monkeypatch)
    out = tmp_path / "s.json"
    assert (
        _main.main(["piperag", "staleness", "--database", str(folder), *options, "--out", str(out)])
        == 2
    )
    assert message in capsys.readouterr().err
    assert not out.exists()


def _tokens(comparison, chunk):
    return comparison.database.tokens(np.array([chunk]))[0]
