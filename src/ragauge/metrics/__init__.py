"""Metrics: one file each, with `score(record)` -> a number, or None if the metric does not apply to the record."""

from __future__ import annotations

from ragauge import registry
from ragauge.metrics._text import Fields, normalise

__all__ = ["names", "normalise", "score"]


def names() -> list[str]:
    """The names of all metrics."""
    return registry.names("metric")


def score(name: str, record: Fields) -> float | None:
    """One record's score: None if the question failed or the metric does not apply.

    Args:
        name: a metric's name.
        record: the fields of a `ragauge.io.records.Record`; a metric reads only those that its docstring names.

    Raises:
        UserError: there is no metric of that name.
    """
    metric = registry.module("metric", name)
    if record.get("status") == "failed":
        return None
    value: float | None = metric.score(record)
    return value
