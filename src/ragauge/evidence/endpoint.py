"""A language model behind an OpenAI-compatible HTTP endpoint: a chat goes in, a text or one error comes out."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPException
from itertools import count
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ragauge.errors import UserError

RETRIED = {408, 409, 425, 429}  # besides 5xx
LONGEST_PAUSE_S = 60.0
LONGEST_REPLY = 8 << 20  # bytes


class EndpointError(UserError):
    """The endpoint returned no usable text in any attempt."""


@dataclass(frozen=True)
class Endpoint:
    """A model that answers chats; requests are retried with growing pauses while it is down, busy or invalid."""

    url: str  # up to and without "/chat/completions", such as http://localhost:8000/v1
    model: str
    key: str | None = field(default=None, repr=False)  # sent as a bearer token, shown nowhere
    timeout_s: float = 60.0  # of one request
    attempts: int = 5
    pause_s: float = 1.0  # before the second attempt; doubles each time

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UserError(f"endpoint {self.url!r}: must be http://host/... or https://host/...")
        if self.key is not None and not (self.key.isascii() and self.key.isprintable()):
            raise UserError(f"endpoint {self.url}: its key holds characters that no HTTP header can")

    @classmethod
    def from_environment(cls, prefix: str) -> Endpoint | None:
        """The endpoint that <prefix>_URL, <prefix>_MODEL and (optionally) <prefix>_KEY describe; None without a URL.

        Raises:
            UserError: the URL is none, or there is a URL and no model.
        """
        url, model, key = (os.environ.get(f"{prefix}_{name}") for name in ("URL", "MODEL", "KEY"))
        if not url:
            return None
        if not model:
            raise UserError(f"{prefix}_MODEL: is not set; {prefix}_URL is, and the endpoint asks which model to run")
        return cls(url, model, (key or "").strip() or None)

    def complete(self, messages: Sequence[Mapping[str, str]], max_tokens: int, temperature: float = 0) -> str:
        """The model's reply to a chat, without white space at its ends.

        Args:
            messages: each with `role` and `content`.

        Raises:
            EndpointError: every attempt failed, or one failed with an error that a retry cannot fix.
        """
        body = {"model": self.model, "messages": list(messages), "max_tokens": max_tokens, "temperature": temperature}
        pause = self.pause_s
        for attempt in count(1):
            try:
                return _text(self._post(body))
            except (OSError, HTTPException, ValueError) as error:  # away, cut off, busy, or no reply that can be read
                problem = _problem(error)
                if attempt >= self.attempts or not _mends(error):
                    raise self._failure(problem, attempt) from None
                time.sleep(min(max(pause, _asked_pause(error)), LONGEST_PAUSE_S))
                pause *= 2
        raise AssertionError("unreachable")

    def _post(self, body: Mapping[str, Any]) -> bytes:
        headers = {"Content-Type": "application/json", "User-Agent": "ragauge"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        address = self.url.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
        request = Request(address, json.dumps(body).encode(), headers, method="POST")
        with build_opener(_NoRedirect).open(request, timeout=self.timeout_s) as response:
            reply: bytes = response.read(LONGEST_REPLY)
            return reply

    def _failure(self, problem: str, attempts: int) -> EndpointError:
        asked = f" (asked {attempts} times)" if attempts > 1 else ""
        return EndpointError(f"endpoint {self.url}, model {self.model}: {problem}{asked}")


class _NoRedirect(HTTPRedirectHandler):
    """A redirect is an error: following it would turn the POST into a GET and send the key to another host."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> Request | None:
        return None


def _text(reply: bytes) -> str:
    """The text of a chat completion; raises ValueError if the reply is no such thing or empty."""
    try:
        text = json.loads(reply)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f"the reply is no chat completion: {reply[:80].decode(errors='replace')!r}") from None
    if not isinstance(text, str) or not text.strip():
        raise ValueError("the reply holds no text")
    return text.strip()


def _problem(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, HTTPError):
        with error:
            said = " ".join(error.read(300).decode(errors="replace").split())
        return f"HTTP {error.code} {error.reason}" + (f": {said[:200]}" if said else "")
    return " ".join(str(getattr(error, "reason", error)).split())[:200] or type(error).__name__


def _mends(error: Exception) -> bool:
    """Whether a retry of the same request may succeed."""
    return not isinstance(error, HTTPError) or error.code >= 500 or error.code in RETRIED


def _asked_pause(error: Exception) -> float:
    """Seconds that the endpoint asks us to wait; 0 if it names none, or a date, which clocks disagree about."""
    try:
        return max(0.0, float(error.headers.get("Retry-After", 0))) if isinstance(error, HTTPError) else 0.0
    except ValueError:
        return 0.0
