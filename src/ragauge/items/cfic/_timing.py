"""Seconds until evidence is found, from the latency rule's files alone: total and by stage, medians of one machine."""

from collections.abc import Mapping
from typing import Any

from ragauge.items.cfic import _shared
from ragauge.results import Measure, Runs, Variant, join, timing
from ragauge.results.timing import TIMED, described, quartiles, ratio

STAGES = ("query", "prefix", "skip")  # of CFIC, before the answer is generated
ANSWER = "prompt"  # the stage that reads the evidence and the question for the answer


def groups(runs: Runs) -> list[tuple[str, str]]:
    """The (data set, model) pairs of long documents with records or with times of CFIC; fine-tuned models are as fast
    as their base and are left out."""
    answered = [(d, m) for d, m in runs.groups("long") if _shared.base_of(runs, m) is None]
    timed = [(t["dataset"], t["model"]) for t in runs.latencies if any(v.method == "cfic" for v in variants(runs, t))]
    return list(dict.fromkeys(answered + timed))


def variants(runs: Runs, latency: Mapping[str, Any]) -> list[Variant]:
    return [runs.named(latency["model"], name) for name in timing.variants(latency)]


def why_not(runs: Runs, dataset: str, model: str) -> str:
    """Why there are no times; empty where there are."""
    latency = timing.find(runs, dataset, model)
    if latency is None:
        return f"not timed: no file of the latency rule for {dataset}"
    return f"timing refused: {latency['refused']}" if latency.get("refused") else ""


def finding(runs: Runs, dataset: str, variant: Variant, stage: str | None = None) -> Measure:
    """Median milliseconds from the question to the evidence, or of one stage of it.

    Everything before the first token of the answer, less the reading of the prompt that it is generated from.
    """
    latency, reason = timing.find(runs, dataset, variant.model), why_not(runs, dataset, variant.model)
    if latency is None or reason:
        return Measure(reason=reason)
    if variant.name not in {v.name for v in variants(runs, latency)}:
        return Measure(reason=f"not timed: {variant.name} is not in the latency protocol of {dataset}")
    values, nothing = _milliseconds(latency, variant, stage), "no undisturbed trial with the seconds of its stages"
    return quartiles(values, described(latency), nothing=nothing)


def finding_in_batch(runs: Runs, dataset: str, variant: Variant) -> Measure:
    """Milliseconds of one of several questions whose evidence is found side by side; of one alone where none were."""
    latency = timing.find(runs, dataset, variant.model) or {}
    if why_not(runs, dataset, variant.model) or not (batches := latency.get("evidence_batches")):
        return finding(runs, dataset, variant)
    values = [1000 * trial["evidence_s"] for trial in timing.trials(latency, variant.name, "evidence_batches")]
    note = join(described(latency), f"{batches['questions']} questions side by side, each with its part of the time")
    return quartiles(values, note, nothing=f"not timed with {batches['questions']} questions side by side")


def speedup(runs: Runs, dataset: str, slow: Variant, fast: Variant) -> tuple[str, Measure]:
    """(`measured_speedup_<device>`, slow over fast until the evidence is known), in the same interleaved trials."""
    latency, reason = timing.find(runs, dataset, fast.model), why_not(runs, dataset, fast.model)
    quantity = f"{TIMED}_{str(((latency or {}).get('protocol') or {}).get('device') or 'cpu').partition(':')[0]}"
    if latency is None or reason:
        return quantity, Measure(reason=reason)
    a, b = _milliseconds(latency, slow), _milliseconds(latency, fast)
    if not a or not b:
        return quantity, Measure(reason=f"{(slow if not a else fast).name} was not timed")
    return quantity, ratio(a, b, runs.seed, n=min(len(a), len(b)))


def _milliseconds(latency: Mapping[str, Any], variant: Variant, stage: str | None = None) -> list[float]:
    """Each undisturbed trial's milliseconds until the evidence was known, or of one stage."""
    trials = [trial for trial in timing.trials(latency, variant.name) if trial.get("stages")]
    if stage is None:
        return [1000 * float(trial["first_token_s"] - trial["stages"].get(ANSWER, 0.0)) for trial in trials]
    return [1000 * float(trial["stages"].get(stage, 0.0)) for trial in trials]
