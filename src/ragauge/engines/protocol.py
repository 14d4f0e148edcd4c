"""The interface of engines, in levels: of text and of spans; importing it imports no torch.

A method states the capabilities that it requires (`Method.required`), an engine those that it has
(`capabilities`); `mismatch` compares them before anything runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ragauge.engines.spans import Row, Span
from ragauge.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.cost.flop import Layers
    from ragauge.cost.shape import Shape
    from ragauge.cost.trace import Call, Trace
    from ragauge.engines.cache import KVCache

Observed = Literal["all", "last"]


class Capability(Enum):
    """A feature that not every engine has; the value completes "requires an engine with ..."."""

    TEXT = "a tokenizer"  # text in and out, not token ids alone
    WEIGHTS = "weights"  # tokens and scores are a model's; an engine of shapes alone makes them up
    SPANS = "key-value caches"  # the span level
    FULL_ATTENTION = "layers that attend to the whole context"  # a model without sliding windows
    SERVER = "a server"  # of several requests at a time: see `backends/openai.py`


Capabilities = frozenset[Capability]

# what every method needs to answer
ANSWERING = frozenset({Capability.TEXT, Capability.WEIGHTS})
SERVED = ANSWERING | {Capability.SERVER}
DECODING = ANSWERING | {Capability.SPANS, Capability.FULL_ATTENTION}


def mismatch(required: Capabilities, capabilities: Capabilities) -> str | None:
    """One line on the required capabilities that an engine lacks; None if it has them all."""
    lacking = required - capabilities
    if Capability.SPANS in lacking:  # which says enough
        lacking -= {Capability.FULL_ATTENTION}
    return f"requires an engine with {describe(lacking)}" if lacking else None


def describe(capabilities: Capabilities) -> str:
    """Capabilities that methods may require, in words."""
    return (
        " and ".join(c.value for c in Capability if c in capabilities - {Capability.SERVER})
        or "none of these"
    )


class EngineLostError(UserError):
    """The engine cannot answer any prompt any more, so that every further question would fail."""


@dataclass(frozen=True)
class Limits:
    """When a response ends."""

    max_new_tokens: int = 100
    stop: tuple[str, ...] = ("\n",)
    skip_blanks: bool = False  # white space in front of the text is not searched for `stop`
    ignore_stop: bool = False  # generate exactly max_new_tokens, as latency protocols do


@dataclass(frozen=True)
class Response:
    """The tokens that an engine generated after a prompt."""

    ids: list[int]
    # seconds from the request until each token was known, where the engine times them
    token_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class CallOptions:
    """The keyword arguments of `SpanEngine.extend`."""

    stage: str  # the name of the call in the trace
    offline: bool = False  # it could be done before the query is known
    parallel: bool = False  # the rows are independent paths
    last_logits: bool = False  # return the logits of each row's last token
    logp: bool = False  # return the log-probability of each row's tokens after its first
    # return the logits of these tokens of each row, counted from 0
    logits_at: Sequence[Sequence[int]] = ()
    # return how much all tokens of a row, or its last one, attend to each key
    attention: Observed | None = None
    # Attend over the cache in place, rows side by side under a mask, instead of gathering each
    # row's keys: for rows that share a long past. Same result; attention weights are not available.
    tree: bool = False
    # Read through the layers from the first to before the last of these alone; None: all of them.
    # The slots' keys and values of other layers stay as they are. `Row.states` goes on from such a
    # call.
    layers: Layers = None

    @property
    def is_storable(self) -> bool:
        """Whether a store has all results: a cache's new content and log-probabilities."""
        others = self.last_logits or self.logits_at or self.attention or self.layers
        return self.offline and not others


@dataclass(frozen=True)
class Extension:
    """The results of one call; fields that its options do not name are empty."""

    spans: tuple[Span, ...]  # where each row's tokens are in the cache
    last_logits: Tensor | None = None  # (row, vocab)
    logp: tuple[Tensor, ...] = ()  # a row: log P(token j | before) for j >= 1: (token - 1,), fp32
    # a row: mean weight of each key over layers, heads and observed queries: (key,)
    attention: tuple[Tensor, ...] = ()
    logits: tuple[Tensor, ...] = ()  # a row: of the tokens in `logits_at`: (token, vocab)
    # a row, where `layers` is given: states after the last of them (token, d_model)
    states: tuple[Tensor, ...] = ()


class Engine(Protocol):
    """The text level, of every engine: prompts in, tokens and times out. Calls are recorded while
    `tracing`.
    """

    tokenizer: Any  # of transformers' interface; None: the engine knows token ids alone
    # time.perf_counter() when the last response's first token was known
    first_token_at: float | None
    peak_cache_bytes: int  # of keys and values, since tracing began; 0 if the engine does not say
    cut: bool  # the last response ended because the context did, not at its own end or its limit

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def max_context(self) -> int:
        """Tokens that prompt and response may have together."""

    def respond(self, prompt: Sequence[int] | str, limits: Limits) -> Response:
        """Read a prompt and generate after it, greedily.

        Raises:
            UserError: it is longer than the context.
        """

    def tracing(self) -> AbstractContextManager[Trace]:
        """Record every call made inside the block into the list it yields."""

    def note(self, call: Call) -> None:
        """Add a call that another model made (an encoder's) to the trace."""


class SpanEngine(Engine, Protocol):
    """The level of engines with `Capability.SPANS`: rows of tokens that attend to chosen spans of
    key-value caches.
    """

    shape: Shape
    # time.perf_counter() when each of the last response's tokens was known; may be empty
    token_at: list[float]

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values in all caches alive."""

    template: str | None  # of prompts to an engine that only finds evidence; None: a prompt's own

    @property
    def finder(self) -> SpanEngine | None:
        """The engine that finds the evidence which this one answers from; None: it does both."""

    def new_cache(self, capacity: int) -> KVCache:
        """An empty cache with room for `capacity` tokens."""

    def join(self, cache: KVCache, spans: Sequence[Span], extra: int) -> KVCache:
        """A cache of the spans' tokens side by side, with room for `extra` more."""

    def extend(self, cache: KVCache, rows: Sequence[Row], **options: Any) -> Extension:
        """Read the rows' tokens, each row attending to its past spans and to itself, into the
        cache; the keyword arguments are those of `CallOptions`.

        Raises:
            ValueError: arguments that exclude each other: `tree` or rows in place with `attention`,
                logits of layers that end before the last, slots that are neither in the row's past
                nor the next free ones.
            UserError: a row that is empty or ends beyond the model's context.
        """

    def generate(
        self, cache: KVCache, logits: Tensor, position: float, limits: Limits
    ) -> list[int]:
        """Greedy continuation of everything in the cache from the logits (vocab,) of the first new
        token. It stands at `position`, later ones follow by one each. An end-of-text id is left out
        of the ids, a token that completes a stop string is included.
        """

    def generate_by(
        self, choose: Callable[[list[int]], int], position: float, limits: Limits
    ) -> list[int]:
        """A response whose tokens `choose` returns one by one, given those so far; it ends where
        `generate` would. `position` is the largest that the first token has anywhere; the context
        ends the response, too.
        """


class Traced:
    """Calls are recorded while `tracing`."""

    _trace: Trace | None = None

    def synchronize(self) -> None:
        """Wait until the device has finished its work; does nothing if calls return with their
        results.
        """

    @contextmanager
    def tracing(self) -> Iterator[Trace]:
        outer = self._trace
        self._trace = []
        try:
            yield self._trace
        finally:
            self._trace = outer

    def note(self, call: Call) -> None:
        if self._trace is not None:
            self._trace.append(call)


def read_and_generate(engine: SpanEngine, prompt: Sequence[int] | str, limits: Limits) -> Response:
    """The text level over the span level: the whole prompt as one row in a cache of its own."""
    started = time.perf_counter()
    ids = engine.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else list(prompt)
    cache = engine.new_cache(len(ids) + limits.max_new_tokens)
    row = Row(ids, [float(i) for i in range(len(ids))])
    logits = engine.extend(cache, [row], stage="prompt", last_logits=True).last_logits
    assert logits is not None
    response = engine.generate(cache, logits[0], float(len(ids)), limits)
    return Response(response, tuple(at - started for at in engine.token_at[: len(response)]))
