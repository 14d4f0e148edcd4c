"""A model behind an OpenAI-compatible server (`openai:NAME`): whole prompts in, text out, on the server's own stack.

The server has the tokenizer, the chat template and the cache. So that methods can build prompts of segments without
them, a text is represented by ids of its *pieces*, whose concatenation is the text: those of a tokenizer that the
configuration names, else words and parts of long words. Counts of tokens (prompt, cached and new ones) are the
server's, from its reply.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from http.client import HTTPResponse
from itertools import accumulate, pairwise
from threading import Lock
from typing import Any, NamedTuple

from ragauge.cost.trace import Call, Trace
from ragauge.engines.protocol import SERVED, Capabilities, EngineLostError, Exchange, Limits, Response, Traced
from ragauge.errors import UserError
from ragauge.io.http import EndpointError, JsonServer, events

PREFIX = "openai:"  # of sources
CAPABILITIES: Capabilities = SERVED

UNBOUNDED = 1 << 30  # tokens of a context that nobody states: the server refuses what is too long
USER, ASSISTANT = "\ufdd0", "\ufdd1"  # before and after the user's turn; code points that no text may have
ROUGH_PIECES = re.compile(rf"[{USER}{ASSISTANT}]|[^\S\n]?\w{{1,8}}|[^\S\n]?[^\w\s{USER}{ASSISTANT}]{{1,4}}|\s")
PROMPT_ERRORS = {400, 413, 422}  # HTTP statuses that refuse one request, as a prompt beyond the context


class PieceTokenizer:
    """Text as ids of its pieces, without loss, with the part of transformers' interface that prompts need."""

    is_fast = True
    chat_template = f"{USER}...{ASSISTANT}"  # the server has the real one

    def __init__(self, split: Callable[[str], list[str]] = ROUGH_PIECES.findall) -> None:
        self._split = split  # cuts a text into its pieces
        self._ids: dict[str, int] = {}
        self._pieces: dict[int, str] = {}

    def __call__(self, text: str, *, return_offsets_mapping: bool = False, **_: Any) -> dict[str, Any]:
        """`input_ids`, and `offset_mapping` where requested."""
        pieces = self._split(text)
        encoding: dict[str, Any] = {"input_ids": self.ids(pieces)}
        if return_offsets_mapping:
            ends = list(accumulate(map(len, pieces)))
            encoding["offset_mapping"] = list(zip([0, *ends], ends, strict=False))
        return encoding

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """The ids of pieces: the same in every process."""
        for piece in pieces:
            if piece not in self._ids:
                number = int.from_bytes(hashlib.sha256(piece.encode(errors="surrogatepass")).digest()[:7])
                self._ids[piece], self._pieces[number] = number, piece
        return [self._ids[piece] for piece in pieces]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of pieces that this tokenizer has seen."""
        text = "".join(self._pieces[i] for i in ids)
        return text.replace(USER, "").replace(ASSISTANT, "") if skip_special_tokens else text

    def apply_chat_template(self, turns: Sequence[Mapping[str, str]], **_: Any) -> str:
        """A user's turn between the marks that `ServedEngine` sends as a chat."""
        [turn] = turns
        return f"{USER}{turn['content']}{ASSISTANT}"


class _Reply(NamedTuple):
    """A stream as it was read, times of `time.perf_counter()`."""

    sent: float
    first: float  # when the first piece arrived; the stream's end where there was none
    ended: float
    pieces: list[str]
    exchange: Exchange  # as of one attempt


class ServedEngine(Traced):
    """A served model. Times are from the sending of the attempt that succeeded, as a client sees them."""

    capabilities = CAPABILITIES
    peak_cache_bytes = 0  # the server does not say

    def __init__(
        self,
        model: str,
        server: JsonServer,
        tokenizer: PieceTokenizer,
        *,
        max_context: int | None = None,
        body: Mapping[str, Any] | None = None,
        concurrency: int | None = None,
    ) -> None:
        """
        Args:
            body: further keys of every request; one with None leaves a key out.
            concurrency: requests at a time; None: as the run says.
        """
        self.model, self.server, self.tokenizer = model, server, tokenizer
        self.max_context = max_context or UNBOUNDED
        self.body, self.concurrency = dict(body or {}), concurrency
        self.first_token_at: float | None = None
        self.cut = False
        self.exchange: Exchange | None = None
        self._turn: Lock | None = None

    def for_thread(self, turn: Lock, concurrency: int) -> ServedEngine:
        engine = copy(self)
        engine.concurrency, engine._turn = concurrency, turn
        return engine

    @contextmanager
    def tracing(self) -> Iterator[Trace]:
        self.exchange = None
        with super().tracing() as trace:
            yield trace

    def respond(self, prompt: Sequence[int] | str, limits: Limits) -> Response:
        """See `Engine.respond`.

        Raises:
            UserError: the server refuses this prompt, as it does one beyond its context.
            EngineLostError: the server gives no answer to any prompt.
        """
        text = prompt if isinstance(prompt, str) else self.tokenizer.decode(prompt)
        path, body = self._request(text, limits)
        begin, sent = time.perf_counter(), list[float]()
        if self._turn:  # other threads work while this one waits for the server
            self._turn.release()
        try:
            reply = self._send(path, body, sent)
        finally:
            if self._turn:
                self._turn.acquire()
        # The time of earlier attempts and of the pauses between them is not the model's; `attempts` shows them.
        self.first_token_at = reply.first - (reply.sent - begin)
        concurrency = 1 if self._turn is None else self.concurrency or 1
        self.exchange = replace(reply.exchange, attempts=len(sent), concurrency=concurrency)
        new = self.exchange.new_tokens
        self.cut = self.exchange.finish == "length" and new is not None and new < limits.max_new_tokens
        self._record_calls(text, reply)
        return Response(self.tokenizer.ids(reply.pieces), self.exchange.token_s)

    def _request(self, text: str, limits: Limits) -> tuple[str, dict[str, Any]]:
        """(path, body): a chat of one turn where the prompt has the marks of one, else a bare text to continue."""
        before, chat, rest = text.partition(USER)
        turn, _, after = rest.partition(ASSISTANT)
        if chat and (before or after):
            raise UserError("a served model reads a chat as one turn; this prompt has text around it")
        body: dict[str, Any] = {"messages": [{"role": "user", "content": turn}]} if chat else {"prompt": text}
        body |= {"model": self.model, "max_tokens": limits.max_new_tokens, "temperature": 0, "stream": True}
        body |= {"stream_options": {"include_usage": True}}
        if limits.stop and not limits.ignore_stop:
            body["stop"] = list(limits.stop)
        stated = {key: value for key, value in (body | self.body).items() if value is not None}
        return ("chat/completions" if chat else "completions"), stated

    def _send(self, path: str, body: Mapping[str, Any], sent: list[float]) -> _Reply:
        """The reply; `sent` gets the time at which each attempt began."""
        try:
            return self.server.ask(path, body, lambda response: _read(response, sent[-1]), self.model, sent)
        except EndpointError as error:
            unclear = error.status is None or error.status >= 500  # may be of this prompt or of all
            if error.status in PROMPT_ERRORS or (unclear and self._answers(path, body)):
                raise
            raise EngineLostError(str(error)) from None

    def _answers(self, path: str, body: Mapping[str, Any]) -> bool:
        """Whether the server answers a short prompt at once, so that the prompt before caused the failure."""
        short = {"messages": [{"role": "user", "content": "Hi"}]} if "messages" in body else {"prompt": "Hi"}
        server = replace(self.server, attempts=1)
        try:
            server.ask(path, {**body, **short, "max_tokens": 1}, lambda response: _read(response, 0.0), self.model)
        except EndpointError:
            return False
        return True

    def _record_calls(self, text: str, reply: _Reply) -> None:
        """The calls of the trace, in the server's tokens where it counts them, else in pieces."""
        tokens = reply.exchange.prompt_tokens or len(self.tokenizer(text)["input_ids"])
        cached = min(reply.exchange.cached_tokens or 0, tokens - 1)
        self.note(Call("prompt", (tokens - cached,), (cached,), logits=(1,), seconds=reply.first - reply.sent))
        steps = max(reply.exchange.new_tokens or 0, len(reply.pieces)) - 1
        if steps > 0:
            self.note(Call("decode", (1,), (tokens,), logits=(1,), steps=steps, seconds=reply.ended - reply.first))


def load(
    source: str, *, max_context: int | None = None, served: Mapping[str, Any] | None = None, **_: Any
) -> ServedEngine:
    """The model `NAME` of a source `openai:NAME` at the server that the environment names; nothing is sent yet.

    Data type, device and threads are the server's own.

    Args:
        served: `environment` (OPENAI): the server's URL is in <environment>_BASE_URL, its key, if it takes one, in
            <environment>_API_KEY; `tokenizer`: an asset whose tokenizer cuts texts into pieces (roughly, by words);
            `timeout_s` (600) of a request until its first token, and between two tokens; `attempts` (5) of a request;
            `body` and `concurrency`, as of `ServedEngine`.

    Raises:
        UserError: the environment names no server, or the tokenizer cannot be loaded.
    """
    options = dict(served or {})
    environment, tokenizer = options.pop("environment", "OPENAI"), options.pop("tokenizer", None)
    limits = {"timeout_s": options.pop("timeout_s", 600.0), "attempts": options.pop("attempts", 5)}
    url, key = (os.environ.get(f"{environment}_{name}", "").strip() for name in ("BASE_URL", "API_KEY"))
    if not url:
        problem = f"is not set; {source} needs a server, such as http://localhost:8000/v1"
        raise UserError(f"{environment}_BASE_URL: {problem}")
    pieces = PieceTokenizer(_splitter(tokenizer)) if tokenizer else PieceTokenizer()
    server = JsonServer(url, key or None, **limits)
    return ServedEngine(source.removeprefix(PREFIX), server, pieces, max_context=max_context, **options)


def _splitter(source: str) -> Callable[[str], list[str]]:
    """A function that cuts a text where the tokenizer of an asset does."""
    from ragauge import assets
    from ragauge.assets.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(assets.resolve(source))
    if not tokenizer.is_fast:
        raise UserError(f"tokenizer {source!r}: does not say which characters a token stands for")

    def cut(text: str) -> list[str]:
        """A text in as many pieces as it has tokens; characters between two tokens belong to the one before."""
        read = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        starts = [start for start, _ in read["offset_mapping"][1:]]
        return [text[start:stop] for start, stop in pairwise([0, *accumulate(starts, max), len(text)])]

    def split(text: str) -> list[str]:
        parts = re.split(f"([{USER}{ASSISTANT}])", text)
        return [piece for i, part in enumerate(parts) if part for piece in ([part] if i % 2 else cut(part))]

    return split


def _read(response: HTTPResponse, sent: float) -> _Reply:
    """A stream of chat or text completions.

    Raises:
        ValueError: it is not one, or the server reports an error in it.
    """
    pieces, piece_at, usage, finish = list[str](), list[float](), dict[str, Any](), None
    for event in events(response):
        if event.get("error"):
            raise ValueError(f"the stream holds an error: {str(event['error'])[:160]}")
        usage = event["usage"] if isinstance(event.get("usage"), dict) else usage
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        delta = choice.get("delta")
        text = (delta if isinstance(delta, dict) else choice).get("content" if isinstance(delta, dict) else "text")
        if isinstance(text, str) and text:
            pieces.append(text)
            piece_at.append(time.perf_counter())
        finish = choice.get("finish_reason") or finish
    ended, details = time.perf_counter(), usage.get("prompt_tokens_details")
    if finish is None and not pieces:
        raise ValueError("the stream has no completion")
    exchange = Exchange(
        prompt_tokens=_count(usage, "prompt_tokens"),
        cached_tokens=_count(details, "cached_tokens") if isinstance(details, dict) else None,
        new_tokens=_count(usage, "completion_tokens"),
        token_s=tuple(at - sent for at in piece_at),
        finish=finish,
        stack=response.headers.get("Server") or "",
    )
    return _Reply(sent, piece_at[0] if piece_at else ended, ended, pieces, exchange)


def _count(counts: Mapping[str, Any], name: str) -> int | None:
    value = counts.get(name)
    return value if type(value) is int and value >= 0 else None
