"""The client's own cost of requests to a server: many open at once, to a server that only sends
back tokens.

The server is a process of its own and sends each response at a fixed pace, so that what is more is
the client's delay and, on few cores, the server's.

    python benchmarks/served.py --open 1000 --tokens 20 --pace 1.0 --json
"""

import argparse
import asyncio
import json
import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

from _common import finish, load_line, times
from ragauge.cost.machine import competing_load
from ragauge.engines.served.http import JsonServer
from ragauge.engines.served.streams import StreamClient
from targets import Verdicts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--open", type=int, default=1000, help="requests under way at once")
    parser.add_argument("--tokens", type=int, default=20, help="of each response")
    parser.add_argument("--pace", type=float, default=1.0, help="seconds between two of its tokens")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(there, args.tokens, args.pace), daemon=True
    )
    server.start()
    url = f"http://127.0.0.1:{here.recv()}/v1"
    with competing_load() as load, StreamClient() as client:
        cpu_s = time.process_time()
        results = ask(client, url, args.open)
        cpu_s = time.process_time() - cpu_s
        late = sorted(client.late_s)
    server.terminate()
    events = args.open * (args.tokens + 1)
    result = {
        "open": args.open,
        "tokens": args.tokens,
        "pace_s": args.pace,
        "cpu_us_per_event": 1e6 * cpu_s / events,
        "cpu_share_of_one_core": cpu_s / max(total for _, total, _ in results),
        "first_token_s": times([first for first, _, _ in results]),
        "worst_first_token_s": max(first for first, _, _ in results),
        "per_token_over_pace_ms": times([each - args.pace for _, _, each in results], 1e3),
        "late_p99_s": late[int(0.99 * len(late))] if late else None,
        "load_share": load.share,
    }
    print(
        f"{args.open} open requests, {events} events: {result['cpu_us_per_event']:.0f} us of CPU time an event"
    )
    print(
        f"{result['cpu_share_of_one_core']:.0%} of a core; loop late by {result['late_p99_s']:.4f} s (99th percentile)"
    )
    print(
        f"first token {result['first_token_s']['median']:.4f} s, worst {result['worst_first_token_s']:.4f} s"
    )
    print(
        f"a token takes {result['per_token_over_pace_ms']['median']:.2f} ms more than the server's pace"
    )
    print(load_line(load))
    finish(result, Verdicts(), args.json)


def ask(client: StreamClient, url: str, requests: int) -> list[tuple[float, float, float]]:
    """(seconds to the first token, to the last, of each later token) of requests that are sent at
    once.
    """
    server = JsonServer(url, timeout_s=600)
    start = threading.Barrier(requests)
    body: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "x" * 4000}],
        "stream": True,
    }

    def one(_: int) -> tuple[float, float, float]:
        sent: list[float] = []
        start.wait()
        completion = client.complete(server, "chat/completions", body, "m", sent)
        first = completion.pieces[0].at
        last = completion.pieces[-1].at
        return first - sent[0], last - sent[0], (last - first) / max(1, len(completion.pieces) - 1)

    with ThreadPoolExecutor(requests) as pool:
        return list(pool.map(one, range(requests)))


def serve(parent: Connection, tokens: int, pace_s: float) -> None:
    """Send so many tokens to each request, one every `pace_s` seconds; sends the port first."""

    def chunk(content: str, finish: str | None = None) -> bytes:
        event = {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]}
        data = f"data: {json.dumps(event)}\n\n".encode()
        return b"%x\r\n%b\r\n" % (len(data), data)

    token = chunk("The")
    end = chunk("", "stop") + b"0\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        await reader.readexactly(int(head.lower().partition("content-length:")[2].split()[0]))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        next_at = time.perf_counter()
        for _ in range(tokens):
            writer.write(token)
            next_at += pace_s
            await asyncio.sleep(max(0.0, next_at - time.perf_counter()))
        writer.write(end)
        await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
        parent.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


if __name__ == "__main__":
    main()
