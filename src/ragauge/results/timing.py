"""Measured speedups from the latency files: medians of one machine's trials, never set against another machine's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragauge.results.cells import RESAMPLES, TIMED, Cell, Measure, join, read_csv
from ragauge.rendering.footer import machine
from ragauge.results.runs import Runs, Variant


def speedup_cells(runs: Runs, keys: Callable[[Variant], Mapping[str, Any] | None]) -> list[Cell]:
    """A cell of `measured_speedup_<device>` for each timed variant to which `keys` gives the rest of its row's keys.

    The row's data set is the one whose prompts were timed, and its model that of the latency file.
    """
    cells = []
    for latency in runs.latencies:
        protocol = latency.get("protocol") or {}
        if runs.is_long(latency["dataset"]):
            continue  # of CFIC's items, which show seconds
        device = str(protocol.get("device") or "unknown").partition(":")[0]
        for name in dict.fromkeys(str(row.get("variant")) for row in latency.get("rows") or ()):
            found = keys(runs.named(latency["model"], name))
            if found is not None:
                row = {"model": latency["model"], "dataset": latency["dataset"], "variant": name, **found}
                of_paper = _paper_model(latency["model"]) if device == "cuda" else None
                cells.append(Cell(row, f"{TIMED}_{device}", speedup(runs, latency, name), paper_model=of_paper))
    return cells


def speedup(runs: Runs, latency: Mapping[str, Any], name: str) -> Measure:
    """Median total seconds of naive over those of the variant, in the same interleaved run."""
    if latency.get("refused"):
        return Measure(note=f"timing refused: {latency['refused']}")
    base = next((n for n in _variants(latency) if runs.named(latency["model"], n).method == "naive"), None)
    slow, fast = seconds(latency, base or ""), seconds(latency, name)
    if not slow or not fast:
        return Measure(note="naive was not timed" if not slow else "no undisturbed trial")
    low, high = median_ratio_interval(slow, fast, runs.seed)
    return Measure(statistics.median(slow) / statistics.median(fast), low, high, len(fast), note=described(latency))


def seconds(latency: Mapping[str, Any], name: str, key: str = "total_s") -> list[float]:
    """The times of a variant's trials that other processes did not disturb."""
    rows = [r for r in latency.get("rows") or () if r.get("variant") == name and not r.get("disturbed")]
    return [float(r[key]) for r in rows if r.get(key) is not None and math.isfinite(r[key])]


def described(latency: Mapping[str, Any]) -> str:
    """The protocol in a few words: medians, tokens, precision, machine."""
    protocol = latency.get("protocol") or {}
    place = machine(latency.get("provenance") or {}, protocol.get("device")) or "an unrecorded machine"
    return join(
        f"medians of {protocol.get('trials', '?')} trials, {protocol.get('new_tokens', '?')} generated tokens",
        f"{protocol.get('dtype', '')} on {place}".strip(),
    )


def median_ratio_interval(a: Sequence[float], b: Sequence[float], seed: int) -> tuple[float, float]:
    """Percentile bootstrap 95% interval of median(a) / median(b), both resampled."""
    import numpy as np

    draw = np.random.default_rng(seed)
    medians = [np.median(draw.choice(np.asarray(x), size=(RESAMPLES, len(x))), axis=1) for x in (a, b)]
    low, high = np.quantile(medians[0] / medians[1], [0.025, 0.975])
    return float(low), float(high)


def _variants(latency: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(str(row.get("variant")) for row in latency.get("rows") or ()))


def _paper_model(label: str) -> str | None:
    name = label.rpartition("/")[2].lower()
    return next((r["model"] for r in read_csv("superposition_table_7") if r["model"].lower() == name), None)
