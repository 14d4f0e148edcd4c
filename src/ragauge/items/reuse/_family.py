"""What the items of this folder share: which methods they compare, and what differences mean where they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragauge.results import timing
from ragauge.results.cells import Measure
from ragauge.results.measures import FLOOR, scored
from ragauge.results.reads import ANY, Answers, defaults, every
from ragauge.results.runs import Runs, Variant
from ragauge.results.runs import defaults as default_options

STORED = ("parallel_windows", "ape", "naive_reuse", "kv_link", "epic", "cache_blend", "prophet_kv", "parallel_experts")
METHODS = ("naive", "prompt_cache", *STORED, "compressed", "long_llmlingua", "prefix_tree")
RANKERS = ("bm25", "tfidf", "dense")
AT_FLOOR = "nothing can be told here"

# method -> the option that trades quality for time
KNOBS = {
    **dict.fromkeys(("superposition", *RANKERS), "top_k"),
    "ape": "temperature",
    "epic": "tokens",
    "cache_blend": "recompute",
    "prophet_kv": "recompute",
    "compressed": "ratio",
    "long_llmlingua": "rate",
}


def answers(*more: str) -> tuple[Answers, ...]:
    """The variants of these methods, of further ones, and of superposition at its defaults but for top_k."""
    return every(*METHODS, *more), defaults("superposition", top_k=ANY)


def belongs(variant: Variant, *more: str) -> bool:
    """Whether a variant is among `answers`."""
    return variant.method in (*METHODS, *more) or variant.is_superposition()


def floor(runs: Runs, base: Variant | None) -> str:
    """Why differences to the plain prompt tell nothing, where its reader is at the floor; else nothing."""
    scores = list(scored(runs, base).values()) if base else []
    low = bool(scores) and sum(scores) / len(scores) < FLOOR
    return f"{AT_FLOOR}: the plain prompt scores below {FLOOR:g}" if low else ""


def sooner(runs: Runs, base: Variant, variant: Variant) -> Measure:
    """How many times sooner than the plain prompt's the first token is known: the ratio of medians."""
    plain, mine = first_tokens(base), first_tokens(variant)
    if not plain or not mine:
        return Measure(reason="no clock")
    return timing.ratio(plain, mine, runs.seed, n=len(mine), note="of the answering run")


def first_tokens(variant: Variant) -> list[float]:
    """Seconds to the first token of the questions that have a clock."""
    times = [r.get("first_token_s") for k, r in variant.records.items() if k not in variant.failed]
    return [t for t in times if t and t == t]


def knob(variant: Variant) -> Any:
    """The value of the option that trades quality for time; None where the method has none."""
    return variant.param(KNOBS.get(variant.method, ""))


def curve(variant: Variant) -> str:
    """What a variant has in common with those that differ in the knob alone: the method and its other options."""
    given = default_options(variant.method)
    shown = ["compressor"] if variant.method == "compressed" else []
    others = {k: v for k, v in variant.options.items() if k != KNOBS.get(variant.method) and not isinstance(v, Mapping)}
    told = [str(others[k]) for k in shown] + [
        f"{k}={v}" for k, v in others.items() if k not in shown and v != given.get(k)
    ]
    return ", ".join([variant.row, *told])
