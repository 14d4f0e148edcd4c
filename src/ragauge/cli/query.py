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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    options.add_server(parser, "a server; one for each part", action="append", required=True)
    add("--text", required=True, help="the query")
    add("--k", type=int, default=2, help="neighbours (2)")
    add(
        "--nprobe",
        type=int,
        metavar="N",
        help="inverted lists searched (IVF), or candidates (HNSW); default: the index's own",
    )
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
    reached = next(client for client in clients if client.address not in answer.missing)

    def spelled(ids: list[int]) -> str:
        return reached.detokenize([ids])[0] if ids else ""

    neighbours = [
        {
            "id": row.id,
            "distance": row.distance,
            "document": row.document,
            "text": spelled(row.tokens),
            "continuation": spelled(row.continuation),
            "tokens": row.tokens,
            "continuation_tokens": row.continuation,
        }
        for row in answer.rows
    ]
    return {
        "neighbours": neighbours,
        "nprobe": answer.nprobe,
        "seconds": answer.seconds,
        "missing_servers": list(answer.missing),
    }


def _readable(result: dict[str, Any]) -> str:
    lines = [
        f"chunk {chunk['id']} of document {chunk['document']}, distance {chunk['distance']:.4f}: "
        f"{chunk['text'][:SHOWN]!r} {chunk['continuation'][:SHOWN]!r}"
        for chunk in result["neighbours"]
    ]
    about = {key: value for key, value in result.items() if key != "neighbours"}
    return "\n".join([*lines, options.readable(about)])
