"""Shared parts of these items: which methods they compare, and what differences mean where
they do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragauge.config.reads import ANY, AnswersRead, defaults, every
from ragauge.cost.trace import seconds
from ragauge.results import timing
from ragauge.results.cells import CellSource, Measure, join
from ragauge.results.measures import FLOOR, scored
from ragauge.results.provenance import machine, provenance_of
from ragauge.results.runs import Group, Variant
from ragauge.results.runs import defaults as default_options
from ragauge.results.states import seconds as seconds_in
from ragauge.results.times import STATE_WORDS, LatencyTimes, State

READ_AGAIN = ("epic", "cache_blend", "prophet_kv", "cache_clip", "prefix_scale_recompute")
STORED = ("parallel_windows", "ape", "naive_reuse", "kv_link", *READ_AGAIN, "parallel_experts")
TEXTS = ("long_llmlingua", "sentence_pruning", "prefix_tree", "context_pilot")
METHODS = ("naive", "prompt_cache", *STORED, "compressed", *TEXTS)
RANKERS = ("top", "bm25", "tfidf", "dense", "shortest")
PLACED = ("positions", "spacing")  # superposition's options of where documents stand
AT_FLOOR = "nothing can be told here"  # of the notes of tables
OWN = "of the answering run"

# method -> the option that trades quality for time
KNOBS = {
    **dict.fromkeys(("superposition", *RANKERS), "top_k"),
    "ape": "temperature",
    "epic": "tokens",
    "cache_blend": "recompute",
    "prophet_kv": "recompute",
    "cache_clip": "recompute",
    "prefix_scale_recompute": "recompute",
    "compressed": "ratio",
    "long_llmlingua": "rate",
    "sentence_pruning": "threshold",
}


def answers(*more: str) -> tuple[AnswersRead, ...]:
    """The variants of these methods, of further ones, and of superposition at its defaults but for
    top_k and the positions, on which it depends what can be stored.
    """
    return every(*METHODS, *more), defaults(
        "superposition", top_k=ANY, **dict.fromkeys(PLACED, ANY)
    )


def belongs(variant: Variant, *more: str) -> bool:
    return variant.method in (*METHODS, *more) or variant.is_superposition(*PLACED)


def floor(base: Variant | None) -> str:
    """Why differences to the plain prompt tell nothing, where its reader is at the floor; else
    nothing.
    """
    scores = list(scored(base).values()) if base else []
    low = bool(scores) and sum(scores) / len(scores) < FLOOR
    return f"{AT_FLOOR}: the plain prompt scores below {FLOOR:g}" if low else ""


@dataclass(frozen=True)
class VariantSeconds:
    """Seconds of variants side by side: the latency protocol's where it timed all that have a clock
    of the answering run, else that run's.
    """

    timed: LatencyTimes | None
    stack: str = ""  # whose seconds a served model's are

    @classmethod
    def find(cls, group: Group, variants: Sequence[Variant]) -> VariantSeconds:
        timed = group.timed
        clocked = {v.name for v in variants if v.values("first_token_s")}
        if timed and not timed.refused and clocked <= {*timed.variants}:
            return cls(timed)
        return cls(None, next((f"; {v.engine}" for v in variants if v.stack), ""))

    @property
    def states(self) -> list[State]:
        """The states in which all were timed; of the answering run the default alone."""
        return list(self.timed.states) if self.timed else ["documents"]

    def note(self, state: State) -> str:
        if self.timed:
            return timing.described(self.timed, state=state)
        return join(OWN + self.stack, f"before the question: {STATE_WORDS[state]}")

    @property
    def source(self) -> CellSource:
        return CellSource.LATENCY if self.timed else CellSource.RECORDS

    def first_tokens(self, variant: Variant, state: State) -> list[float]:
        """Seconds to the first token: of each trial, or of each question that has a clock."""
        if self.timed:
            return self.timed.seconds(variant.name, "first_token_s", state)
        return [*seconds_in(variant, "first_token_s", state).values()]

    def tokens(self, variant: Variant, state: State) -> list[float]:
        """Seconds of each generated token after the first: of each trial, or of each question."""
        if self.timed:
            return self.timed.seconds(variant.name, "per_token_s", state)
        waits = list[float]()
        for trace in variant.traces.values():
            # the calls that generate
            decoding = [c for c in trace if c.stage == "decode" and c.seconds is not None]
            steps = sum(call.steps for call in decoding)
            if steps:
                waits.append(seconds(decoding) / steps)
        return list(filter(math.isfinite, waits))

    def sooner(self, base: Variant, variant: Variant, state: State) -> Measure:
        """How many times sooner than the plain prompt's the first token is known, both in a state:
        the ratio of medians.
        """
        slow = self.first_tokens(base, state)
        fast = self.first_tokens(variant, state)
        if not slow or not fast:
            return Measure(reason="not timed in this state" if self.timed else "no clock")
        places = (
            []
            if self.timed
            else [machine(provenance_of(run), run.device) for run in (base, variant)]
        )
        apart = f"on two machines: {' and '.join(places)}" if len({*places}) > 1 else ""
        note = join(self.note(state), apart)
        return replace(
            timing.ratio(slow, fast, base.runs.seed, n=len(fast), note=note), source=self.source
        )


def knob(variant: Variant) -> Any:
    """The value of the option that trades quality for time; None where the method has none."""
    return variant.param(KNOBS.get(variant.method, ""))


def curve(variant: Variant) -> str:
    """Name a variant together with those that differ in the knob alone: the method and its
    other options.
    """
    usual = default_options(variant.method)
    shown = "compressor" if variant.method == "compressed" else ""
    others = {
        k: v
        for k, v in variant.options.items()
        if k != KNOBS.get(variant.method) and not isinstance(v, Mapping)
    }
    changed = [f"{k}={v}" for k, v in others.items() if k != shown and v != usual.get(k)]
    return ", ".join([variant.row, *([others[shown]] if shown else []), *changed])
