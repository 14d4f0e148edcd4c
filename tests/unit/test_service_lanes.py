"""Requests of several callers in one call, lanes, abandoned searches, limits of a client and a request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import pytest

import service_parts as parts
from ragauge.retrieval.indexes._base import CancelledSearchError
from ragauge.retrieval.retriever import Neighbours, Query
from ragauge.retrieval.service.admission import RefusedError
from ragauge.retrieval.service.client import Client, RetrievalError
from ragauge.retrieval.service.lanes import TOGETHER, Lane, LaneJob
from ragauge.retrieval.service.quotas import MOST_CLIENTS, Quotas, Rates, client_of
from ragauge.retrieval.service.server import Server
from ragauge.retrieval.service.wire import RequestLimits

LONG = Query(text="long", nprobe=16)


class Joined(parts.Toy):
    """The toy, which searches requests together, and whose searches of LONG go on until they are stopped."""

    def __init__(self, delay_s: float = 0.0) -> None:
        super().__init__(delay_s=delay_s)
        self.calls: list[int] = []  # requests of each
        self.stopped = threading.Event()
        self.began = threading.Event()

    def work(self, queries: Sequence[Query]) -> int:
        return sum(query.nprobe or 4 for query in queries)

    def search_together(self, requests: Sequence[Sequence[Query]], stop: Callable[[], bool]) -> list[list[Neighbours]]:
        if requests[0][0] == LONG:
            self.began.set()
            end = time.monotonic() + 60
            while time.monotonic() < end:
                if stop():
                    self.stopped.set()
                    raise CancelledSearchError("stopped")
                time.sleep(0.005)
        self.calls.append(len(requests))
        return [self.search(request) for request in requests]


def served(toy: Any, **options: Any) -> Server:
    return Server(toy, parts.ABOUT, **options)


def test_requests_within_the_window_are_one_call_and_each_gets_its_answer() -> None:
    toy, asked = Joined(), parts.queries(8)
    with served(toy, window_s=0.3) as server, Client(server.address) as client:
        pending = [client.start([query]) for query in asked]
        parts.assert_same([search.result()[0] for search in pending], parts.Toy().search(asked))
    assert sum(toy.calls) == 8
    assert max(toy.calls) >= 4


def test_a_full_call_does_not_wait_for_its_window() -> None:
    toy = Joined()
    with served(toy, window_s=60.0) as server, Client(server.address, deadline_s=30) as client:
        many = [Query(text=f"q{i}") for i in range(TOGETHER)]
        assert len(client.search(many)) == TOGETHER


def test_a_request_that_fails_does_not_fail_those_searched_with_it() -> None:
    toy = Joined()
    with served(toy, window_s=0.3) as server, Client(server.address) as client:
        good, bad = client.start([Query(text="a")]), client.start([Query(text=parts.FAIL)])
        assert len(good.result()) == 1
        with pytest.raises(RetrievalError, match="ZeroDivisionError"):
            bad.result()


def test_a_long_request_does_not_hold_up_short_ones_and_is_stopped_by_its_caller() -> None:
    toy = Joined()
    with served(toy, long_work=16) as server, Client(server.address, deadline_s=60) as client:
        long = client.start([LONG])
        assert toy.began.wait(30)
        assert len(client.search([Query(text="short")])) == 1
        assert toy.calls == [1], "the long one goes on"
        long.cancel()
        assert toy.stopped.wait(30)


def test_a_search_stops_at_its_callers_deadline() -> None:
    toy = Joined()
    with served(toy, long_work=16) as server, Client(server.address, deadline_s=0.2) as client:
        with pytest.raises(RetrievalError, match=r"no answer within 0\.2 s"):
            client.search([LONG])
        assert toy.stopped.wait(30)


def test_an_abandoned_request_leaves_the_queue() -> None:
    toy, lane = Joined(), Lane("test", 1)
    running, waiting = LaneJob(toy, [LONG]), LaneJob(toy, [Query(text="b")])
    lane.submit(running)
    assert toy.began.wait(5)
    lane.submit(waiting)
    assert lane.waiting == 1
    assert 0 < lane.longest_s() < 5
    lane.drop(waiting)
    assert lane.waiting == 0
    lane.drop(running)
    lane.close()
    with pytest.raises(CancelledSearchError):
        running.answer.result(2)


def test_the_work_of_one_request_is_limited() -> None:
    with served(Joined(), limits=RequestLimits(work=20)) as server, Client(server.address) as client:
        assert len(client.search([Query(text="a", nprobe=10)] * 2)) == 2
        with pytest.raises(RetrievalError, match=r"refused: queries: 24 lists to scan .*must be from 1 to 20"):
            client.search([Query(text="a", nprobe=10), Query(text="b", nprobe=14)])


def test_a_client_over_its_rate_is_turned_away_until_its_bucket_fills() -> None:
    clock = [0.0]
    quotas = Quotas(Rates(requests=2, lists=100), lambda: clock[0])
    quotas.take("a", 1, 1, 10)
    quotas.take("a", 1, 1, 10)
    with pytest.raises(RefusedError, match=r"over the limit of 2 requests a second .*again in 0\.50 s"):
        quotas.take("a", 1, 1, 10)
    quotas.take("b", 1, 1, 10)  # another client
    clock[0] = 1.0
    quotas.take("a", 1, 1, 300)  # more than a second's worth, which is then paid off
    clock[0] = 2.5
    with pytest.raises(RefusedError, match="100 lists a second") as refused:
        quotas.take("a", 1, 1, 60)
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE
    clock[0] = 4.0
    quotas.take("a", 1, 1, 60)


def test_the_memory_of_quotas_is_bounded() -> None:
    quotas = Quotas(Rates(requests=1))
    for number in range(MOST_CLIENTS + 10):
        quotas.take(str(number), 1, 1, 1)
    assert len(quotas.clients) == MOST_CLIENTS


@pytest.mark.parametrize(
    ("peer", "client"),
    [("ipv4:10.0.0.7:4711", "10.0.0.7"), ("ipv6:%5B::1%5D:4711", "::1"), ("unix:", "unix")],
)
def test_a_client_is_known_by_its_address(peer: str, client: str) -> None:
    assert client_of(peer) == client


def test_a_server_limits_the_queries_of_a_client() -> None:
    with served(Joined(), rates=Rates(queries=3)) as server, Client(server.address) as client:
        client.search([Query(text="a")] * 3)
        with pytest.raises(RetrievalError, match="over the limit of 3 queries a second"):
            client.search([Query(text="a")] * 3)
