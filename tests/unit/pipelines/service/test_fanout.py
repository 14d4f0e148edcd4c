"""A database in parts: the merged answer is that of one index, and what becomes of it when a part
is lost.
"""

from contextlib import ExitStack
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import service_parts as parts
from ragauge.pipelines.retrieval.retriever import Neighbour, Neighbours
from ragauge.pipelines.service.client import Client, RetrievalError
from ragauge.pipelines.service.fanout import Fanout, merge

PARTS = 3
NOBODY = "127.0.0.1:9"  # a port that is not listened on


@pytest.fixture(scope="module")
def clients():
    """Of three servers, each with a third of the chunks."""
    with ExitStack() as stack:
        about = [
            replace(parts.ABOUT, index=f"part {i}", vectors=133 + (i == 0)) for i in range(PARTS)
        ]
        servers = [parts.server(parts.Toy(part=i, of=PARTS), about[i]) for i in range(PARTS)]
        yield [
            stack.enter_context(Client(stack.enter_context(server).address)) for server in servers
        ]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), min_size=1, max_size=30),
    st.integers(1, 8),
    st.booleans(),
)
def test_merging_equals_sorting_all_of_them(points, k, larger):
    sign = -1 if larger else 1
    ranked = sorted(
        (sign * distance, number, part) for number, (distance, part) in enumerate(points)
    )
    answers = [
        answer([(n, sign * d) for d, n, p in ranked if p == part][:k], k) for part in range(3)
    ]
    merged = merge(answers, k, larger)
    expected = answer([(n, sign * d) for d, n, _ in ranked][:k], k)
    parts.assert_same([merged], [expected])


def answer(results, k):
    """An answer of these (id, distance); the rest follows from the id."""
    rows = [Neighbour(n, float(d), n, [n, n], [n]) for n, d in results[:k]]
    return Neighbours(rows, 4, {"search": 0.1})


def test_a_part_may_name_a_chunk_twice_but_two_parts_may_not():
    one = answer([(1, 5), (1, 6)], 2)
    other = answer([(2, 4)], 2)
    assert merge([one, other], 3).ids == [2, 1, 1]
    with pytest.raises(RetrievalError, match="chunk 1 is held by two retrieval servers"):
        merge([one, answer([(1, 4)], 2)], 3)


def test_where_asked_the_answer_without_it_says_so(clients, caplog):
    queries = parts.queries(6)
    with Client(NOBODY) as lost:
        results = Fanout([*clients[:2], lost], partial=True).search(queries)
    whole = Fanout(clients[:2]).search(queries)
    parts.assert_same(results, [replace(one, missing=(NOBODY,)) for one in whole])
    assert f"partial answer: retrieval server {NOBODY}" in caplog.text


def test_parts_of_different_databases_are_refused(clients):
    other = replace(parts.ABOUT, tokenizer="another")
    with parts.server(parts.Toy(part=2, of=3), other) as server, Client(server.address) as client:
        for partial in (False, True):
            with pytest.raises(
                RetrievalError, match="hold parts of different databases: they differ in tokenizer"
            ):
                Fanout([*clients[:2], client], partial=partial).search(parts.queries(1))
