"""The client: the round trip without a search, and retries within one deadline."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

import service_parts as parts
from ragauge.retrieval.retriever import Query
from ragauge.retrieval.service.client import Client, LostError
from ragauge.retrieval.service.fanout import Fanout

DELAY_S = 0.02


@contextmanager
def distant(address: str) -> Iterator[str]:
    """The address of a relay to a server, which holds everything back for a while in each direction."""
    host, port = address.rsplit(":", 1)
    ends: list[socket.socket] = []

    def forward(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                time.sleep(DELAY_S)
                target.sendall(data)

    def accept(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, far = listening.accept()[0], socket.create_connection((host, int(port)))
                ends.extend((near, far))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=forward, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, args=(listening,), daemon=True).start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for end in ends:
                end.close()


def test_a_round_trip_is_measured_without_a_search() -> None:
    toy = parts.Toy()
    with parts.server(toy) as server, distant(server.address) as address, Client(address) as far:
        assert 2 * DELAY_S <= far.round_trip_s() < 20 * DELAY_S
        with Client(server.address) as near:
            assert near.round_trip_s() < far.round_trip_s()
            assert Fanout([near, far]).round_trip_s() >= 2 * DELAY_S
    assert toy.searched == []


def test_a_round_trip_to_a_dead_server_names_its_address() -> None:
    with parts.server(parts.Toy()) as server:
        address = server.address
    with Client(address, deadline_s=2) as client, pytest.raises(LostError, match=f"retrieval server {address}, health"):
        client.round_trip_s()


def test_one_deadline_holds_for_all_attempts() -> None:
    toy = parts.Held()
    with parts.server(toy) as server, Client(server.address, deadline_s=0.3, retries=4) as client:
        started = time.monotonic()
        with pytest.raises(LostError, match=r"search of 1 query: no answer within 0\.3 s"):
            client.search([Query(text=parts.SLEEP)])
        assert time.monotonic() - started < 1.2
        toy.release.set()
