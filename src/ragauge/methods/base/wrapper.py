"""Methods around methods: an option names another method, which this one runs on what it changes.

A wrapper overrides `prepare` or `answer` and passes the wrapped method a modified prompt, state or
engine; what it does not override is forwarded. `EngineAround` forwards every call to another
engine; derive from it to change some of them (to compress the cache before generation, for
example).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from ragauge.engines.protocol import Capabilities, Limits, Response, SpanEngine, read_and_generate
from ragauge.errors import UserError
from ragauge.methods.base import making
from ragauge.methods.base.method import Answer, Method, State
from ragauge.methods.prompts import Prompt


@dataclass(frozen=True)
class Wrapper(Method):
    """A method around another one; it requires and reads whatever either of them does."""

    inner: str = "naive"  # the wrapped method
    # of the wrapped method; `make` fills in its defaults
    inner_options: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def wrapped(self) -> Method:
        """The wrapped method."""
        return making.make(self.inner, **self.inner_options)

    def checked(self, where: str = "") -> Self:
        wrapped = making.make(self.inner, f"{where}.inner", **self.inner_options)
        if isinstance(wrapped, type(self)):
            raise UserError(f"{where}.inner: {self.inner!r} is this method itself")
        return replace(self, inner_options=asdict(wrapped))

    def required(self) -> Capabilities:
        return self.requires | self.wrapped.required()

    def usable_state(self) -> State:
        return self.wrapped.usable_state() if self.wrapped.prepares else "nothing"

    def assets(self) -> tuple[str, ...]:
        return self.wrapped.assets()

    def unsupported(self, engine: SpanEngine) -> str | None:
        return self.wrapped.unsupported(engine)

    def sequential(self) -> bool:
        return self.wrapped.sequential()

    def reads_corpus(self) -> bool:
        return self.wrapped.reads_corpus()

    def for_run(self) -> Self:
        method = replace(self)
        vars(method)["wrapped"] = self.wrapped.for_run()
        return method

    def prepare(self, engine: SpanEngine, prompt: Prompt) -> Any:
        return self.wrapped.prepare(engine, prompt)

    def answer(self, engine: SpanEngine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        return self.wrapped.answer(engine, state, prompt, limits)


@dataclass(eq=False)
class EngineAround:
    """An engine that forwards every call to another one; its text level uses its own span level."""

    engine: SpanEngine

    def __getattr__(self, name: str) -> Any:
        if name == "engine":  # of a copy that is not filled yet
            raise AttributeError(name)
        return getattr(self.engine, name)

    def respond(self, prompt: Sequence[int] | str, limits: Limits) -> Response:
        """See `Engine.respond`."""
        return read_and_generate(self, prompt, limits)
