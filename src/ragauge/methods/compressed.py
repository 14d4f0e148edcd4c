"""Keys and values compressed by a ratio, around another method."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from ragauge.engines.protocol import Capabilities, Capability, Limits, SpanEngine
from ragauge.errors import UserError
from ragauge.methods import compressors
from ragauge.methods.base.compression import AfterPrompt, BeforeQuestion, Compressible, Press
from ragauge.methods.base.method import FULL_ATTENTION, Answer, State
from ragauge.methods.base.wrapper import Wrapper
from ragauge.methods.prompts import Prompt

PLAIN = ("naive", "full_article")  # one plain prompt
# the last two read documents before the question is known
AROUND = (*PLAIN, "naive_reuse", "superposition")


@dataclass(frozen=True)
class Compressed(Wrapper):
    """Every key-value head keeps the tokens that a compressor scores highest.

    SnapKV and FINCH score by the question's attention: the whole prompt is read, then compressed,
    then the response is generated; nothing compressed could be stored. The window of SnapKV lies in
    the text read last: the question around `naive_reuse`, the task around `superposition`. KVzip,
    ExpectedAttention, Knorm and KeyDiff do not know the question: around `naive_reuse` and
    `superposition` each stored document is compressed offline, around `naive` and `full_article`
    everything before the question, online. Protocol and formulas are kvpress 0.5.5's (NVIDIA), a
    file each in `ragauge.methods.compressors`. Attention Matching is from elsewhere, does not know
    the question either, and gives the remaining tokens other values. Compression saves memory,
    loading and decoding, not the first token. A ratio of 0 is the wrapped method. Requires caches
    in which each head has other tokens.
    """

    requires = FULL_ATTENTION

    compressor: str = "snapkv"  # one of `ragauge list compressors`
    ratio: Annotated[float, Field(ge=0, lt=1)] = 0.5  # share of the tokens removed
    # which tokens compete; own: as the compressor says
    budget: Literal["own", "head", "layer", "all"] = "own"

    def checked(self, where: str = "") -> Self:
        compressors.find(self.compressor, f"{where}.compressor")
        if self.inner not in AROUND:
            raise UserError(
                f"{where}.inner: compresses around {', '.join(AROUND)}; got {self.inner!r}"
            )
        method = super().checked(where)
        if method.inner_options.get("path_temperature") is not None:
            raise UserError(
                f"{where}.inner_options.path_temperature: biased keys cannot be compressed"
            )
        if not self.question_aware and method.inner_options.get("path_caching") is False:
            raise UserError(
                f"{where}.inner_options.path_caching: {self.compressor} compresses stored documents"
            )
        return method

    @property
    def question_aware(self) -> bool:
        """Whether the choice of tokens depends on the question."""
        return compressors.find(self.compressor).question_aware

    def usable_state(self) -> State:
        return "nothing" if self.question_aware and self.ratio else super().usable_state()

    def required(self) -> Capabilities:
        reads_text = compressors.find(self.compressor).reads_text
        return super().required() | ({Capability.TEXT, Capability.WEIGHTS} if reads_text else set())

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> tuple[Any, Any]:
        """Return the engine that the wrapped method calls, and its state."""
        around: Any = AfterPrompt(engine) if self.question_aware and self.ratio else engine
        state = self.wrapped.prepare(around, prompt)
        if not self.question_aware and self.ratio and isinstance(state, Compressible):
            state = state.compressed(self._press(engine, prompt).document)
        return around, state

    def answer(
        self, engine: SpanEngine, state: tuple[Any, Any], prompt: Prompt, limits: Limits
    ) -> Answer:
        around, inner_state = state
        if isinstance(around, AfterPrompt):
            around.press = self._press(engine, prompt)
        elif self.ratio and self.inner in PLAIN:
            around = BeforeQuestion(engine, self._press(engine, prompt), len(prompt.ending))
        return self.wrapped.answer(around, inner_state, prompt, limits)

    def _press(self, engine: SpanEngine, prompt: Prompt) -> Press:
        make = partial(compressors.find(self.compressor), len(prompt.ending))
        return Press(engine, make, self.ratio, None if self.budget == "own" else self.budget)
