"""A trace: every model call of one answer, as data. Costs are folds over it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Self, cast

from pydantic import ConfigDict, Strict, TypeAdapter, ValidationError, with_config

from ragauge.errors import UserError, first_problem
from ragauge.io.jsonl import JsonObject

Trace = list["Call"]
Count = Annotated[int, Strict()]
Seconds = Annotated[float, Strict()]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class Call:
    """One call of a model on one or more sequences (rows). A decode loop of n single-token steps is
    one Call with `steps=n`: step s has `past + s` tokens behind it.
    """

    stage: str  # "preamble", "documents", "query", "task", "prompt", "decode", "rank"
    lengths: tuple[Count, ...]  # new tokens of each row (per step)
    past: tuple[Count, ...]  # cached tokens that each row attends to, at the first step
    offline: bool = False  # could be computed before the query was known
    parallel: bool = False  # the rows are independent paths, which could run at the same time
    # positions of each row whose vocabulary logits were computed; () is none
    logits: tuple[Count, ...] = ()
    steps: Count = 1
    # multiply-accumulates of another model (an encoder); None: they follow from the shape
    macs: Count | None = None
    seconds: Seconds | None = None  # wall clock; None if nothing ran (shape-only decoders)
    # of a result that a store had, or some rows of it: until all was there; `seconds` is what
    # computing all of it takes
    loading_s: Seconds | None = None
    # tokens of each row that were computed where a store had others; () is none of them
    computed: tuple[Count, ...] = ()
    # from the first to before the last of these alone; None: all
    layers: tuple[Count, Count] | None = None
    # tokens of each row that overwrite their own slots, not counted in `past`; () is none
    again: tuple[Count, ...] = ()

    @property
    def cached(self) -> int:
        """Tokens that the call added to a cache; an encoder's call and one that goes on from a
        layer add none.
        """
        if self.macs is not None or (self.layers and self.layers[0] > 0):
            return 0
        return sum(self.lengths) * self.steps - sum(self.again)

    @property
    def is_index(self) -> bool:
        """Whether it embedded documents, as an index does once for all questions."""
        return self.offline and self.stage == "rank"

    @property
    def computed_tokens(self) -> int:
        """New tokens that no store had."""
        return sum(self.lengths if self.loading_s is None else self.computed)

    def to_json(self) -> JsonObject:
        """A dictionary without the fields that stand at their defaults."""
        return cast(JsonObject, _CALL.dump_python(self, exclude_defaults=True))

    @classmethod
    def from_json(cls, data: JsonObject) -> Self:
        """The inverse of `to_json`.

        Raises:
            TypeError: unknown keys, or values of another type.
        """
        try:
            call = _CALL.validate_python(data)
        except ValidationError as error:
            raise TypeError(f"a call of a model: {first_problem(error)}") from None
        if len(call.lengths) != len(call.past):
            raise TypeError(f"a call must have as many lengths as rows; got {data}")
        return cast(Self, call)


_CALL = TypeAdapter(Call)


def calls(items: Iterable[JsonObject], place: str) -> Trace:
    """The trace of `Call.to_json`'s dictionaries.

    Raises:
        UserError: a call that is damaged, of the record at `place`.
    """
    try:
        return [Call.from_json(item) for item in items]
    except TypeError as error:
        raise UserError(f"{place}: {error}") from error


def online(trace: Iterable[Call]) -> Trace:
    """The calls that a user waits for."""
    return [c for c in trace if not c.offline]


def stage_seconds(trace: Iterable[Call]) -> dict[str, float]:
    """Wall-clock seconds of each stage that a user waits for, in the order of the stages' first
    calls.
    """
    waited = online(trace)
    return {
        stage: seconds(c for c in waited if c.stage == stage)
        for stage in dict.fromkeys(c.stage for c in waited)
    }


def seconds(trace: Iterable[Call]) -> float:
    """Wall-clock seconds of all calls; those without a clock count nothing."""
    return sum(c.seconds or 0.0 for c in trace)


def indexing_s(trace: Iterable[Call]) -> float:
    """Seconds of embedding documents, which no question's clock counts."""
    return seconds(call for call in trace if call.is_index)


def elapsed(trace: Iterable[Call]) -> float:
    """Wall-clock seconds that passed in this run: like `seconds`, but a result read from disk
    counts its reading.
    """
    return sum((c.seconds if c.loading_s is None else c.loading_s) or 0.0 for c in trace)
