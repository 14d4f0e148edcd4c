"""The queue: requests of several callers in one call of the index, and abandoned searches."""

import threading
import time

import pytest

import service_parts as parts
from ragauge.pipelines.retrieval.retriever import CancelledSearchError, Query
from ragauge.pipelines.service.client import Client, RetrievalError

LONG = Query(text="long", nprobe=16)


class Joined(parts.Toy):
    """The toy, which searches requests together, and whose searches of LONG go on until they are
    stopped.
    """

    def __init__(self):
        super().__init__()
        self.calls = []  # requests of each
        self.stopped = threading.Event()
        self.began = threading.Event()

    def search_together(self, requests, stop):
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


def test_requests_within_the_window_are_one_call_and_each_gets_its_answer():
    toy = Joined()
    all_queries = parts.queries(8)
    with parts.server(toy, window_ms=300) as server, Client(server.address) as client:
        pending = [client.start([query]) for query in all_queries]
        parts.assert_same(
            [search.result()[0] for search in pending], parts.Toy().search(all_queries)
        )
    assert sum(toy.calls) == 8
    assert max(toy.calls) >= 4


def test_a_request_that_fails_does_not_fail_those_searched_with_it():
    toy = Joined()
    with parts.server(toy, window_ms=300) as server, Client(server.address) as client:
        good = client.start([Query(text="a")])
        bad = client.start([Query(text=parts.FAIL)])
        assert len(good.result()) == 1
        with pytest.raises(RetrievalError, match="ZeroDivisionError"):
            bad.result()


def test_a_search_stops_when_its_caller_cancels():
    toy = Joined()
    with parts.server(toy, workers=2) as server, Client(server.address, deadline_s=60) as client:
        long = client.start([LONG])
        assert toy.began.wait(30)
        assert len(client.search([Query(text="short")])) == 1
        assert toy.calls == [1], "the long one goes on in the other thread"
        long.cancel()
        assert toy.stopped.wait(30)


def test_a_server_that_stops_waits_for_a_search_whose_caller_is_gone():
    toy = Joined()

    def slow_to_stop(requests, stop):
        toy.began.set()
        while not stop():
            time.sleep(0.005)
        time.sleep(0.3)
        raise CancelledSearchError("stopped")

    toy.search_together = slow_to_stop  # type: ignore[method-assign]
    with parts.server(toy) as server, Client(server.address, deadline_s=60) as client:
        long = client.start([LONG])
        assert toy.began.wait(30)
        long.cancel()
        assert server.stop(30)


def test_a_search_stops_at_its_callers_deadline():
    toy = Joined()
    with parts.server(toy) as server, Client(server.address, deadline_s=0.2) as client:
        with pytest.raises(RetrievalError, match=r"no answer within 0\.2 s"):
            client.search([LONG])
        assert toy.stopped.wait(30)


def test_an_abandoned_request_leaves_the_queue():
    toy = Joined()
    with parts.server(toy) as server, Client(server.address, deadline_s=60) as client:
        long = client.start([LONG])
        assert toy.began.wait(30)
        waiting = client.start([Query(text="b")])
        parts.wait_for(lambda: len(server.queue.waiting) == 1)
        waiting.cancel()
        parts.wait_for(lambda: not server.queue.waiting)
        assert len(server.queue.running) == 1
        long.cancel()
    assert toy.calls == []
