"""The base class `Method`, the `Answer`, and helpers to read and generate.

The other modules of this folder are building blocks that some methods share: `ranked`, `reading`,
`stored`, `tree`, `windows`, `wrapper`, `compression`, `grounding`. docs/plugins.md
describes all of them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast, get_args

from ragauge.cost.trace import Call
from ragauge.engines.backends.openai import PREFIX
from ragauge.engines.protocol import (
    Capabilities,
    Capability,
    Engine,
    Limits,
    Row,
    Span,
    SpanEngine,
    mismatch,
)
from ragauge.methods.prompts import Prompt, Source, unit_steps

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.cache import KVCache
    from ragauge.methods.evidence.account import TrainedDefaults

    Compress = Callable[[KVCache, Sequence[Span], Span, Sequence[int]], KVCache]
    """(cache, spans before a document, its span, its tokens) -> a cache of the document's remaining
    tokens alone.
    """

SPANS: Capabilities = frozenset({Capability.SPANS})
"""The requirement of a method that fills key-value caches itself."""
FULL_ATTENTION: Capabilities = SPANS | {Capability.FULL_ATTENTION}
"""The same for methods that move keys, read documents apart or select by attention, which sliding
windows rule out.
"""

State = Literal["nothing", "documents", "set"]
"""What was read before the question: nothing, each document by itself, or this list of documents in
this order.
"""
STATES: tuple[State, ...] = get_args(State)  # each includes what those before it have read


@dataclass(frozen=True)
class Evidence:
    """A stretch of a document: `text` is `document[start:stop]`, in characters.

    Generated text that no document contains has no place: all three are None.
    """

    document: int | None  # index among the prompt's documents
    start: int | None
    stop: int | None
    text: str

    @classmethod
    def of(cls, source: Source, text: str, start: int = 0) -> Self:
        """Return the evidence that stands in a source, `start` characters behind its beginning."""
        start += source.offset
        return cls(source.document, start, start + len(text), text)


@dataclass(frozen=True)
class Answer:
    """The generated tokens and the documents that they were generated from."""

    ids: list[int]  # generated tokens
    kept: tuple[int, ...] = ()  # documents that the answer was generated from, in reading order
    saliency: tuple[float | None, ...] = ()  # one score a document, where the method scores any
    # stretches it was generated from; None: the method looks for none
    evidence: tuple[Evidence, ...] | None = None
    truncated: int | None = None  # document tokens cut to fit the context; None: as the prompt says
    request: str = ""  # for evidence, without the document


@dataclass(frozen=True)
class Method(ABC):
    """An inference method. Its fields are its options; a variant is a set of them.

    `prepare` reads the prompt's preamble and documents only. The state that it returns can be used
    for any number of questions about them: `answer` does not change it, apart from tokens cached
    after it.
    """

    # the least that must have been read before the question for the method to gain from it; "nothing":
    # it never gains
    state: ClassVar[State] = "nothing"
    prepares: ClassVar[bool] = True  # whether its own `prepare` reads what it can use in that state
    finds: ClassVar[bool] = False  # takes the engine's `finder`, for evidence or to choose tokens
    # of the engine, whatever the options are; empty: the text level
    requires: ClassVar[Capabilities] = frozenset()
    # the option that does without key-value caches, for messages
    without_caches: ClassVar[str] = ""
    stated_options: ClassVar[Mapping[str, Any]] = {}  # the options that `making.make` was given

    @property
    def name(self) -> str:
        """The registered name, which is that of the method's file."""
        return type(self).__module__.rpartition(".")[2]

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Any:  # noqa: B027 (most methods prepare nothing)
        """Compute the state that does not depend on the question; None where there is none."""

    @abstractmethod
    def answer(self, engine: SpanEngine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        """Answer the prompt's question.

        Raises:
            UserError: the prompt is longer than the model's context.
        """

    def checked(self, where: str = "") -> Self:
        """Check options against each other and fill in those that depend on others; called by
        `make` once.

        Raises:
            UserError: options that exclude each other; `where` is the place in a configuration.
        """
        return self

    def required(self) -> Capabilities:
        """Return the engine capabilities that these options require."""
        return self.requires

    def usable_state(self) -> State:
        """Return the state from which these options gain."""
        return self.state

    def read_before(self) -> Method:
        """Return the method whose `prepare` reads all that it can use in its usable state."""
        return self

    def adapted_to(self, capabilities: Capabilities) -> Self:
        """Return a copy that runs on an engine with these capabilities, where an option only
        chooses what is cached.
        """
        return self

    def adapted_to_training(self, trained: TrainedDefaults, where: str) -> Self:
        """Return a copy that asks a decoder as it was trained to be asked, where the method has a
        request of its own.

        Raises:
            UserError: an option states otherwise; `where` is the method's place.
        """
        return self

    def assets(self) -> tuple[str, ...]:
        """Return the names or sources of text encoders and the like that these options read besides
        the model.
        """
        return ()

    def local_assets(self) -> list[str]:
        """Return the assets that are not behind a server."""
        return [asset for asset in self.assets() if not asset.startswith(PREFIX)]

    def unsupported(self, engine: SpanEngine) -> str | None:
        """Explain why this model's shape or tokenizer rules the method out; None where it does not.
        Called for engines that have the required capabilities; `refusal` checks both.
        """
        return None

    def sequential(self) -> bool:
        """Return whether one question's cache serves the next, so that none are answered side by
        side.
        """
        return False

    def for_run(self) -> Method:
        """Return the method for the questions of one run on one engine, whose answers may store
        documents for later ones.
        """
        return self

    def reads_corpus(self) -> bool:
        """Return whether answers depend on `Prompt.corpus_spacing`, so on documents of other
        questions.
        """
        return False

    def refusal(self, engine: Engine) -> str | None:
        """Explain in one line why the method cannot run on this engine; None where it can."""
        if lacking := mismatch(self.required(), engine.capabilities):
            window = (
                Capability.SPANS in engine.capabilities
                and cast(SpanEngine, engine).shape.shortest_window
            )
            hint = f"; this model has a sliding window of {window} tokens (with max_context {window} it has none)"
            return lacking + (hint if window else "")
        return self.unsupported(cast(SpanEngine, engine))


def read_plain(
    engine: Engine, prompt: Prompt, documents: Iterable[Sequence[int] | str], limits: Limits
) -> list[int]:
    """Read a plain prompt of these documents, token ids or texts, as one text, nothing cached, and
    generate.
    """
    return engine.respond(prompt.as_one(engine.tokenizer, documents), limits).ids


def plain_row(ids: Sequence[int], after: int = 0) -> Row:
    """Make a row that attends to the first `after` slots of a cache and stands at the integer
    positions behind them.
    """
    return unit_row(ids, after, (Span(0, after),) if after else ())


def unit_row(ids: Sequence[int], start: float, past: Sequence[Span] = ()) -> Row:
    """Make a row at positions one apart from `start` on, which attends to these slots of a cache."""
    return Row(ids, unit_steps(start, len(ids)), tuple(past))


def generate(
    engine: SpanEngine, cache: KVCache, last_logits: Tensor | None, position: float, limits: Limits
) -> list[int]:
    """Generate from `position` on after everything in the cache, given the logits (1, vocab) of its
    last token.
    """
    assert last_logits is not None
    return engine.generate(cache, last_logits[0], position, limits)


def read_and_generate(
    engine: SpanEngine, cache: KVCache, row: Row, limits: Limits, stage: str = "prompt"
) -> list[int]:
    """Read the last row of a prompt, and generate after it and everything in the cache."""
    read = engine.extend(cache, [row], stage=stage, last_logits=True)
    return generate(engine, cache, read.last_logits, row.positions[-1] + 1, limits)


@contextmanager
def traced(engine: Engine, stage: str, *, macs: int = 0, offline: bool = False) -> Iterator[None]:
    """Add work outside the decoder, such as ranking or moving keys, to the engine's trace with its
    seconds.
    """
    started = time.perf_counter()
    yield
    engine.note(
        Call(stage, (), (), offline=offline, macs=macs, seconds=time.perf_counter() - started)
    )
