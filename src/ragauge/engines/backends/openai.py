"""A model behind an OpenAI-compatible server (`openai:NAME`); see docs/served-models.md.

The server has the tokenizer. So that methods can build prompts of segments, a text is represented
by ids of its *pieces*, whose concatenation is the text: those of a tokenizer that the configuration
names, else roughly words.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from threading import Lock
from typing import Any

from ragauge.cost.trace import Call, Trace
from ragauge.engines.protocol import SERVED, EngineLostError, Limits, Response, Traced
from ragauge.engines.served.completions import (
    Completion,
    count,
    read_completion,
    read_models,
    text_of,
)
from ragauge.engines.served.http import EndpointError, JsonObject, JsonServer
from ragauge.engines.served.streams import StreamClient
from ragauge.errors import UserError
from ragauge.io.records import ServedResponse

PREFIX = "openai:"  # of sources
CAPABILITIES = SERVED

UNBOUNDED = 1 << 30  # tokens of a context that nobody states: the server refuses what is too long
# before and after the user's turn; code points that no text may have
USER = "\ufdd0"
ASSISTANT = "\ufdd1"
ROUGH_PIECES = re.compile(
    rf"[{USER}{ASSISTANT}]|[^\S\n]?\w{{1,8}}|[^\S\n]?[^\w\s{USER}{ASSISTANT}]{{1,4}}|\s"
)
# of an exchange
COUNTS = "prompt_tokens", "cached_tokens", "new_tokens", "thought_tokens", "attempts"
# HTTP statuses that refuse one request, as a prompt beyond the context
PROMPT_ERRORS = {400, 413, 422}
REFUSABLE = {
    "stream_options": "",
    "max_tokens": "max_completion_tokens",
    "stop": "",
    "ignore_eos": "",
}
"""Keys of a request, and the keys in their place."""
FACTS_S = 10.0  # seconds for a reply about the server itself
# What servers say of their models; times and the like, which differ from request to request, are
# left out.
FACTS = ("id", "root", "parent", "owned_by", "max_model_len", "meta")


class PieceTokenizer:
    """Text as ids of its pieces, without loss, with the part of transformers' interface that
    prompts need.
    """

    is_fast = True
    chat_template = f"{USER}...{ASSISTANT}"  # the server has the real one

    def __init__(self, split: Callable[[str], list[str]] = ROUGH_PIECES.findall) -> None:
        self._split = split  # cuts a text into its pieces
        self._ids: dict[str, int] = {}
        self._pieces: dict[int, str] = {}

    def __call__(self, text: str, *, return_offsets_mapping: bool = False, **_: Any) -> JsonObject:
        """`input_ids`, and `offset_mapping` where requested."""
        pieces = self._split(text)
        encoding: JsonObject = {"input_ids": self.ids(pieces)}
        if return_offsets_mapping:
            ends = list(accumulate(map(len, pieces)))
            encoding["offset_mapping"] = list(zip([0, *ends], ends, strict=False))
        return encoding

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """The ids of pieces: the same in every process."""
        for piece in pieces:
            if piece not in self._ids:
                number = int.from_bytes(
                    hashlib.sha256(piece.encode(errors="surrogatepass")).digest()[:7]
                )
                self._ids[piece] = number
                self._pieces[number] = piece
        return [self._ids[piece] for piece in pieces]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of pieces that this tokenizer has seen."""
        text = "".join(self._pieces[i] for i in ids)
        return text.replace(USER, "").replace(ASSISTANT, "") if skip_special_tokens else text

    def apply_chat_template(self, turns: Sequence[Mapping[str, str]], **_: Any) -> str:
        """A user's turn between the marks that `ServedEngine` sends as a chat."""
        [turn] = turns
        return f"{USER}{turn['content']}{ASSISTANT}"


@dataclass
class _Quirks:
    """Properties of a server that its replies showed; all threads share them."""

    refused: set[str] = field(default_factory=set)  # keys of a request, of `REFUSABLE`
    # its model was not seen to answer without thoughts, which a stop string would cut off
    may_think: bool = True


@dataclass(eq=False)
class ServedEngine(Traced):
    """A served model. Times are from the sending of the attempt that succeeded, as a client sees
    them.
    """

    capabilities = CAPABILITIES
    peak_cache_bytes = 0  # the server does not say

    model: str
    server: JsonServer
    tokenizer: PieceTokenizer
    max_context: int
    name: str  # of the server, in place of its address
    # further keys of every request; one with None leaves a key out
    body: JsonObject = field(default_factory=dict)
    concurrency: int | None = None  # requests at a time; None: as the run says
    first_token_at: float | None = None
    cut: bool = False
    # while tracing: counts of all requests, times of the last
    exchange: ServedResponse | None = None
    completion: Completion | None = None  # the last one
    # of measurements: sends each request once, in place of the server
    client: StreamClient | None = None
    nonce: Callable[[], str] = str  # what stands in front of a prompt
    _turn: Lock | None = None
    _quirks: _Quirks = field(default_factory=_Quirks)

    def for_thread(self, turn: Lock, concurrency: int) -> ServedEngine:
        """An engine for one of `concurrency` threads. The threads hold `turn` except while they
        wait for the server.
        """
        engine = copy(self)
        engine.concurrency = concurrency
        engine._turn = turn
        return engine

    def identity(self) -> JsonObject:
        """What tells the server from others: its `address` and, where it responds, its `stack` and
        facts of the `model`.
        """
        named = {"address": self.name or self.server.url}
        server = replace(self.server, attempts=1, timeout_s=min(self.server.timeout_s, FACTS_S))
        stack, entries = "", list[JsonObject]()
        try:
            stack, entries = server.ask("models", None, read_models)
        except EndpointError as error:
            if error.status is None:
                return named
        own = [e for e in entries if len(entries) == 1 or e.get("id") == self.model]
        facts = {key: e[key] for e in own for key in FACTS if key in e}
        return {**named, "stack": stack, "model": facts}

    @contextmanager
    def tracing(self) -> Iterator[Trace]:
        self.exchange = None
        with super().tracing() as trace:
            yield trace

    def respond(self, prompt: Sequence[int] | str, limits: Limits) -> Response:
        """See `Engine.respond`.

        Raises:
            UserError: the server refuses this prompt, or its reply has no answer.
            EngineLostError: it gives no answer to any prompt.
        """
        text = prompt if isinstance(prompt, str) else self.tokenizer.decode(prompt)
        path, body = self._request(text, limits)
        begin = time.perf_counter()
        sent = list[float]()
        if self._turn:  # other threads work while this one waits for the server
            self._turn.release()
        try:
            completion = self._send(path, body, sent)
        finally:
            if self._turn:
                self._turn.acquire()
        earlier = self.exchange if self._trace is not None else None
        self.completion = completion
        self.exchange = self._exchange(completion, sent)
        self._record_calls(text, completion, self.exchange, sent[-1])
        # The time of earlier attempts and of the pauses between them is not the model's; `attempts`
        # shows them.
        begin = sent[-1] if self.client else begin
        self.first_token_at = begin + (self.exchange.token_s or [completion.ended - sent[-1]])[0]
        new = self.exchange.new_tokens
        self.cut = completion.finish == "length" and new is not None and new < limits.max_new_tokens
        self.exchange = _added(earlier, self.exchange)
        if (problem := completion.problem()) and not (limits.ignore_stop and completion.pieces):
            raise UserError(problem)
        answer, _ = completion.split()
        ids = self.tokenizer.ids([piece.text for piece in answer])
        return Response(ids, tuple(piece.at - sent[-1] for piece in answer))

    def _request(self, text: str, limits: Limits) -> tuple[str, JsonObject]:
        """(path, body): a chat of one turn where the prompt has the marks of one, else a bare text
        to continue.
        """
        before, chat, rest = text.partition(USER)
        turn, _, after = rest.partition(ASSISTANT)
        if chat and (before or after):
            raise UserError(
                "a served model reads a chat as one turn; this prompt has text around it"
            )
        body = {
            **_prompt(self.nonce() + (turn if chat else text), bool(chat)),
            "model": self.model,
            "max_tokens": limits.max_new_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": limits.ignore_stop or None,
        }
        if limits.stop and not (limits.ignore_stop or (chat and self._quirks.may_think)):
            body["stop"] = list(limits.stop)
        stated = {key: value for key, value in (body | self.body).items() if value is not None}
        return ("chat/completions" if chat else "completions"), stated

    def _send(self, path: str, body: JsonObject, sent: list[float]) -> Completion:
        """The reply; `sent` gets the time at which each attempt began."""
        quirks = self._quirks
        stated = self._adapted(body)
        try:
            if self.client:
                completion = self.client.complete(self.server, path, stated, self.model, sent)
            else:
                completion = self.server.ask(path, stated, read_completion, self.model, sent)
        except EndpointError as error:
            if key := _refused_key(error, stated):
                quirks.refused.add(key)
                try:
                    return self._send(path, body, sent)
                except EndpointError as again:
                    if again.detail == error.detail:  # the key was not at fault
                        quirks.refused.discard(key)
                    raise
            if self.client:
                raise
            unclear = error.status is None or error.status >= 500  # may be of this prompt or of all
            if error.status in PROMPT_ERRORS or (unclear and self._answers(path, body)):
                raise
            raise EngineLostError(str(error)) from None
        if not completion.thought_tokens()[0]:
            quirks.may_think = quirks.may_think and completion.finish != "stop"
        elif (
            "stop" in stated and completion.finish == "stop" and completion.problem()
        ):  # within the thoughts
            quirks.refused.add("stop")
            return self._send(path, body, sent)
        return completion

    def _adapted(self, body: JsonObject) -> JsonObject:
        names = {key: REFUSABLE[key] if key in self._quirks.refused else key for key in body}
        return {names[key]: value for key, value in body.items() if names[key]}

    def _answers(self, path: str, body: JsonObject) -> bool:
        """Whether the server answers a short prompt at once, so that the prompt before caused the
        failure.
        """
        short = {**body, **_prompt("Hi", "messages" in body), "max_tokens": 1}
        server = replace(self.server, attempts=1)
        try:
            server.ask(path, self._adapted(short), read_completion, self.model)
        except EndpointError:
            return False
        return True

    def _exchange(self, completion: Completion, sent: Sequence[float]) -> ServedResponse:
        answer, thoughts = completion.split()
        tokens, source = completion.thought_tokens()
        remarks = [
            f"{other} in place of {key}" if other else f"without {key}"
            for key, other in REFUSABLE.items()
            if key in self._quirks.refused
        ]
        if completion.events == 1:
            remarks.append("not streamed")
        return ServedResponse(
            prompt_tokens=count(completion.usage, "prompt_tokens"),
            cached_tokens=count(completion.usage.get("prompt_tokens_details"), "cached_tokens"),
            new_tokens=completion.new_tokens,
            response_tokens=completion.new_tokens,
            token_s=[piece.at - sent[-1] for piece in completion.pieces],
            first_answer_s=answer[0].at - sent[-1] if answer else None,
            thought_tokens=tokens,
            thought_tokens_source=source,
            thoughts=text_of(thoughts),
            attempts=len(sent),
            concurrency=1 if self._turn is None else self.concurrency or 1,
            finish=completion.finish,
            stack=completion.stack,
            remarks=remarks,
        )

    def _record_calls(
        self, text: str, completion: Completion, exchange: ServedResponse, sent: float
    ) -> None:
        """The calls of the trace, in the server's tokens where it counts them, else in pieces."""
        tokens = exchange.prompt_tokens or len(self.tokenizer(text)["input_ids"])
        cached = min(exchange.cached_tokens or 0, tokens - 1)
        first = completion.pieces[0].at if completion.pieces else completion.ended
        self.note(Call("prompt", (tokens - cached,), (cached,), logits=(1,), seconds=first - sent))
        steps = max(exchange.new_tokens or 0, len(completion.pieces)) - 1
        if steps > 0:
            decode = Call("decode", (1,), (tokens,), logits=(1,), steps=steps)
            self.note(replace(decode, seconds=completion.ended - first))


def load(
    source: str,
    *,
    max_context: int | None = None,
    served: JsonObject | None = None,
    **_: Any,
) -> ServedEngine:
    """The model `NAME` of a source `openai:NAME` at the server that the environment names; nothing
    is sent yet.

    Raises:
        UserError: it names none, or the file of its key or the tokenizer cannot be read.
    """
    options = dict(served or {})
    environment = options.pop("environment", "OPENAI")
    tokenizer = options.pop("tokenizer", None)
    limits = {"timeout_s": options.pop("timeout_s", 600.0), "attempts": options.pop("attempts", 5)}
    server = server_of(source, environment, **limits)
    pieces = PieceTokenizer(_splitter(tokenizer)) if tokenizer else PieceTokenizer()
    return ServedEngine(
        source.removeprefix(PREFIX),
        server,
        pieces,
        max_context or UNBOUNDED,
        os.environ.get(f"{environment}_SERVER", ""),
        **options,
    )


def server_of(source: str, environment: str, **limits: Any) -> JsonServer:
    """The server of a source that the variables <environment>_BASE_URL and, optionally, _API_KEY or
    _API_KEY_FILE describe; `limits`: of `JsonServer`.

    Raises:
        UserError: they name none, or the file of its key cannot be read.
    """
    url, key = (
        os.environ.get(f"{environment}_{name}", "").strip() for name in ("BASE_URL", "API_KEY")
    )
    if not url:
        problem = f"is not set; {source} needs a server, such as http://localhost:8000/v1"
        raise UserError(f"{environment}_BASE_URL: {problem}")
    if path := os.environ.get(f"{environment}_API_KEY_FILE"):
        try:
            key = Path(path).read_text().strip()
        except (OSError, UnicodeError) as error:
            raise UserError(f"{environment}_API_KEY_FILE: {path}: {error}") from None
    return JsonServer(url, key or None, **limits)


def _splitter(source: str) -> Callable[[str], list[str]]:
    from ragauge.assets import resolver
    from ragauge.assets.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(resolver.resolve(source))
    if not tokenizer.is_fast:
        raise UserError(f"tokenizer {source!r}: does not say which characters a token stands for")

    def cut(text: str) -> list[str]:
        """A text in as many pieces as it has tokens; characters between two tokens belong to the
        one before.
        """
        read = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        starts = [start for start, _ in read["offset_mapping"][1:]]
        return [
            text[start:stop] for start, stop in pairwise([0, *accumulate(starts, max), len(text)])
        ]

    def split(text: str) -> list[str]:
        pieces = list[str]()
        for part in re.split(f"([{USER}{ASSISTANT}])", text):
            if part in (USER, ASSISTANT):
                pieces.append(part)
            elif part:
                pieces += cut(part)
        return pieces

    return split


def _prompt(text: str, is_chat: bool) -> JsonObject:
    """The keys of a request that hold its prompt."""
    return {"messages": [{"role": "user", "content": text}]} if is_chat else {"prompt": text}


def _added(earlier: ServedResponse | None, last: ServedResponse) -> ServedResponse:
    """The exchange of a question with the counts of its earlier requests; times and end are the
    last one's.
    """
    if earlier is None:
        return last
    source = last.thought_tokens_source or earlier.thought_tokens_source
    changes: JsonObject = {"thought_tokens_source": source}
    for name in COUNTS:
        pair = (getattr(earlier, name), getattr(last, name))
        changes[name] = None if None in pair else sum(pair)
    return last.model_copy(update=changes)


def _refused_key(error: EndpointError, body: JsonObject) -> str | None:
    """The key of a request that a server refuses by its name, or by the name of the key that it
    wants in its place.
    """
    if error.status in PROMPT_ERRORS:
        for key, other in REFUSABLE.items():
            if key in body and re.search(rf"\b{other or key}\b", error.detail):
                return key
    return None
