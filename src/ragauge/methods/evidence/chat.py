"""Models that reply to requests, on this machine or behind an endpoint: they write questions,
answer them and judge.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ragauge.assets.control_tokens import TemplateText
from ragauge.engines.protocol import SpanEngine
from ragauge.engines.served.completions import read_completion, text_of
from ragauge.engines.served.http import EndpointError, JsonServer, Reply
from ragauge.errors import UserError
from ragauge.io.files import text_sha256
from ragauge.methods.base.method import unit_row
from ragauge.methods.evidence.writing import write
from ragauge.methods.prompts.templates import token_ids, wrapper

Replies = list[str | None]

FAILURES_IN_A_ROW = 3  # after which an endpoint gets no more requests


class Chat(ABC):
    """A model that replies to requests; `name` is what reports call it, `version` what else its
    replies depend on.
    """

    name: str
    version: str = ""
    opens: bool = False  # whether a cue opens the reply, which goes on from it

    @abstractmethod
    def replies(
        self, requests: Sequence[str], max_tokens: int, cue: str = "", instruction: str = ""
    ) -> Replies:
        """Reply to each request with at most `max_tokens`; None where there was no reply.

        `cue` is the beginning of the reply where a model lets it be given, `instruction` is added
        to the request where it does not.

        Raises:
            UserError: no request got a reply.
        """


@dataclass(frozen=True)
class LocalChat(Chat):
    """A decoder on this machine that writes one line to each request, several side by side in every
    pass, greedily.
    """

    engine: SpanEngine
    template: str  # how the model's prompts are wrapped
    name: str = ""
    version: str = ""
    opens = True

    def replies(
        self, requests: Sequence[str], max_tokens: int, cue: str = "", instruction: str = ""
    ) -> Replies:
        import torch

        tokenizer = self.engine.tokenizer
        opening, task = wrapper(self.template, tokenizer)
        ending = TemplateText(task + cue)
        prompts = [
            token_ids(tokenizer, (opening, text, ending), self.template) for text in requests
        ]
        rows = [unit_row(ids, 0) for ids in prompts]
        most = [max_tokens] * len(prompts)
        with torch.inference_mode():
            cache = self.engine.new_cache(sum(map(len, prompts)) + len(prompts) * max_tokens)
            written = write(
                self.engine,
                cache,
                rows,
                most=most,
                stage="reply",
                last=lambda token: "\n" in tokenizer.decode([token]),
            )
        return [
            tokenizer.decode(ids, skip_special_tokens=True).partition("\n")[0] for ids in written
        ]


@dataclass(frozen=True)
class Endpoint(JsonServer):
    """A model that answers chats; its URL is up to and without "/chat/completions"."""

    model: str = field(default="", kw_only=True)

    @classmethod
    def from_environment(cls, prefix: str, purpose: str) -> Endpoint:
        """Make the endpoint ("the endpoint that <purpose>") that <prefix>_URL, <prefix>_MODEL and
        (optionally) <prefix>_KEY describe.

        Raises:
            UserError: URL or model is not set, or the URL is malformed.
        """
        url, model, key = (os.environ.get(f"{prefix}_{name}") for name in ("URL", "MODEL", "KEY"))
        if not url:
            raise UserError(f"{prefix}_URL: is not set; it names the endpoint that {purpose}")
        if not model:
            raise UserError(
                f"{prefix}_MODEL: is not set; {prefix}_URL is, and the endpoint asks which model to run"
            )
        return cls(url, (key or "").strip() or None, model=model)

    def complete(
        self, messages: Sequence[Mapping[str, str]], max_tokens: int, temperature: float = 0
    ) -> str:
        """Return the model's reply to a chat of messages with `role` and `content`, without white
        space at its ends.

        Raises:
            EndpointError: every attempt failed, or one with an error that a retry cannot fix.
        """
        body = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        return self.ask("chat/completions", body, _text, self.model)


def _text(reply: Reply) -> str:
    """Return the answer of a chat completion; raises ValueError if the reply is no such thing or
    has no answer.
    """
    completion = read_completion(reply)
    if problem := completion.problem():
        raise ValueError(problem)
    return text_of(completion.split()[0])


class EndpointChat(Chat):
    """A model behind an endpoint, one request at a time; after repeated failures it gets no more."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.name = endpoint.model
        self.failures = 0  # in a row

    def replies(
        self, requests: Sequence[str], max_tokens: int, cue: str = "", instruction: str = ""
    ) -> Replies:
        replies: Replies = []
        problem: EndpointError | None = None
        for request in requests:
            try:
                if self.failures >= FAILURES_IN_A_ROW:
                    raise EndpointError(
                        f"not sent: {self.endpoint.url} had failed {self.failures} times in a row"
                    )
                self.failures += 1
                message = {"role": "user", "content": request + instruction}
                replies.append(self.endpoint.complete([message], max_tokens))
                self.failures = 0
            except EndpointError as error:
                replies.append(None)
                problem = error
        if problem and not any(replies):
            raise problem
        return replies


class RecordedChat(Chat):
    """A model whose replies are recorded in a file: no run makes a request that an earlier run has
    a reply to.
    """

    def __init__(self, chat: Chat, path: Path) -> None:
        self.chat = chat
        self.path = path
        self.name = chat.name
        self.opens = chat.opens
        # by the digest of the request; None: no reply, of this run alone
        self._recorded: dict[str, str | None] = {}
        for line in path.read_bytes().split(b"\n") if path.is_file() else ():
            try:
                key, reply = json.loads(line)
            except (ValueError, TypeError, RecursionError):  # a torn line
                continue
            if isinstance(reply, str):
                self._recorded[str(key)] = reply

    def replies(
        self, requests: Sequence[str], max_tokens: int, cue: str = "", instruction: str = ""
    ) -> Replies:
        writer = self.name + self.chat.version
        keys = [
            text_sha256(writer, request, max_tokens, cue, instruction)[:32] for request in requests
        ]
        new = {
            key: request
            for key, request in zip(keys, requests, strict=True)
            if key not in self._recorded
        }
        if new:
            replies = self.chat.replies(list(new.values()), max_tokens, cue, instruction)
            with self.path.open("ab") as file:
                for key, reply in zip(new, replies, strict=True):
                    if reply is not None:  # a request that failed is made again by the next run
                        # after a line that a kill may have cut
                        file.write(b"\n" + json.dumps((key, reply)).encode())
            self._recorded |= dict(zip(new, replies, strict=True))
        return [self._recorded[key] for key in keys]
