"""What a method is: two verbs on an engine, `prepare` before the question is known and `answer` after."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from ragauge.engines.protocol import Capabilities, Engine, Limits, Row, Span, SpanEngine, mismatch
from ragauge.prompts import Prompt, unit_steps

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.cache import KVCache

    Compress = Callable[[KVCache, Sequence[Span], Span, Sequence[int]], KVCache]
    """(cache, spans before a document, its span, its tokens) -> a cache of what is kept of the document alone."""


@dataclass(frozen=True)
class Evidence:
    """A stretch of a document: `text` is `document[start:stop]`, in characters.

    Generated text that stands in no document has no place: all three are None.
    """

    document: int | None  # index among the prompt's documents
    start: int | None
    stop: int | None
    text: str


@dataclass(frozen=True)
class Answer:
    """What a method generated, and from which documents."""

    ids: list[int]  # generated tokens
    kept: tuple[int, ...] = ()  # documents that the answer was generated from, in reading order
    saliency: tuple[float | None, ...] = ()  # one score a document, where the method scores any
    evidence: tuple[Evidence, ...] | None = None  # what it was generated from; None: the method looks for none
    truncated: int | None = None  # document tokens not read for want of context; None: as the prompt says
    request: str = ""  # for evidence, without the document


@dataclass(frozen=True)
class Method(ABC):
    """An inference method. Its fields are its options; a variant is a set of them.

    `prepare` reads the prompt's preamble and documents only. The state that it returns can be used for any number of
    questions about them: `answer` does not change it, apart from tokens cached after it.
    """

    finds: ClassVar[bool] = False  # looks for evidence by a decoder, which may be another one than answers
    requires: ClassVar[Capabilities] = frozenset()  # of the engine, whatever the options are; empty: the text level

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Any:  # noqa: B027 (most methods prepare nothing)
        """The state that can be computed before the question is known; None where there is none."""

    @abstractmethod
    def answer(self, engine: SpanEngine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        """Answer the prompt's question.

        Raises:
            UserError: the prompt is longer than the model's context.
        """

    def checked(self, where: str = "") -> Self:
        """This method, its options completed by what only it knows of them; called by `make` once.

        Raises:
            UserError: options that exclude each other; `where` is the place in a configuration.
        """
        return self

    def required(self) -> Capabilities:
        """What these options require of an engine."""
        return self.requires

    def fitted(self, able: Capabilities) -> Self:
        """This method as an engine that can do so much runs it, where an option only says what is cached."""
        return self

    def assets(self) -> tuple[str, ...]:
        """Names or sources of the text encoders and the like that these options read besides the model."""
        return ()

    def unsupported(self, engine: SpanEngine) -> str | None:
        """Why the method cannot run on this model, for a reason of its shape or tokenizer; None where it can.

        Asked of engines that have what is required; `refusal` checks both.
        """
        return None

    def sequential(self) -> bool:
        """Whether what one question reads is found by the next, so that none are answered side by side."""
        return False

    def storable(self) -> bool:
        """Whether what is prepared of documents, if anything is, serves any question about them, as from a store."""
        return True

    def refusal(self, engine: Engine) -> str | None:
        """Why the method cannot run on this engine, in one line; None where it can."""
        return mismatch(self.required(), engine.capabilities) or self.unsupported(cast(SpanEngine, engine))


def read_plain(engine: Engine, segments: Sequence[Sequence[int]], limits: Limits) -> list[int]:
    """Read the segments one after another as a plain prompt, nothing cached, and generate."""
    return engine.respond([token for segment in segments for token in segment], limits).ids


def plain_row(ids: Sequence[int]) -> Row:
    """A row at integer positions from 0 that attends to itself alone."""
    return Row(ids, unit_steps(0, len(ids)))


def generate(
    engine: SpanEngine, cache: KVCache, last_logits: Tensor | None, position: float, limits: Limits
) -> list[int]:
    """Generate from `position` on after everything in the cache, given the logits (1, vocab) of its last token."""
    assert last_logits is not None
    return engine.generate(cache, last_logits[0], position, limits)
