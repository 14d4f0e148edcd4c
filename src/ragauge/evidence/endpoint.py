"""A language model behind an OpenAI-compatible HTTP endpoint: a chat goes in, a text or one error comes out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPResponse

from ragauge.errors import UserError
from ragauge.io.http import MAX_REPLY, EndpointError, JsonServer

__all__ = ["Endpoint", "EndpointError"]


@dataclass(frozen=True)
class Endpoint(JsonServer):
    """A model that answers chats; its URL is up to and without "/chat/completions"."""

    model: str = field(default="", kw_only=True)

    @classmethod
    def from_environment(cls, prefix: str, purpose: str) -> Endpoint:
        """Make the endpoint that <prefix>_URL, <prefix>_MODEL and (optionally) <prefix>_KEY describe.

        Args:
            purpose: completes "the endpoint that", for the error.

        Raises:
            UserError: URL or model is not set, or the URL is malformed.
        """
        url, model, key = (os.environ.get(f"{prefix}_{name}") for name in ("URL", "MODEL", "KEY"))
        if not url:
            raise UserError(f"{prefix}_URL: is not set; it names the endpoint that {purpose}")
        if not model:
            raise UserError(f"{prefix}_MODEL: is not set; {prefix}_URL is, and the endpoint asks which model to run")
        return cls(url, (key or "").strip() or None, model=model)

    def complete(self, messages: Sequence[Mapping[str, str]], max_tokens: int, temperature: float = 0) -> str:
        """Return the model's reply to a chat, without white space at its ends.

        Args:
            messages: each with `role` and `content`.

        Raises:
            EndpointError: every attempt failed, or one failed with an error that a retry cannot fix.
        """
        body = {"model": self.model, "messages": list(messages), "max_tokens": max_tokens, "temperature": temperature}
        return self.ask("chat/completions", body, _text, self.model)


def _text(response: HTTPResponse) -> str:
    """The text of a chat completion; raises ValueError if the reply is no such thing or empty."""
    reply = response.read(MAX_REPLY)
    try:
        text = json.loads(reply)["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f"the reply is not a chat completion: {reply[:80].decode(errors='replace')!r}") from None
    if not isinstance(text, str) or not text.strip():
        raise ValueError("the reply holds no text")
    return text.strip()
