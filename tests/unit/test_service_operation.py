"""The service in operation: metrics, log of requests, health of a hung search, reload, Unix socket, slow readers."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import service_parts as parts
from ragauge.errors import UserError
from ragauge.retrieval.retriever import Query
from ragauge.retrieval.service.admission import RefusedError
from ragauge.retrieval.service.client import Client, RetrievalError
from ragauge.retrieval.service.finished import Metrics, RequestLog
from ragauge.retrieval.service.outbox import Outbox
from ragauge.retrieval.service.server import Server, most_bytes
from ragauge.retrieval.service.wire import RequestLimits

SECRET = "what nobody else may read"


def test_metrics_are_prometheus_text() -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra service")
    observers: list[Any] = []
    with Server(parts.Toy(), parts.ABOUT, observers=observers) as server, Client(server.address) as client:
        metrics = Metrics(server.gauges)
        observers.append(metrics)
        client.search([Query(text="a", nprobe=3)] * 2)
        with pytest.raises(RetrievalError):
            client.search([Query(text="a", k=9999)])
        with urllib.request.urlopen(f"http://{metrics.serve('127.0.0.1', 0)}/metrics") as answer:
            text = answer.read().decode()
    for line in (
        'ragauge_requests_total{call="search",code="OK"} 1.0',
        'ragauge_requests_total{call="search",code="INVALID_ARGUMENT"} 1.0',
        "ragauge_queries_total 2.0",
        'ragauge_stage_seconds_count{stage="search"} 1.0',
        'ragauge_stage_seconds_bucket{le="0.001",stage="search"} 1.0',
        'ragauge_stage_seconds_count{stage="queue"} 1.0',
        "ragauge_lists_sum 6.0",
        "ragauge_waiting_short 0.0",
        "ragauge_unread_reply_bytes 0.0",
    ):
        assert f"\n{line}\n" in text
    assert "process_resident_memory_bytes" in text


def test_the_log_has_a_line_a_request_and_no_query(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "requests.jsonl")
    with Server(parts.Toy(), parts.ABOUT, observers=[log]) as server, Client(server.address) as client:
        client.search([Query(text=SECRET, nprobe=3)])
        with pytest.raises(RetrievalError):
            client.search([Query(text=SECRET, k=9999)])
        (tmp_path / "requests.jsonl").rename(tmp_path / "requests.1.jsonl")
        log.reopen()
        client.search([Query(text="after")])
    moved = (tmp_path / "requests.1.jsonl").read_text()
    good, bad = map(json.loads, moved.splitlines())
    assert (good["code"], good["client"], good["queries"], good["lists"]) == ("OK", "127.0.0.1", 1, 3)
    assert {"queue", "encode", "search", "lookup", "total"} == set(good["seconds"])
    assert (bad["code"], bad["call"]) == ("INVALID_ARGUMENT", "search")
    assert SECRET not in moved
    assert len((tmp_path / "requests.jsonl").read_text().splitlines()) == 1
    with pytest.raises(UserError, match="cannot be written: No such file"):
        RequestLog(tmp_path / "none" / "log")


def test_a_log_that_cannot_be_written_costs_no_request(caplog: pytest.LogCaptureFixture) -> None:
    log = RequestLog(Path("/dev/full"))
    with Server(parts.Toy(), parts.ABOUT, observers=[log]) as server, Client(server.address) as client:
        assert [len(client.search([Query(text="a")])) for _ in range(3)] == [1, 1, 1]
    assert caplog.text.count("requests are no longer logged: No space left") == 1


def test_health_turns_while_a_search_hangs_and_back() -> None:
    with Server(parts.Toy(), parts.ABOUT, hang_s=0.1) as server, Client(server.address) as client:
        assert health(server) == "SERVING"
        pending = client.start([Query(text=parts.SLEEP)])
        wait_for(lambda: health(server) == "NOT_SERVING")
        pending.result()
        wait_for(lambda: health(server) == "SERVING")


def health(server: Server) -> str:
    with grpc.insecure_channel(server.address) as channel:
        status = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()).status
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))


def test_a_reload_loses_no_request() -> None:
    whole, half = parts.Toy(), parts.Toy(part=1, of=2)
    query = Query(text="a", k=5, nprobe=16)
    known = [whole.search([query])[0].ids.tolist(), half.search([query])[0].ids.tolist()]
    answers: list[list[int]] = []
    stop = threading.Event()
    with parts.process() as running, Client(running.address) as client:

        def ask() -> None:
            while not stop.is_set():
                answers.append(client.search([query])[0].ids.tolist())

        askers = [threading.Thread(target=ask) for _ in range(4)]
        for asker in askers:
            asker.start()
        wait_for(lambda: known[0] in answers)
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: client.describe().index == "another")
        wait_for(lambda: known[1] in answers)
        stop.set()
        for asker in askers:
            asker.join(5)
    assert [answers.count(one) > 0 for one in known] == [True, True]
    assert all(answer in known for answer in answers)


def test_a_unix_socket_has_its_permissions_and_is_not_shared(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Server(parts.Toy(), parts.ABOUT, socket=path, socket_mode=0o660) as server, Client(server.address) as client:
        assert server.address == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        parts.assert_same(client.search([Query(text="a")]), parts.Toy().search([Query(text="a")]))
        with pytest.raises(UserError, match="another server listens there"):
            Server(parts.Toy(), parts.ABOUT, socket=path)
    path.unlink(missing_ok=True)
    path.write_text("notes")
    with pytest.raises(UserError, match="a file that is not a socket is there"):
        Server(parts.Toy(), parts.ABOUT, socket=path)
    assert path.read_text() == "notes"
    with pytest.raises(UserError, match="is its folder there and writable"):
        Server(parts.Toy(), parts.ABOUT, socket=tmp_path / "none" / "socket")


def test_a_socket_that_a_killed_server_left_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert os.path.exists(path)
    with Server(parts.Toy(), parts.ABOUT, socket=path) as server, Client(server.address) as client:
        assert len(client.search([Query(text="a")])) == 1


class Unread:
    """The context of a call whose caller reads its reply when it is told to."""

    def __init__(self) -> None:
        self.ended: Any = None

    def add_callback(self, callback: Any) -> bool:
        self.ended = callback
        return True

    def cancel(self) -> None:
        self.ended()


def test_replies_that_nobody_reads_take_bounded_memory_and_time() -> None:
    box, first, second = Outbox(100), Unread(), Unread()
    assert box.sent(b"x" * 60, first) == b"x" * 60  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="60 bytes of replies wait for callers that read slowly"):
        box.sent(b"x" * 60, second)  # type: ignore[arg-type]
    box.cancel_unread(10.0)
    assert box.held_bytes == 60
    box.cancel_unread(0.0)
    assert box.held_bytes == 0
    box.sent(b"x" * 60, second)  # type: ignore[arg-type]
    second.ended()
    assert box.held_bytes == 0
    assert most_bytes(RequestLimits())["requests"] < 1 << 30


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
