"""The retrieval service beside vector databases: the same vectors, recall and cores; queries a
second, p50 and p99.

    python benchmarks/service_peers.py --folder FOLDER [--vectors 50000] [--clients 16] [--seconds
    20] [--json]

Each system gets the least nprobe whose recall@10 reaches the target on the queries, then its
clients ask one query after another. LanceDB runs in the process of its clients, as it is used;
pgvector is PostgreSQL (the wheel `pgserver`), asked over its Unix socket. Peers that are not
installed are left out. Indexes are built once in FOLDER: a second call measures alone. Peers: `pip
install lancedb pgserver "psycopg[binary]"`.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import _vectors
from ragauge.cost.machine import competing_load, provenance
from ragauge.pipelines.retrieval.retriever import Query
from ragauge.pipelines.service.client import Client
from ragauge.pipelines.service.process import running_command

K = 10
QUERIES = 500
WARM_UP_S = 1.0
NPROBES = (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
Ask = Callable[[int, int], np.ndarray]  # (number of a query, nprobe) -> ids (K,)
Opened = Callable[[ExitStack], Ask]  # what a client of its own asks with


@contextmanager
def service(folder: Path, window_ms: float = 0.0) -> Iterator[Opened]:
    """Our service, in a process of its own."""
    command = [
        sys.executable,
        str(Path(_vectors.__file__)),
        "--while-stdin-open",
        "--folder",
        str(folder),
        "--window-ms",
        str(window_ms),
    ]
    with running_command(command) as server:

        def opened(stack: ExitStack) -> Ask:
            client = stack.enter_context(Client(server.address, deadline_s=60.0))
            return lambda number, nprobe: (
                client.search([Query(tokens=[number], k=K, nprobe=nprobe, continuation=0)])[0].ids
            )

        yield opened


@contextmanager
def in_process(folder: Path) -> Iterator[Opened]:
    """The same index without a service."""
    queries = np.load(folder / "queries.npy")
    index = _vectors.RECIPE.open(_vectors.build(folder))

    def ask(number: int, nprobe: int) -> np.ndarray:
        return index.search(queries[number : number + 1], K, nprobe)[1][0]

    yield lambda stack: ask


@contextmanager
def lancedb(folder: Path) -> Iterator[Opened]:
    """LanceDB: a graph over vectors of eight bits, the nearest compared again in full."""
    import lancedb as peer
    import pyarrow as pa

    queries = np.load(folder / "queries.npy")
    base = np.load(folder / "base.npy")
    database = peer.connect(str(folder / "lancedb"))
    try:
        table = database.open_table("base")
    except Exception:  # each version has its own for a table that is not there
        column = pa.FixedSizeListArray.from_arrays(pa.array(base.ravel()), base.shape[1])
        table = database.create_table(
            "base", pa.table({"id": np.arange(len(base)), "vector": column})
        )
        table.create_index(
            metric="l2",
            num_partitions=1,
            index_type="IVF_HNSW_SQ",
            m=_vectors.RECIPE.m,
            ef_construction=_vectors.RECIPE.ef_construction,
        )

    def ask(number: int, nprobe: int) -> np.ndarray:
        search = (
            table.search(queries[number])
            .limit(K)
            .nprobes(1)
            .ef(max(nprobe, 2 * K))
            .refine_factor(2)
            .select(["id"])
        )
        found: np.ndarray = search.select(["id"]).to_arrow()["id"].to_numpy()
        return found

    yield lambda stack: ask


@contextmanager
def pgvector(folder: Path) -> Iterator[Opened]:
    """PostgreSQL with pgvector: a graph over the vectors in full, a connection a client."""
    import pgserver
    import psycopg

    queries = np.load(folder / "queries.npy")
    texts = ["[" + ",".join(map(str, row.tolist())) + "]" for row in queries]
    server = pgserver.get_server(str(folder / "postgres"))
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        if not connection.execute("SELECT to_regclass('base')").fetchone()[0]:
            _fill(connection, np.load(folder / "base.npy"))

    def opened(stack: ExitStack) -> Ask:
        connection = stack.enter_context(psycopg.connect(server.get_uri(), autocommit=True))
        connection.prepare_threshold = 0
        state = {"nprobe": 0}

        def ask(number: int, nprobe: int) -> np.ndarray:
            if state["nprobe"] != nprobe:
                connection.execute(f"SET hnsw.ef_search = {nprobe}")
                state["nprobe"] = nprobe
            found = connection.execute(
                f"SELECT id FROM base ORDER BY vector <-> %s::vector LIMIT {K}", (texts[number],)
            ).fetchall()
            return np.array([row[0] for row in found] + [-1] * (K - len(found)))

        return ask

    try:
        yield opened
    finally:
        server.cleanup()


def _fill(connection: Any, base: np.ndarray) -> None:
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    connection.execute(f"CREATE TABLE base (id int, vector vector({base.shape[1]}))")
    with connection.cursor().copy("COPY base FROM STDIN") as copy:
        for number, row in enumerate(base.tolist()):
            copy.write_row((number, str(row)))
    connection.execute("SET maintenance_work_mem = '1GB'")
    connection.execute("SET max_parallel_maintenance_workers = 1")
    connection.execute(
        f"CREATE INDEX ON base USING hnsw (vector vector_l2_ops) WITH (m = {_vectors.RECIPE.m}, "
        f"ef_construction = {_vectors.RECIPE.ef_construction})"
    )


SYSTEMS: Mapping[str, tuple[str | None, Callable[[Path], Any]]] = {
    "service": (None, service),
    "service_window_2ms": (None, partial(service, window_ms=2.0)),
    "in_process": (None, in_process),
    "lancedb": ("lancedb", lancedb),
    "pgvector": ("pgserver", pgvector),
}


def measure(opened: Opened, expected: np.ndarray, args: argparse.Namespace) -> dict[str, Any]:
    """The least nprobe that reaches the recall, and what it takes with many clients."""
    with ExitStack() as stack:
        ask = opened(stack)
        for nprobe in NPROBES:
            reached = _vectors.recall(
                np.stack([ask(number, nprobe) for number in range(QUERIES)]), expected
            )
            if reached >= args.recall:
                break
    latency: list[float] = []
    began = time.perf_counter() + WARM_UP_S
    work = [
        partial(_drive, opened, number, nprobe, began, args.seconds, latency)
        for number in range(args.clients)
    ]
    with competing_load() as load:
        _vectors.in_threads(work)
    p50, p99 = np.percentile(1e3 * np.array(latency), [50, 99])
    rate = len(latency) / args.seconds
    return {
        "nprobe": nprobe, "recall": reached, "queries_per_s": rate, "p50_ms": float(p50), "p99_ms": float(p99),
        "competing_load": load.share,
    }  # fmt: skip


def _drive(
    opened: Opened, client: int, nprobe: int, began: float, seconds: float, latency: list[float]
) -> None:
    """One client's queries; those that end within the measured time count."""
    with ExitStack() as stack:
        ask = opened(stack)
        number = client
        while (start := time.perf_counter()) < began + seconds:
            ask(number % QUERIES, nprobe)
            end = time.perf_counter()
            if began <= start and end <= began + seconds:
                latency.append(end - start)
            number += 7


def main() -> None:
    args = _arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    if not (args.folder / "base.npy").exists():
        _vectors.make(args.folder, args.vectors, QUERIES, args.dim)
    expected = _vectors.exact(args.folder, K)
    found: dict[str, Any] = {}
    for name in args.systems.split(","):
        needs, system = SYSTEMS[name]
        if needs and not find_spec(needs):
            print(f"{name}: left out, {needs} is not installed", file=sys.stderr)
            continue
        with system(args.folder) as opened:
            found[name] = {} if args.build else measure(opened, expected, args)
    base = np.load(args.folder / "base.npy", mmap_mode="r")
    result = {
        "provenance": provenance(),
        "vectors": len(base),
        "dim": base.shape[1],
        "clients": args.clients,
        "seconds": args.seconds,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "peers": {
            needs: version(needs) for needs, _ in SYSTEMS.values() if needs and find_spec(needs)
        },
        "systems": found,
    }
    print(json.dumps(result) if args.json else _table(found))


def _table(found: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        f"{'system':20} {'nprobe':>6} {'recall':>7} {'queries/s':>10} {'p50 ms':>8} {'p99 ms':>8}"
    ]
    for name, one in found.items():
        if one:
            lines.append(
                f"{name:20} {one['nprobe']:>6} {one['recall']:>7.3f} {one['queries_per_s']:>10.0f} "
                f"{one['p50_ms']:>8.2f} {one['p99_ms']:>8.2f}"
            )
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--folder", type=Path, required=True, help="of vectors and indexes; made if it is not there"
    )
    parser.add_argument("--vectors", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--recall", type=float, default=0.95, help="at 10")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="separated by commas")
    parser.add_argument("--build", action="store_true", help="build the indexes alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


if __name__ == "__main__":
    main()
