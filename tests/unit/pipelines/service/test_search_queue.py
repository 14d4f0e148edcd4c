"""The queue: requests of several callers in one call of the index, and abandoned requests."""

import threading

import pytest

import service_parts as parts
from ragauge.pipelines.retrieval.retriever import Query
from ragauge.pipelines.service.client import Client, RetrievalError

LONG = Query(text="long", nprobe=16)


class Joined(parts.Toy):
    """The toy, which searches requests together, and whose searches of LONG last until they are
    released.
    """

    def __init__(self):
        super().__init__()
        self.calls = []  # requests of each
        self.began = threading.Event()
        self.release = threading.Event()

    def search_together(self, requests):
        if requests[0][0] == LONG:
            self.began.set()
            assert self.release.wait(60)
        else:
            self.calls.append(len(requests))
        return [self.search(request) for request in requests]


def start_together(toy, server, client, queries):
    """Start requests that wait for the same search to end."""
    client.start([LONG])
    assert toy.began.wait(30)
    pending = [client.start([query]) for query in queries]
    parts.wait_for(lambda: len(server.queue.waiting) == len(queries))
    toy.release.set()
    return pending


def test_requests_that_wait_together_are_one_call_and_each_gets_its_answer():
    toy = Joined()
    all_queries = parts.queries(8)
    with parts.server(toy) as server, Client(server.address, deadline_s=60) as client:
        pending = start_together(toy, server, client, all_queries)
        parts.assert_same(
            [search.result()[0] for search in pending], parts.Toy().search(all_queries)
        )
    assert toy.calls == [8]


def test_a_request_that_fails_does_not_fail_those_searched_with_it():
    toy = Joined()
    with parts.server(toy) as server, Client(server.address, deadline_s=60) as client:
        both = [Query(text="a"), Query(text=parts.FAIL)]
        good, bad = start_together(toy, server, client, both)
        assert len(good.result()) == 1
        with pytest.raises(RetrievalError, match="ZeroDivisionError"):
            bad.result()


def test_a_server_that_stops_waits_for_a_search_whose_caller_is_gone():
    toy = Joined()
    with parts.server(toy) as server, Client(server.address, deadline_s=60) as client:
        long = client.start([LONG])
        assert toy.began.wait(30)
        long.cancel()
        threading.Timer(0.3, toy.release.set).start()
        assert server.stop(30)
        assert toy.release.is_set()


def test_a_request_that_is_abandoned_or_late_is_not_searched():
    toy = Joined()
    with parts.server(toy) as server, Client(server.address, deadline_s=60) as client:
        client.start([LONG])
        assert toy.began.wait(30)
        abandoned = client.start([Query(text="b")])
        with (
            Client(server.address, deadline_s=0.2) as hasty,
            pytest.raises(RetrievalError, match=r"no answer within 0\.2 s"),
        ):
            hasty.search([Query(text="c")])
        parts.wait_for(lambda: len(server.queue.waiting) == 2)
        abandoned.cancel()
        parts.wait_for(lambda: all(job.answer.cancelled() for job in server.queue.waiting))
        toy.release.set()
    assert toy.calls == []
