"""Requests to an HTTP server that replies in JSON or as a stream of events, with retries and
bounded replies.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPException, HTTPResponse
from itertools import count
from ssl import SSLCertVerificationError
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject
from ragauge.io.redaction import HIDDEN, holds_secret, redacted

TRANSIENT = {408, 409, 425, 429}  # besides 5xx
MAX_PAUSE_S = 60.0
MAX_PROBLEM = 230  # characters of what an endpoint says, in an error
MAX_REPLY = 64 << 20  # bytes; an event of a token has some 300
LONGEST = 3  # times `timeout_s`: the seconds that a whole response may take

Read = TypeVar("Read")


class EndpointError(UserError):
    """The endpoint returned no usable reply in any attempt. `status` is the last HTTP status, None
    without one, `detail` what the endpoint said, and `wish_s` the seconds after which it accepts
    a retry.
    """

    def __init__(
        self, message: str, status: int | None = None, detail: str = "", wish_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail
        self.wish_s = wish_s


class OverdueError(TimeoutError):
    """A response did not end in time, or within `MAX_REPLY`; another attempt would do no better."""


@dataclass(frozen=True)
class Reply:
    """A response whose body is read as it arrives."""

    headers: Message
    pieces: Iterator[bytes]  # of the body; raises OverdueError


@dataclass(frozen=True)
class JsonServer:
    """A server that is sent JSON; requests are retried with growing pauses while it is down, busy
    or invalid.
    """

    url: str  # such as http://localhost:8000/v1
    key: str | None = field(default=None, repr=False)  # sent as a bearer token, shown nowhere
    # between two arrivals of data; a whole response may take LONGEST times that
    timeout_s: float = 60.0
    attempts: int = 5
    pause_s: float = 1.0  # before the second attempt; doubles each time

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if holds_secret(self.url):
            raise UserError(
                "endpoint: its URL holds a user, password or token, which errors would show; use the key"
            )
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UserError(f"endpoint {self.url!r}: must be http://host/... or https://host/...")
        if self.key is not None and not (self.key.isascii() and self.key.isprintable()):
            raise UserError(
                f"endpoint {self.url}: its key holds characters that no HTTP header can"
            )

    def ask(
        self,
        path: str,
        body: JsonObject | None,
        read: Callable[[Reply], Read],
        name: str = "",
        sent: list[float] | None = None,
    ) -> Read:
        """POST a body, or GET without one, and return what `read` makes of the response.

        Args:
            path: below the URL, such as "chat/completions".
            read: raises ValueError on a reply that is not what was requested; the request is then
                tried again.
            name: of the model, for errors.
            sent: gets the `time.perf_counter()` at which each attempt began.

        Raises:
            EndpointError: every attempt failed, or one failed with an error that a retry cannot
                fix.
        """
        pause = self.pause_s
        for attempt in count(1):
            if sent is not None:
                sent.append(time.perf_counter())
            try:
                data = None if body is None else json.dumps(body).encode()
                request = Request(self.address(path), data, self.headers)
                end = time.monotonic() + LONGEST * self.timeout_s
                with build_opener(_NoRedirect).open(request, timeout=self.timeout_s) as response:
                    return read(Reply(response.headers, _pieces(response, end)))
            except (
                OSError,
                HTTPException,
                ValueError,
            ) as error:  # unreachable, cut off, busy, or invalid
                failure = self.failure(error, name, attempt)
                status = failure.status
                final = (
                    _untrusted(error)
                    or isinstance(error, OverdueError)
                    or not (status is None or status >= 500 or status in TRANSIENT)
                )
                if attempt >= self.attempts or final:
                    raise failure from None
                time.sleep(min(max(pause, failure.wish_s), MAX_PAUSE_S))
                pause *= 2
        raise AssertionError("unreachable")

    def address(self, path: str) -> str:
        return self.url.rstrip("/").removesuffix(f"/{path}") + f"/{path}"

    @property
    def headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": "ragauge"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        return headers

    def failure(self, error: Exception, name: str = "", attempt: int = 1) -> EndpointError:
        """The error of a request that failed at last, without the key; `name`: of the model."""
        problem = _problem(error, self.key)
        wish_s = 0.0
        with suppress(AttributeError, ValueError):  # none, or a date, as clocks disagree
            wish_s = float(error.headers.get("Retry-After", 0))  # type: ignore[attr-defined]
        place = f"endpoint {self.url}{f', model {name}' if name else ''}"
        tries = f" ({attempt} attempts)" if attempt > 1 else ""
        message = f"{place}: {problem[:MAX_PROBLEM]}{tries}"
        return EndpointError(message, getattr(error, "code", None), problem, wish_s)


def _pieces(response: HTTPResponse, end: float) -> Iterator[bytes]:
    """Yield a body as it arrives until `end`, by `time.monotonic()`, whatever arrives."""
    left = MAX_REPLY
    while piece := response.read1(1 << 16):
        left -= len(piece)
        if left < 0:
            raise OverdueError(f"the response is longer than {MAX_REPLY >> 20} MiB")
        yield piece
        if time.monotonic() > end:
            raise OverdueError("the response has not ended in time")


def json_object(data: bytes, place: str) -> JsonObject:
    """Parse a JSON object.

    Raises:
        ValueError: it is none, with the place.
    """
    with suppress(ValueError, RecursionError):
        value = json.loads(data)
        if isinstance(value, dict):
            return value
    raise ValueError(f"{place} is not a JSON object: {data[:80].decode(errors='replace')!r}")


class _NoRedirect(HTTPRedirectHandler):
    """A redirect is an error: following it would turn the POST into a GET and send the key to
    another host.
    """

    def redirect_request(self, *_: Any) -> None:
        return None


def _untrusted(error: Exception) -> str:
    """Say why the server's certificate was refused; empty if it was not."""
    cause = error.reason if isinstance(error, URLError) else error
    return cause.verify_message if isinstance(cause, SSLCertVerificationError) else ""


def _problem(error: Exception, key: str | None) -> str:
    """Describe an error in one line without the key, which a server may repeat."""
    start = ""
    detail = str(getattr(error, "reason", error))
    if certificate := _untrusted(error):
        detail = f"its certificate is not trusted: {certificate}; SSL_CERT_FILE names a file of authorities to trust"
    if isinstance(error, HTTPError):
        with error:
            start = f"HTTP {error.code} {error.reason}"
            detail = error.read(4096).decode(errors="replace")
    detail = redacted(" ".join((detail.replace(key, HIDDEN) if key else detail).split()))
    return ": ".join(filter(None, (start, detail))) or type(error).__name__
