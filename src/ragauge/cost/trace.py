"""A trace: every model call of one answer, as data. Costs are folds over it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Self

from ragauge.io.jsonl import JsonObject

Trace = list["Call"]


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a model on one or more sequences (rows). A decode loop of n single-token steps is
    one Call with `steps=n`: step s has `past + s` tokens behind it.
    """

    stage: str  # "preamble", "documents", "query", "task", "prompt", "decode", "rank"
    lengths: tuple[int, ...]  # new tokens of each row (per step)
    past: tuple[int, ...]  # cached tokens that each row attends to, at the first step
    offline: bool = False  # could be computed before the query was known
    parallel: bool = False  # the rows are independent paths, which could run at the same time
    # positions of each row whose vocabulary logits were computed; () is none
    logits: tuple[int, ...] = ()
    steps: int = 1
    # multiply-accumulates of another model (an encoder); None: they follow from the shape
    macs: int | None = None
    seconds: float | None = None  # wall clock; None if nothing ran (shape-only decoders)
    # of a result that a store had, or some rows of it: until all was there; `seconds` is what
    # computing all of it takes
    loading_s: float | None = None
    # tokens of each row that were computed where a store had others; () is none of them
    computed: tuple[int, ...] = ()
    # from the first to before the last of these alone; None: all
    layers: tuple[int, int] | None = None
    # tokens of each row that overwrite their own slots, not counted in `past`; () is none
    again: tuple[int, ...] = ()

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
        defaults = {f.name: f.default for f in fields(self)}
        return {k: v for k, v in asdict(self).items() if k not in defaults or v != defaults[k]}

    @classmethod
    def from_json(cls, data: JsonObject) -> Self:
        """The inverse of `to_json`; raises TypeError on unknown keys and on values of another type."""
        listed = {"lengths", "past", "logits", "layers", "again", "computed"}
        values: JsonObject = {
            k: tuple(v) if k in listed and v is not None else v for k, v in data.items()
        }
        call = cls(**values)
        counts = (
            *call.lengths,
            *call.past,
            *call.logits,
            *(call.layers or ()),
            *call.again,
            *call.computed,
            call.steps,
        )
        times = (n for n in (call.macs, call.seconds, call.loading_s) if n is not None)
        if not isinstance(call.stage, str) or any(type(n) is not int for n in counts):
            raise TypeError(f"a call must count the tokens of a stage; got {data}")
        if len(call.lengths) != len(call.past) or any(type(n) not in (int, float) for n in times):
            raise TypeError(f"a call must have rows and seconds; got {data}")
        return call


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
