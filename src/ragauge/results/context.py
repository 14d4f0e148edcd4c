"""What some metrics compare an answer with, beside its record: other answers, the passages, a judge's label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ragauge.results import materials
from ragauge.results.runs import Record, Runs, Variant


def records(runs: Runs, variant: Variant, metric: str) -> Mapping[str, Record]:
    """The variant's records by question, with the field that the metric reads besides, where it is known."""
    if metric not in _FIELDS:
        return variant.records
    name, found = _FIELDS[metric][0], _FIELDS[metric][1](runs, variant)
    return {key: {**record, name: found.get(key)} for key, record in variant.records.items()}


def _full_prompt(runs: Runs, variant: Variant) -> Mapping[str, str]:
    """The answers from all documents in one prompt."""
    plain = [v for v in runs.of(variant.dataset, variant.model) if v.method == "naive"]
    return {k: r["prediction"] for v in plain[:1] for k, r in v.records.items() if r["status"] == "ok"}


def _passages(runs: Runs, variant: Variant) -> Mapping[str, list[str]]:
    """The texts of the documents that each answer was generated from."""
    texts = _documents(runs, variant.dataset) or {}
    kept = {key: record["kept"] for key, record in variant.records.items() if key in texts}
    return {key: [texts[key][i] for i in places if i < len(texts[key])] for key, places in kept.items()}


def _judged(runs: Runs, variant: Variant) -> Mapping[str, str]:
    """The labels of a judge of answers."""
    found = materials.judgements(runs, variant)
    return {key: line["label"] for key, line in found.items() if line.get("label") in materials.OF_ANSWERS}


_documents = cache(materials.documents)
_FIELDS: dict[str, tuple[str, Callable[[Runs, Variant], Mapping[str, Any]]]] = {
    "agreement": ("full_prompt", _full_prompt),
    "groundedness": ("passages", _passages),
    "judged_correct": ("judged", _judged),
}
