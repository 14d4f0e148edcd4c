"""The client: connections in turn, one deadline over all attempts, a second request where the first takes too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

import service_parts as parts
from ragauge.errors import UserError
from ragauge.retrieval.retriever import Neighbours, Query
from ragauge.retrieval.service.client import Client, LostError
from ragauge.retrieval.service.server import Server

PLAIN = Query(text="a")


class Slow(parts.Toy):
    """The toy, whose first searches take too long."""

    def __init__(self, slow: int) -> None:
        super().__init__()
        self._slow, self._lock, self.release = slow, threading.Lock(), threading.Event()

    def search(self, queries: Sequence[Query]) -> list[Neighbours]:
        with self._lock:
            self._slow -= 1
            wait = self._slow >= 0
        if wait:
            self.release.wait(5)
        return super().search(queries)


@contextmanager
def served(slow: int) -> Iterator[tuple[Slow, Server]]:
    toy = Slow(slow)
    with Server(toy, parts.ABOUT, workers=4) as server:
        try:
            yield toy, server
        finally:
            toy.release.set()


def test_a_second_request_answers_where_the_first_takes_too_long() -> None:
    with served(1) as (_, server), Client(server.address, hedge_s=0.05) as client:
        started = time.monotonic()
        parts.assert_same(client.search([PLAIN]), parts.Toy().search([PLAIN]))
        assert 0.05 < time.monotonic() - started < 3


def test_a_fast_answer_is_not_asked_for_twice() -> None:
    with served(0) as (toy, server), Client(server.address, hedge_s=2.0) as client:
        client.search([PLAIN])
    assert toy.searched == ["a"]


def test_the_deadline_is_one_for_all_attempts_and_leaves_time_for_the_next() -> None:
    with served(1) as (_, server), Client(server.address, deadline_s=1.0, retries=1) as client:
        parts.assert_same(client.search([PLAIN]), parts.Toy().search([PLAIN]))
    with served(9) as (_, server), Client(server.address, deadline_s=0.3, retries=3, hedge_s=0.1) as client:
        started = time.monotonic()
        with pytest.raises(LostError, match=r"no answer within 0\.3 s"):
            client.search([PLAIN])
        assert time.monotonic() - started < 2


def test_calls_use_the_connections_in_turn() -> None:
    peers: set[str] = set()

    with Server(parts.Toy(), parts.ABOUT) as server, Client(server.address, channels=3) as client:
        observed = server._calls._observed

        def noted(call: str, answer: object, data: bytes, context: object) -> bytes:
            peers.add(context.peer())  # type: ignore[attr-defined]
            return observed(call, answer, data, context)  # type: ignore[arg-type]

        server._calls._observed = noted  # type: ignore[assignment,method-assign]
        for _ in range(6):
            client.search([PLAIN])
    assert len(peers) == 3


@pytest.mark.parametrize("wrong", [{"channels": 0}, {"hedge_s": 0.0}, {"hedge_s": 20.0}])
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match="retrieval client: "):
        Client("127.0.0.1:1", **wrong)  # type: ignore[arg-type]
