"""Measured speedups from the latency files: medians of one machine's trials, not compared across machines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ragauge.cost.hardware import Precision
from ragauge.results.cells import Cell, CellSource, Measure, join
from ragauge.results.provenance import machine
from ragauge.results.publications import named_model
from ragauge.results.runs import Runs, Variant, known_names
from ragauge.results.stats import median_ratio_interval

TIMED = "measured_speedup"  # of which machine, the device's name says
QUARTILES = "low and high are quartiles"


def speedup_cells(runs: Runs, keys: Callable[[Variant], Mapping[str, Any] | None]) -> list[Cell]:
    """A cell of `measured_speedup_<device>` for each timed variant to which `keys` gives the rest of its row's keys.

    The row's data set is the one whose prompts were timed, and its model that of the latency file.
    """
    cells = []
    for latency in runs.latencies:
        protocol = latency.get("protocol") or {}
        if runs.kind(latency["dataset"]) == "long":
            continue  # of CFIC's items, which show seconds
        device = str(protocol.get("device") or "unknown").partition(":")[0]
        names = known_names(runs.source(latency["model"]))
        for name in variants(latency):
            found = keys(runs.named(latency["model"], name))
            if found is not None:
                row = {"model": latency["model"], "dataset": latency["dataset"], "variant": name, **found}
                of_paper = named_model(names, "superposition_table_7") if device == "cuda" else None
                cells.append(Cell(row, f"{TIMED}_{device}", speedup(runs, latency, name), paper_model=of_paper))
    return cells


def speedup(runs: Runs, latency: Mapping[str, Any], name: str) -> Measure:
    """Median total seconds of naive over those of the variant, in the same interleaved run."""
    if latency.get("refused"):
        return Measure(reason=f"timing refused: {latency['refused']}")
    base = next((n for n in variants(latency) if runs.named(latency["model"], n).method == "naive"), None)
    slow, fast = seconds(latency, base or ""), seconds(latency, name)
    if not slow or not fast:
        return Measure(reason="naive was not timed" if not slow else "no undisturbed trial")
    return ratio(slow, fast, runs.seed, n=len(fast), note=described(latency))


def ratio(slow: Sequence[float], fast: Sequence[float], seed: int, n: int, note: str = "") -> Measure:
    """How many times the median of some trials is that of others, in the same interleaved run."""
    low, high = median_ratio_interval(slow, fast, seed)
    return Measure(
        statistics.median(slow) / statistics.median(fast), low, high, n, note=note, source=CellSource.LATENCY
    )


def quartiles(values: Sequence[float], note: str = "", source: CellSource = CellSource.LATENCY) -> Measure:
    """The median with its quartiles, of at least one value."""
    if len(values) == 1:
        return Measure(values[0], values[0], values[0], 1, note=note, source=source)
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Measure(median, low, high, len(values), note=join(note, QUARTILES), source=source)


def find(runs: Runs, dataset: str, model: str) -> Mapping[str, Any] | None:
    """The latency file of a model on prompts of a data set, one that was not refused where there are several.

    A file may name the registered data set in place of the label, unless that is the label of another one here: other
    documents of the same questions take another time.
    """
    registered = runs.registered(dataset)
    labels = {label for label, _ in runs.groups()}
    names = (dataset,) if registered in labels else (dataset, registered)
    found = [t for t in runs.latencies if t["model"] == model and t["dataset"] in names]
    return min(found, key=lambda latency: bool(latency.get("refused")), default=None)


def variants(latency: Mapping[str, Any]) -> list[str]:
    """The names of the variants that were timed."""
    return list(dict.fromkeys(str(row.get("variant")) for row in latency.get("rows") or ()))


def trials(latency: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The trials of a variant: the undisturbed ones, or all where the protocol allowed other load."""
    return counted(latency, latency.get("rows"), name)


def counted(latency: Mapping[str, Any], rows: Iterable[Mapping[str, Any]] | None, name: str) -> list[Mapping[str, Any]]:
    """Those of a variant among some rows of a latency file that count: as `trials`."""
    own = [row for row in rows or () if row.get("variant") == name]
    return [row for row in own if load_allowed(latency) or not row.get("disturbed")]


def load_allowed(latency: Mapping[str, Any]) -> bool:
    """Whether times were reported whatever else the machine did."""
    return bool((latency.get("protocol") or {}).get("allow_load"))


def seconds(latency: Mapping[str, Any], name: str, key: str = "total_s") -> list[float]:
    """The times of the trials of a variant that count."""
    given = [row.get(key) for row in trials(latency, name)]
    return [float(s) for s in given if isinstance(s, int | float) and math.isfinite(s)]


def described(latency: Mapping[str, Any]) -> str:
    """The protocol in a few words: medians, tokens, precision, machine."""
    protocol = latency.get("protocol") or {}
    place = machine(latency.get("provenance") or {}, protocol.get("device")) or "an unrecorded machine"
    return join(
        f"medians of {protocol.get('trials', '?')} trials, {protocol.get('new_tokens', '?')} generated tokens",
        f"{precision(protocol)} on {place}",
        "other load was allowed" if load_allowed(latency) else "",
    )


def precision(protocol: Mapping[str, Any]) -> str:
    """How the numbers of the decoder of a protocol were computed and kept, in words."""
    stated = {key: str(protocol[key]) for key in ("dtype", "weights", "kv") if protocol.get(key)}
    return str(Precision(**stated)) if "dtype" in stated else "dtype not recorded"
