"""Streamed replies of a server to many requests at a time, read on one event loop in a thread of
its own.

On asyncio's own streams: an event costs a sixth of the processor time that it takes an HTTP
library, and a thousand connections open at once. A request has a connection of its own, whose
opening is not part of its time, and is sent once. Proxies of the environment are not used.
"""

import asyncio
import io
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPMessage, parse_headers
from typing import Self
from urllib.error import HTTPError
from urllib.parse import urlsplit

from ragauge.engines.served.completions import TORN, Completion, Reading
from ragauge.engines.served.http import MAX_REPLY, JsonServer
from ragauge.io.jsonl import JsonObject

MAX_LINE = 1 << 20  # bytes of a header, or of a chunk's length
TICK_S = 0.02  # between two looks at how late the loop is


@dataclass(frozen=True)
class _Response:
    status: int
    reason: str
    headers: HTTPMessage
    reader: asyncio.StreamReader

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives.

        Raises:
            ValueError, EOFError: it breaks off.
        """
        left = MAX_REPLY
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            while line := await self.reader.readline():
                if not (size := int(line.partition(b";")[0], 16)):
                    return
                left -= size
                if left < 0:
                    raise ValueError("the reply is too long")
                yield (await self.reader.readexactly(size + 2))[:-2]
            raise EOFError
        left = int(self.headers.get("Content-Length", left))
        if left > MAX_REPLY:
            raise ValueError("the reply is too long")
        while left and (piece := await self.reader.read(min(left, 1 << 16))):
            left -= len(piece)
            yield piece


class StreamClient:
    """Sends requests from any thread. A context: requests that are under way at its end are
    cancelled.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="streams", daemon=True)
        self.stack = ""  # the server's name for itself
        # by which the loop was late, every TICK_S: the client's own delay
        self.late_s: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._watch(), self._loop)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def complete(
        self, server: JsonServer, path: str, body: JsonObject, name: str, sent: list[float]
    ) -> Completion:
        """POST a request for a completion, once.

        Args:
            name: of the model, for errors.
            sent: gets the `time.perf_counter()` at which the request was sent.

        Raises:
            EndpointError: the server refused it, broke off, or took longer than its `timeout_s` for
                all of it.
        """
        work = self._complete(server, server.address(path), json.dumps(body).encode(), sent)
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except TimeoutError:
            late = TimeoutError(f"no complete response within {server.timeout_s:g} s")
            raise server.failure(late, name) from None
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise server.failure(error, name) from None

    async def _complete(
        self, server: JsonServer, address: str, data: bytes, sent: list[float]
    ) -> Completion:
        async with (
            asyncio.timeout(server.timeout_s),
            self._response(server, address, data, sent) as response,
        ):
            self.stack = response.headers.get("Server") or self.stack
            reading = Reading(Completion(stack=self.stack))
            try:
                async for piece in response.pieces():
                    if reading.feed(piece):
                        return reading.completion.checked()
            except (OSError, EOFError):
                return reading.end(ValueError(TORN))
            return reading.end()

    @asynccontextmanager
    async def _response(
        self, server: JsonServer, address: str, data: bytes, sent: list[float]
    ) -> AsyncIterator[_Response]:
        """Send a request; raises HTTPError where the server refuses it."""
        parts = urlsplit(address)
        secure = self._tls if parts.scheme == "https" else None
        port = parts.port or (443 if secure else 80)
        reader, writer = await asyncio.open_connection(
            parts.hostname, port, ssl=secure, limit=MAX_LINE
        )
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            headers = {
                **server.headers,
                "Host": parts.netloc,
                "Content-Length": str(len(data)),
                "Connection": "close",
            }
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            request = f"POST {target} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
            sent.append(time.perf_counter())
            writer.write(request + data)
            head = await reader.readuntil(b"\r\n\r\n")
            status, _, rest = head.partition(b"\r\n")
            _, code, *reason = status.decode("latin-1").split(" ", 2)
            response = _Response(
                int(code), " ".join(reason), parse_headers(io.BytesIO(rest)), reader
            )
            if not 200 <= response.status < 300:
                detail = b""
                with suppress(OSError, EOFError, ValueError):
                    detail = b"".join([piece async for piece in response.pieces()])[:4096]
                raise HTTPError(
                    address,
                    response.status,
                    response.reason,
                    response.headers,
                    io.BytesIO(detail),
                )
            yield response
        finally:
            writer.close()

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    async def _watch(self) -> None:
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(TICK_S)
            self.late_s.append(time.perf_counter() - begin - TICK_S)
