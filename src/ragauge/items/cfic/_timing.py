"""Seconds until evidence is found, from the latency rule's files alone: total and by stage, medians of one machine."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ragauge.items.cfic import _shared
from ragauge.results.cells import TIMED, Measure, noted
from ragauge.results.runs import Runs, Variant
from ragauge.results.timing import described, median_ratio_interval

STAGES = ("query", "prefix", "skip")  # of CFIC, before the answer is generated
ANSWER = "prompt"  # the stage that reads the evidence and the question for the answer
QUARTILES = "low and high are quartiles"


def groups(runs: Runs) -> list[tuple[str, str]]:
    """The (data set, model) pairs of long documents with records or with times of CFIC; fine-tuned models are as fast
    as their base and are left out."""
    asked = [(d, m) for d, m in runs.groups(long=True) if _shared.base_of(runs, m) is None]
    timed = [(t["dataset"], t["model"]) for t in runs.latencies if any(v.method == "cfic" for v in variants(runs, t))]
    return list(dict.fromkeys(asked + timed))


def find(runs: Runs, dataset: str, model: str) -> Mapping[str, Any] | None:
    """The latency file of a data set and a model."""
    names = (dataset, runs.registered(dataset))
    return next((t for t in runs.latencies if t["model"] == model and t["dataset"] in names), None)


def variants(runs: Runs, latency: Mapping[str, Any]) -> list[Variant]:
    """The variants that were timed."""
    names = dict.fromkeys(str(line.get("variant")) for line in latency.get("rows") or ())
    return [runs.named(latency["model"], name) for name in names]


def why_not(runs: Runs, dataset: str, model: str) -> str:
    """Why there are no times; empty where there are."""
    latency = find(runs, dataset, model)
    if latency is None:
        return f"not timed: no file of the latency rule for {dataset}"
    return f"timing refused: {latency['refused']}" if latency.get("refused") else ""


def finding(runs: Runs, dataset: str, variant: Variant, stage: str | None = None) -> Measure:
    """Median milliseconds from the question to the evidence, or of one stage of it.

    Everything before the first token of the answer, less the reading of the prompt that it is generated from.
    """
    latency, reason = find(runs, dataset, variant.model), why_not(runs, dataset, variant.model)
    if latency is None or reason:
        return Measure(note=reason)
    if variant.name not in {v.name for v in variants(runs, latency)}:
        return Measure(note=f"not timed: {variant.name} is not in the latency protocol of {dataset}")
    values = milliseconds(latency, variant.name, stage)
    if not values:
        return Measure(note="no undisturbed trial with the seconds of its stages")
    return noted(_median(values), described(latency), QUARTILES)


def milliseconds(latency: Mapping[str, Any], name: str, stage: str | None = None) -> list[float]:
    """Each undisturbed trial's milliseconds until the evidence was known, or of one stage."""
    return [1000 * seconds for line in _trials(latency, name) for seconds in [_seconds(line, stage)]]


def speedup(runs: Runs, dataset: str, slow: Variant, fast: Variant) -> tuple[str, Measure]:
    """(`measured_speedup_<device>`, slow over fast until the evidence is known), in the same interleaved trials."""
    latency, reason = find(runs, dataset, fast.model), why_not(runs, dataset, fast.model)
    device = str(((latency or {}).get("protocol") or {}).get("device") or "cpu").partition(":")[0]
    if latency is None or reason:
        return f"{TIMED}_{device}", Measure(note=reason)
    a, b = milliseconds(latency, slow.name), milliseconds(latency, fast.name)
    if not a or not b:
        return f"{TIMED}_{device}", Measure(note=f"{(slow if not a else fast).name} was not timed")
    low, high = median_ratio_interval(a, b, runs.seed)
    return f"{TIMED}_{device}", Measure(statistics.median(a) / statistics.median(b), low, high, min(len(a), len(b)))


def _trials(latency: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    for line in latency.get("rows") or ():
        if line.get("variant") == name and not line.get("disturbed") and line.get("stages"):
            yield line


def _seconds(line: Mapping[str, Any], stage: str | None) -> float:
    stages = line["stages"]
    return float(line["first_token_s"] - stages.get(ANSWER, 0.0) if stage is None else stages.get(stage, 0.0))


def _median(values: Sequence[float]) -> Measure:
    if len(values) == 1:
        return Measure(values[0], values[0], values[0], 1)
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Measure(median, low, high, len(values))
