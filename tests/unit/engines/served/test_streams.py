"""A reply in chunks whose connection ends before its last chunk: complete where the server gave a
reason to end.
"""

import json
import random
import socket
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from endpoints import chunk
from ragauge.engines.served import completions, http, streams
from ragauge.engines.served.completions import read_completion, text_of
from ragauge.engines.served.http import JsonServer
from ragauge.engines.served.streams import MAX_LINE, StreamClient
from ragauge.errors import UserError


@contextmanager
def chunked(*events, header=b""):
    """A server that closes the connection after these events, each a chunk; with lines of its
    header.
    """
    lines = [f"data: {json.dumps(event)}\n\n".encode() for event in events]
    body = b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            with connection, suppress(OSError):  # the client may leave before the end
                connection.recv(1 << 16)
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + header + b"\r\n" + body
                )

        thread = threading.Thread(target=answer)
        thread.start()
        yield JsonServer(
            f"http://127.0.0.1:{listener.getsockname()[1]}/v1", attempts=1, timeout_s=10
        )
        thread.join()


def test_an_answer_with_a_reason_to_end_is_complete():
    with chunked(chunk(content="Ada"), chunk("stop")) as server, StreamClient() as client:
        streamed = client.complete(server, "chat/completions", {}, "m", [])
    with chunked(chunk(content="Ada"), chunk("stop")) as server:
        read = server.ask("chat/completions", {}, read_completion)
    assert text_of(streamed.pieces) == text_of(read.pieces) == "Ada"


def test_a_header_beyond_the_limit_is_an_error_of_the_server():
    too_long = chunked(chunk("stop"), header=b"X: " + b"x" * MAX_LINE + b"\r\n")
    with too_long as server, StreamClient() as client, pytest.raises(UserError, match="limit"):
        client.complete(server, "chat/completions", {}, "m", [])


ENDLESS = {
    "blank lines after a brace": (b"{", b"\n" * 50),
    "comments": (b"", b": still here\n\n"),
    "bytes of one line": (b"data: ", b"x"),
    "events without text": (b"", b'data: {"choices": []}\n\n'),
    "chunks": (b"", b"1\r\nx\r\n"),
}


@contextmanager
def endless(start, again, header=b""):
    """A server that sends `again` every 20 ms for as long as anybody reads, and counts requests."""
    requests = []
    ended = threading.Event()

    def answer(connection):
        with connection, suppress(OSError):
            connection.recv(1 << 16)
            requests.append(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + header + b"\r\n" + start)
            while not ended.wait(0.02):
                connection.sendall(again)

    def accept():
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=listener.accept()[:1]).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept).start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        yield JsonServer(address, attempts=3, timeout_s=0.3, pause_s=0.01), requests
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_that_never_ends_is_an_error_in_time(kind, streamed):
    header = b"Transfer-Encoding: chunked\r\n" if kind == "chunks" else b""
    started = time.monotonic()
    with endless(*ENDLESS[kind], header) as (server, requests), StreamClient() as client:
        by_kind = {
            True: lambda: client.complete(server, "chat/completions", {}, "m", []),
            False: lambda: server.ask("chat/completions", {}, read_completion, "m"),
        }
        with pytest.raises(UserError, match=r"in time|no complete response within"):
            by_kind[streamed]()
    assert time.monotonic() - started < 3
    assert len(requests) == 1  # another attempt would take as long


@pytest.mark.parametrize("streamed", [False, True])
def test_a_reply_beyond_the_limit_is_refused_and_not_cut(streamed, monkeypatch):
    monkeypatch.setattr(http, "MAX_REPLY", 1 << 20)
    monkeypatch.setattr(streams, "MAX_REPLY", 1 << 20)
    events = [{"choices": [{"text": "x" * 60_000}]}] * 20
    with chunked(*events) as server, StreamClient() as client:
        by_kind = {
            True: lambda: client.complete(server, "completions", {}, "m", []),
            False: lambda: server.ask("completions", None, read_completion, "m"),
        }
        with pytest.raises(UserError, match=r"longer than 1 MiB|too long"):
            by_kind[streamed]()


def test_a_line_has_a_limit(monkeypatch):
    monkeypatch.setattr(completions, "MAX_LINE", 1000)
    rng = random.Random(1)
    for length in (990, 1001, 5000):
        reading = completions.Reading(completions.Completion())
        data = b"data: " + b"x" * (length - 6)
        cuts = sorted(rng.sample(range(1, length), 9))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, length], strict=True)]
        if length > 1000:
            with pytest.raises(ValueError, match="a line of more than 1,000 bytes"):
                any(map(reading.feed, pieces))
        else:
            assert not any(map(reading.feed, pieces))
