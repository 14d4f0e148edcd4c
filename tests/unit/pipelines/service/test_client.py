"""The client: the round trip without a search, and retries within one deadline."""

import time

import pytest

import service_parts as parts
from ragauge.pipelines.retrieval.retriever import Query
from ragauge.pipelines.service.client import Client, LostError
from ragauge.pipelines.service.fanout import Fanout


class Distant(Client):
    def round_trip_s(self):
        return 5.0


def test_a_round_trip_is_measured_without_a_search():
    toy = parts.Toy()
    with parts.server(toy) as server, Client(server.address) as near, Distant("127.0.0.1:9") as far:
        started = time.perf_counter()
        assert 0 < near.round_trip_s() < time.perf_counter() - started
        assert Fanout([near, far]).round_trip_s() == 5.0
    assert toy.searched == []


def test_one_deadline_holds_for_all_attempts():
    toy = parts.Held()
    with parts.server(toy) as server, Client(server.address, deadline_s=0.3, retries=4) as client:
        started = time.monotonic()
        with pytest.raises(LostError, match=r"search of 1 query: no answer within 0\.3 s"):
            client.search([Query(text=parts.SLEEP)])
        assert time.monotonic() - started < 1.2
        toy.release.set()
