"""The retrieval service under load, kills, a slow reader and a flood of oversized requests.

    python benchmarks/service.py [--clients 64] [--seconds 300] [--out FILE.json]     or: make load-test

Two servers hold half of the vectors each. Every client asks both at once, one request after
another, and repeats what is lost within its deadline. Exit code 1 if a request stayed without an
answer, had two, or another than on the idle servers.
"""

import argparse
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np

import _vectors
from _common import parse_options
from ragauge.cost.machine import cpu_model, provenance
from ragauge.pipelines.retrieval.retriever import Query
from ragauge.pipelines.service.client import Client, RetrievalError, method
from ragauge.pipelines.service.fanout import Fanout
from ragauge.pipelines.service.process import RunningServer, running_command
from ragauge.pipelines.service.proto import ragauge_pb2 as pb

PARTS = 2
K = 10  # neighbours of a query
DISTINCT = 64  # queries
DIM = 64
DEADLINE_S = 60.0
RETRIES = 4
OVERSIZED = 2 << 20  # bytes; servers take one MiB


@dataclass
class Tally:
    """What became of everything, by all threads together."""

    sent: int = 0
    latency_s: list[float] = field(default_factory=list)
    answered: Counter[tuple[int, int]] = field(
        default_factory=Counter
    )  # (client, number of its request)
    changed: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    oversized: Counter[str] = field(default_factory=Counter)  # by status
    slow_bytes: int = 0
    most_memory: int = 0  # bytes of the larger server
    lock: threading.Lock = field(default_factory=threading.Lock)


class Part:
    """The server of one part, which can be killed and started again on its port."""

    def __init__(self, folder: Path, number: int, stack: ExitStack) -> None:
        self._folder = folder
        self._number = number
        self._stack = stack
        self.port = _free_port()
        self.running: RunningServer | None = None

    def start(self) -> None:
        """A process on its port."""
        place = f"--folder={self._folder}", f"--port={self.port}"
        part = f"--part={self._number}", f"--of={PARTS}", "--while-stdin-open"
        command = [sys.executable, _vectors.__file__, *place, *part]
        self.running = self._stack.enter_context(running_command(command, stop_s=10.0))

    def kill(self) -> None:
        """SIGKILL, and a new process on the same port."""
        assert self.running
        self.running.process.kill()
        self.running.process.wait()
        self.start()

    def memory(self) -> int:
        """Bytes that it holds; 0 while there is none."""
        with suppress(OSError, AttributeError):  # there is none between a kill and the next start
            pages = Path(f"/proc/{self.running.process.pid}/statm").read_text().split()[1]
            return int(pages) * 4096
        return 0


def main() -> None:
    args = parse_options(
        __doc__,
        clients=(64, "that ask at once"),
        seconds=(300.0, "of load"),
        vectors=(20_000, "of both parts"),
        kill_every=(15.0, "seconds between kills of a part"),
        out=(Path, "also write the figures here, with the machine"),
    )
    tally = Tally()
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        folder = Path(made)
        _vectors.make(folder, args.vectors, DISTINCT, DIM)
        parts = [Part(folder, number, stack) for number in range(PARTS)]
        addresses = [f"127.0.0.1:{part.port}" for part in parts]
        _vectors.in_threads([part.start for part in parts])
        expected = _answers(addresses)
        others = [partial(_kill, parts[1], args.kill_every), partial(_flood, addresses[0])]
        others += [partial(_read_slowly, parts[0].port), partial(_weigh, parts)]
        work = [partial(_drive, number, addresses, expected) for number in range(args.clients)]
        started = time.perf_counter()
        timer = threading.Timer(args.seconds, stop.set)
        timer.start()
        _vectors.in_threads([partial(task, tally, stop) for task in [*work, *others]])
        result = _result(tally, args, time.perf_counter() - started)
    encoded = json.dumps({"provenance": provenance(), **result})
    print(encoded if args.json else _table(result))
    if args.out:
        args.out.write_text(encoded + "\n", "utf-8")
    sys.exit(bool(result["lost"] or result["answered_twice"] or result["changed"]))


def _answers(addresses: list[str]) -> list[list[int]]:
    """The answers of the idle servers to each query."""
    with ExitStack() as opened:
        fanout = Fanout([opened.enter_context(Client(address)) for address in addresses])
        return [fanout.search([_query(number)])[0].ids for number in range(DISTINCT)]


def _query(number: int) -> Query:
    return Query(tokens=[number], k=K, nprobe=64, continuation=0)


def _drive(
    client: int,
    addresses: list[str],
    expected: list[list[int]],
    tally: Tally,
    stop: threading.Event,
) -> None:
    """One client's requests, until it is time to stop."""
    with ExitStack() as opened:
        clients = [Client(address, deadline_s=DEADLINE_S, retries=RETRIES) for address in addresses]
        fanout = Fanout([opened.enter_context(client) for client in clients])
        number = 0
        while not stop.is_set():
            which = (client + number) % DISTINCT
            with tally.lock:
                tally.sent += 1
            started = time.perf_counter()
            try:
                [found] = fanout.search([_query(which)])
            except RetrievalError as error:
                with tally.lock:
                    tally.errors[str(error)[:200]] += 1
            else:
                with tally.lock:
                    tally.latency_s.append(time.perf_counter() - started)
                    tally.answered[client, number] += 1
                    tally.changed += found.ids != expected[which]
            number += 1


def _kill(part: Part, every_s: float, tally: Tally, stop: threading.Event) -> None:
    while not stop.wait(every_s):
        part.kill()
        tally.kills += 1


def _flood(address: str, tally: Tally, stop: threading.Event) -> None:
    """Requests longer than the server takes, as fast as it refuses them."""
    text = "x" * OVERSIZED
    with grpc.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
        search = method(channel, "Search", pb.SearchReply)
        while not stop.wait(0.02):
            try:
                search(pb.SearchRequest(queries=[pb.Query(text=text, k=1)]), timeout=10)
                tally.oversized["OK"] += 1
            except grpc.RpcError as error:
                tally.oversized[error.code().name] += 1


def _read_slowly(port: int, tally: Tally, stop: threading.Event) -> None:
    """A caller whose link passes a few bytes of its large replies a second."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        link = threading.Thread(target=_narrow, args=(listener, port, tally, stop))
        link.start()
        with Client(address, deadline_s=30.0) as client:
            while not stop.is_set():
                pending = [
                    client.start([Query(tokens=[0], k=250, nprobe=256, continuation=0)] * 8)
                    for _ in range(4)
                ]
                stop.wait(5.0)
                for call in pending:
                    call.cancel()
    link.join()


def _narrow(listener: socket.socket, port: int, tally: Tally, stop: threading.Event) -> None:
    """Pass everything on to the server, and 2 KiB of what it says every tenth of a second."""
    there, _ = listener.accept()
    with there, socket.create_connection(("127.0.0.1", port)) as server:
        there.settimeout(0.05)
        server.settimeout(0.05)
        while not stop.wait(0.1):
            with suppress(OSError):
                server.sendall(there.recv(1 << 16))
            with suppress(OSError):
                data = server.recv(2048)
                tally.slow_bytes += len(data)
                there.sendall(data)


def _weigh(parts: list[Part], tally: Tally, stop: threading.Event) -> None:
    while not stop.wait(0.2):
        tally.most_memory = max(tally.most_memory, *(part.memory() for part in parts))


def _result(tally: Tally, args: argparse.Namespace, seconds: float) -> dict[str, Any]:
    percentiles = np.percentile(1e3 * np.array(tally.latency_s or [0.0]), [50, 95, 99, 100])
    latency = dict(zip(("p50", "p95", "p99", "longest"), map(float, percentiles), strict=True))
    return {
        "clients": args.clients,
        "vectors": args.vectors,
        "seconds": seconds,
        "sent": tally.sent,
        "answered": len(tally.answered),
        "lost": tally.sent - len(tally.answered),
        "answered_twice": sum(count > 1 for count in tally.answered.values()),
        "changed": tally.changed,
        "errors": dict(tally.errors.most_common(3)),
        "kills": tally.kills,
        "oversized": dict(tally.oversized),
        "slow_reader_bytes": tally.slow_bytes,
        "server_mib": tally.most_memory / 2**20,
        "latency_ms": latency,
        "requests_per_s": len(tally.answered) / seconds,
    }


def _table(result: dict[str, Any]) -> str:
    """As Markdown."""
    latency = result["latency_ms"]
    rows = {
        "requests sent": f"{result['sent']:,}",
        "lost": result["lost"],
        "answered twice": result["answered_twice"],
        "answered differently": result["changed"],
        **{f"latency, {name}": f"{value:,.1f} ms" for name, value in latency.items()},
        "requests a second": f"{result['requests_per_s']:.1f}",
        "kills of a part": result["kills"],
        "oversized requests, by status": ", ".join(
            f"{name} {count:,}" for name, count in result["oversized"].items()
        ),
        "bytes read by the slow reader": f"{result['slow_reader_bytes']:,}",
        "most memory of a server": f"{result['server_mib']:.0f} MiB",
        **{f"error, {count} times": error for error, count in result["errors"].items()},
    }
    on = f"{date.today():%-d %B %Y}, {cpu_model()}, {os.cpu_count()} logical cores"
    load = f"{result['clients']} clients, {PARTS} parts of {result['vectors']:,} vectors"
    head = f"{load}, {result['seconds']:.0f} s; {on}."
    return "\n".join(
        [
            head,
            "",
            "| what | result |",
            "| --- | --: |",
            *(f"| {name} | {value} |" for name, value in rows.items()),
        ]
    )


def _free_port() -> int:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


if __name__ == "__main__":
    main()
