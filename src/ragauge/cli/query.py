"""Query a retrieval server, or the servers of all parts of a database, and print the neighbours."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from ragauge.cli import _options as options

if TYPE_CHECKING:
    from ragauge.pipelines.retrieval.retriever import Neighbours
    from ragauge.pipelines.service.client import Client

SHOWN = 300  # characters of a neighbour and of its continuation
# of a neighbour
FIELDS = ("id", "distance", "document", "text", "continuation", "tokens", "continuation_tokens")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    options.add_server(parser, "a server; one for each part", action="append", required=True)
    add("--text", required=True, help="the query")
    add("--k", type=int, default=2, help="neighbours (2)")
    text = "inverted lists searched (IVF), or candidates (HNSW); default: the index's own"
    add("--nprobe", type=int, metavar="N", help=text)
    add("--deadline", type=float, default=10.0, metavar="SECONDS", help="for the whole call (10)")
    add(
        "--partial",
        action="store_true",
        help="answer without the parts whose server cannot be reached, and name them",
    )
    options.add_access(parser)


def run(args: argparse.Namespace) -> None:
    from ragauge.pipelines.retrieval.retriever import Query
    from ragauge.pipelines.service.client import Client
    from ragauge.pipelines.service.fanout import Fanout

    query = Query(text=args.text, k=args.k, nprobe=args.nprobe)
    with ExitStack() as stack:
        access = options.access(args)
        clients = [
            stack.enter_context(Client(address, deadline_s=args.deadline, **access))
            for address in args.server
        ]
        searcher = clients[0] if len(clients) == 1 else Fanout(clients, partial=args.partial)
        [neighbours] = searcher.search([query])
        result = _result(clients, neighbours)
    options.print_result(args, _readable(result), **result)


def _result(clients: list[Client], answer: Neighbours) -> dict[str, Any]:
    rows = answer.rows
    tokens = [row.tokens for row in rows] + [row.continuation for row in rows]
    sequences = [ids for ids in tokens if ids]
    reached = next(client for client in clients if client.address not in answer.missing)
    spelled = iter(reached.detokenize(sequences) if sequences else [])
    texts = [next(spelled) if ids else "" for ids in tokens]
    numbers = ((row.id, row.distance, row.document) for row in rows)
    count = len(rows)
    columns = texts[:count], texts[count:], tokens[:count], tokens[count:]
    neighbours = [
        dict(zip(FIELDS, (*first, *last), strict=True))
        for first, *last in zip(numbers, *columns, strict=True)
    ]
    about = {
        "nprobe": answer.nprobe,
        "seconds": answer.seconds,
        "missing_servers": list(answer.missing),
    }
    return {"neighbours": neighbours, **about}


def _readable(result: dict[str, Any]) -> str:
    lines = []
    for rank, chunk in enumerate(result["neighbours"], start=1):
        lines.append(
            f"{rank}. chunk {chunk['id']} of document {chunk['document']}, distance {chunk['distance']:.4f}"
        )
        texts = [" ".join(chunk[key].split()) for key in ("text", "continuation") if chunk[key]]
        lines += [f"   {text[:SHOWN]}{'...' if len(text) > SHOWN else ''}" for text in texts]
    stages = ", ".join(
        f"{stage} {1e3 * seconds:.2f} ms" for stage, seconds in result["seconds"].items()
    )
    lines.append(f"{len(result['neighbours'])} found; nprobe {result['nprobe']}; {stages}")
    if result["missing_servers"]:
        lines.append(f"partial answer: without the parts of {', '.join(result['missing_servers'])}")
    return "\n".join(lines)
