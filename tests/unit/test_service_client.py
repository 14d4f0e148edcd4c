"""The client: connections in turn, one deadline over all attempts, a second request where the first takes too long."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pytest

import service_parts as parts
from ragauge.errors import UserError
from ragauge.retrieval.retriever import Neighbours, Query
from ragauge.retrieval.service.client import Client, LostError
from ragauge.retrieval.service.fanout import Fanout
from ragauge.retrieval.service.server import Server

PLAIN = Query(text="a")
DELAY_S = 0.05


class Slow(parts.Toy):
    """The toy, whose first searches take too long."""

    def __init__(self, slow: int) -> None:
        super().__init__()
        self._slow, self._lock, self.release = slow, threading.Lock(), threading.Event()
        self.asked = 0

    def search(self, queries: Sequence[Query]) -> list[Neighbours]:
        with self._lock:
            self.asked += 1
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


@contextmanager
def distant(address: str) -> Iterator[str]:
    """The address of a relay to a server, which holds everything back for a while in each direction."""
    with relayed(address, DELAY_S) as (relay, _):
        yield relay


@contextmanager
def relayed(address: str, delay_s: float = 0.0) -> Iterator[tuple[str, list[socket.socket]]]:
    """The address of a relay to a server, and the connections to it as they are made."""
    host, port = address.rsplit(":", 1)
    ends: list[socket.socket] = []
    connected: list[socket.socket] = []

    def forward(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                time.sleep(delay_s)
                target.sendall(data)

    def accept(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, far = listening.accept()[0], socket.create_connection((host, int(port)))
                ends.extend((near, far))
                connected.append(near)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=forward, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, args=(listening,), daemon=True).start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}", connected
        finally:
            for end in ends:
                end.close()


def test_a_round_trip_is_measured_without_a_search() -> None:
    toy = Slow(0)
    with Server(toy, parts.ABOUT) as server, distant(server.address) as address, Client(address) as far:
        assert 2 * DELAY_S <= far.round_trip_s() < 20 * DELAY_S
        with Client(server.address) as near:
            assert near.round_trip_s() < far.round_trip_s()
            assert Fanout([near, far]).round_trip_s() >= 2 * DELAY_S
    assert toy.asked == 0


def test_a_round_trip_to_a_dead_server_names_its_address() -> None:
    with served(0) as (_, server):
        address = server.address
    with Client(address, deadline_s=2) as client, pytest.raises(LostError, match=f"retrieval server {address}, health"):
        client.round_trip_s()


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
    with served(1) as (_, server), Client(server.address, deadline_s=3.0, retries=1) as client:
        parts.assert_same(client.search([PLAIN]), parts.Toy().search([PLAIN]))
    with served(99) as (_, server), Client(server.address, deadline_s=0.3, retries=60, hedge_s=0.1) as client:
        started = time.monotonic()
        with pytest.raises(LostError, match=r"no answer within 0\.3 s"):
            client.search([PLAIN])
        assert time.monotonic() - started < 5  # with a deadline each, sixty would take nine


def test_calls_use_the_connections_in_turn() -> None:
    """Seen by a relay, which the first, second and third search reach on a connection each, and no further one."""
    with (
        Server(parts.Toy(), parts.ABOUT) as server,
        relayed(server.address) as (address, connected),
        Client(address, channels=3) as client,
    ):
        for expected in (1, 2, 3, 3, 3, 3):
            client.search([PLAIN])
            assert len(connected) == expected


@pytest.mark.parametrize("wrong", [{"channels": 0}, {"hedge_s": 0.0}, {"hedge_s": 20.0}])
def test_settings_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match="retrieval client: "):
        Client("127.0.0.1:1", **wrong)  # type: ignore[arg-type]
