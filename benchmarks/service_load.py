"""The retrieval service under load: latency and throughput with many clients, and whether every request is answered.

    python benchmarks/service_load.py --index FOLDER [--server-cores 1] [--clients 16] [--requests 200]
    python benchmarks/service_load.py --server 127.0.0.1:50051

Each client is a thread with a connection of its own that sends its next request when the last was answered. A few
random queries are answered before, one at a time, on the idle server; under load every answer must be the same.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from ragauge.cost.machine import MAX_LOAD, competing_load, cpu_model
from ragauge.errors import UserError
from ragauge.retrieval.retriever import Neighbours, Query
from ragauge.retrieval.service.client import Client, RetrievalError
from ragauge.retrieval.service.process import running

DISTINCT = 16  # queries


@dataclass
class Outcome:
    """What became of the requests, by all clients together."""

    latency_s: list[float] = field(default_factory=list)  # of each answered request
    seconds: list[dict[str, float]] = field(default_factory=list)  # stages of each
    answered: Counter[tuple[int, int]] = field(default_factory=Counter)  # (client, number of the request)
    changed: list[int] = field(default_factory=list)  # queries whose answer differs from that of the idle server
    errors: list[str] = field(default_factory=list)


def main() -> None:
    args = _arguments()
    try:
        with _address(args) as address:
            lost = _measure(args, address)
    except UserError as error:
        sys.exit(f"service_load: {error}")
    sys.exit(lost)


def _measure(args: argparse.Namespace, address: str) -> bool:
    """Drive the server and print what came of it; whether any request was lost."""
    with Client(address, deadline_s=args.deadline, retries=args.retries) as client:
        queries = _queries(client, args)
        expected = [client.search([query])[0] for query in queries]
    outcome = Outcome()
    work = [
        threading.Thread(target=_drive, args=(i, args, address, queries, expected, outcome))
        for i in range(args.clients)
    ]
    with competing_load() as load:
        started = time.perf_counter()
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        seconds = time.perf_counter() - started
    print(
        f"{cpu_model()}; {args.clients} clients of {args.requests} requests of one query, "
        f"nprobe {args.nprobe or 'default'}"
    )
    lost = _report(outcome, args.clients * args.requests, seconds)
    if args.index:  # a server that was started elsewhere would count as another's load
        verdict = "" if load.share <= MAX_LOAD else ": too busy, these times are not to be reported"
        print(f"competing load {load.share:.1%} of the CPU time (allowed: {MAX_LOAD:.0%}){verdict}")
    return lost


def _queries(client: Client, args: argparse.Namespace) -> list[Query]:
    about, draw = client.describe(), random.Random(args.seed)
    return [
        Query(
            tokens=[draw.randrange(about.vocabulary) for _ in range(about.chunk_tokens)], k=args.k, nprobe=args.nprobe
        )
        for _ in range(DISTINCT)
    ]


def _drive(
    number: int,
    args: argparse.Namespace,
    address: str,
    queries: Sequence[Query],
    expected: Sequence[Neighbours],
    outcome: Outcome,
) -> None:
    """One client's requests. Threads may append to one list, and count keys of their own."""
    with Client(address, deadline_s=args.deadline, retries=args.retries) as client:
        for i in range(args.requests):
            which = (number + i) % len(queries)
            started = time.perf_counter()
            try:
                [found] = client.search([queries[which]])
            except RetrievalError as error:
                outcome.errors.append(str(error))
                continue
            outcome.latency_s.append(time.perf_counter() - started)
            outcome.seconds.append(found.seconds)
            outcome.answered[number, i] += 1
            if not _same(found, expected[which]):
                outcome.changed.append(which)


def _same(found: Neighbours, expected: Neighbours) -> bool:
    names = [f.name for f in fields(Neighbours) if f.name != "seconds"]
    return all(np.array_equal(getattr(found, name), getattr(expected, name)) for name in names)


def _report(outcome: Outcome, sent: int, seconds: float) -> bool:
    """Print the figures; whether any request was lost, answered twice or answered otherwise."""
    answered, twice = len(outcome.answered), sum(count > 1 for count in outcome.answered.values())
    print(f"answered {answered} of {sent} requests, {twice} of them more than once, {len(outcome.changed)} changed")
    for error, count in Counter(outcome.errors).most_common(3):
        print(f"  {count} times: {error}")
    if answered:
        latency = np.array(outcome.latency_s) * 1e3
        p50, p99 = np.percentile(latency, [50, 99])
        print(f"latency p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {latency.max():.2f} ms")
        print(f"throughput {answered / seconds:.1f} requests a second over {seconds:.2f} s")
        stages = outcome.seconds[0]
        medians = {stage: statistics.median(one[stage] for one in outcome.seconds) for stage in stages}
        print("median ms by stage: " + ", ".join(f"{stage} {1e3 * median:.2f}" for stage, median in medians.items()))
    return answered < sent or bool(twice or outcome.changed)


@contextmanager
def _address(args: argparse.Namespace) -> Iterator[str]:
    """The server that is named, or one that is started on the index."""
    if args.server:
        yield args.server
        return
    options = ["--cores", args.server_cores] if args.server_cores else []
    with running(args.index, options=options) as server:
        yield server.address


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--index", type=Path, help="start a server of this index for the run")
    where.add_argument("--server", help="host:port of a server that runs")
    parser.add_argument("--server-cores", metavar="0,1", help="cores that the started server is kept to")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--requests", type=int, default=200, help="of each client")
    parser.add_argument("--k", type=int, default=2, help="neighbours of a query")
    parser.add_argument("--nprobe", type=int, help="default: the index's own")
    parser.add_argument("--deadline", type=float, default=30.0, help="seconds of a request")
    parser.add_argument("--retries", type=int, default=0, help="of a request that the server has no place for")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
