"""What trackers of experiments show of a variant: parameters, metrics with their intervals, and provenance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ragauge.results import timing
from ragauge.results.cells import Measure
from ragauge.results.measures import quality, standard
from ragauge.results.provenance import machine, where_asked
from ragauge.results.runs import Runs, Variant

TIMES = ("first_token_s", "per_token_s", "total_s")  # of the latency protocol


@dataclass(frozen=True)
class Tracked:
    """One variant on one data set with one model, flat."""

    id: str  # 32 hex digits: the same for the same records
    name: str
    parameters: Mapping[str, Any]  # the resolved specification: `options.top_k`, `engine.dtype`
    metrics: Mapping[str, float]  # `em`, and where known `em_low`, `em_high` and `em_n`
    provenance: Mapping[str, str]
    finished_s: float | None  # since 1970; None: not recorded


def tracked(runs: Runs, variant: Variant) -> Tracked:
    """A variant with records as a tracker's run."""
    specification = variant.specification.model_dump(mode="json") if variant.specification else {}
    name = f"{variant.dataset}/{variant.model}/{variant.name}"
    provenance = where_asked(variant)
    text = "\n".join([name, *map(str, variant.records), repr(specification), str(provenance.get("time"))])
    return Tracked(
        hashlib.sha256(text.encode()).hexdigest()[:32],
        name,
        dict(flat(specification)),
        dict(_metrics(runs, variant)),
        {**_named(variant), **{key: str(value) for key, value in flat(provenance)}},
        _seconds(provenance.get("time")),
    )


def flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings, their keys joined by points; null is left out."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value


def _metrics(runs: Runs, variant: Variant) -> Iterator[tuple[str, float]]:
    yield "questions", float(len(variant.records))
    yield "failed", float(len(variant.failed))
    for name, measure in _measures(runs, variant).items():
        if measure.value is None:
            continue
        yield name, float(measure.value)
        for end, value in (("low", measure.low), ("high", measure.high), ("n", measure.n or None)):
            if value is not None:
                yield f"{name}_{end}", float(value)


def _measures(runs: Runs, variant: Variant) -> dict[str, Measure]:
    """Metrics of the data set and costs with 95% intervals, times of the latency protocol with quartiles."""
    found = {name: quality(runs, variant, name) for name in runs.metrics(variant.dataset)}
    found |= {name: measure for name, measure in standard(runs, variant).items() if name != "accuracy"}
    latency = timing.find(runs, variant.dataset, variant.model) or {}
    for key in () if latency.get("refused") else TIMES:
        if seconds := timing.seconds(latency, variant.name, key):
            found[key] = timing.quartiles(seconds)
    return found


def _named(variant: Variant) -> dict[str, str]:
    code = (variant.meta.get("fingerprint") or {}).get("code")
    named = {
        "dataset_label": variant.dataset,
        "model_label": variant.model,
        "variant": variant.name,
        "machine": machine(where_asked(variant), variant.device),
        "code": code,
        "stack": variant.stack,
    }
    return {key: str(value) for key, value in named.items() if value}


def _seconds(time: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return None
