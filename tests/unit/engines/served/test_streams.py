"""A reply in chunks whose connection ends before its last chunk: complete where the server gave a
reason to end.
"""

import json
import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from endpoints import chunk
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


def test_one_without_is_said_to_be_broken_off():
    broken = pytest.raises(UserError, match=r"the stream broke off before its end$")
    with chunked(chunk(content="Ada")) as server, StreamClient() as client, broken:
        client.complete(server, "chat/completions", {}, "m", [])


def test_a_header_beyond_the_limit_is_an_error_of_the_server():
    too_long = chunked(chunk("stop"), header=b"X: " + b"x" * MAX_LINE + b"\r\n")
    with too_long as server, StreamClient() as client, pytest.raises(UserError, match="limit"):
        client.complete(server, "chat/completions", {}, "m", [])
