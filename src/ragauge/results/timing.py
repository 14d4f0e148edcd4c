"""Measured speedups from the latency files: medians of one machine's trials, not compared across
machines.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ragauge.cost.hardware import Precision
from ragauge.results.cells import Cell, CellSource, Measure, join
from ragauge.results.provenance import SERVER, place
from ragauge.results.publications import named_model, paper_table
from ragauge.results.runs import Runs, Variant, known_names
from ragauge.results.stats import median_ratio_interval

TIMED = "measured_speedup"  # of which machine, the device's name says
QUARTILES = "low and high are quartiles"


def speedup_cells(
    runs: Runs, more_keys: Callable[[Variant], Mapping[str, Any] | None]
) -> list[Cell]:
    """A cell of `measured_speedup_<device>` for each timed variant to which `more_keys` gives
    others, in a row of the data set whose prompts were timed.
    """
    cells = []
    for latency in runs.latencies:
        if runs.kind(latency["dataset"]) == "long":
            continue  # of CFIC's items, which show seconds
        device = str((latency.get("protocol") or {}).get("device") or "unknown").partition(":")[0]
        names = known_names(runs.source(latency["model"]))
        is_papers = (
            device == "cuda" and paper_table(latency["dataset"], runs) == "superposition_table_1"
        )
        of_paper = named_model(names, "superposition_table_7") if is_papers else None
        for name in variants(latency):
            if (more := more_keys(runs.named(latency["model"], name))) is not None:
                row = {**keys(runs, latency, name), **more}
                cells.append(
                    Cell(
                        row, f"{TIMED}_{device}", speedup(runs, latency, name), paper_model=of_paper
                    )
                )
    return cells


def speedup(runs: Runs, latency: Mapping[str, Any], name: str) -> Measure:
    """Median total seconds of naive over those of the variant, in the same interleaved run."""
    if latency.get("refused"):
        return Measure(reason=f"timing refused: {latency['refused']}")
    base = next(
        (n for n in variants(latency) if runs.named(latency["model"], n).method == "naive"), ""
    )
    slow = seconds(latency, base)
    fast = seconds(latency, name)
    if not slow or not fast:
        return Measure(reason="naive was not timed" if not slow else "no undisturbed trial")
    return ratio(slow, fast, runs.seed, n=len(fast), note=described(latency))


def ratio(
    slow: Sequence[float], fast: Sequence[float], seed: int, n: int, note: str = ""
) -> Measure:
    """How many times the median of some trials is that of others, in the same interleaved run."""
    times = statistics.median(slow) / statistics.median(fast)
    return Measure(
        times, *median_ratio_interval(slow, fast, seed), n, note=note, source=CellSource.LATENCY
    )


def quartiles(
    values: Sequence[float],
    note: str = "",
    source: CellSource = CellSource.LATENCY,
    *,
    nothing: str = "no clock",
) -> Measure:
    """The median with its quartiles; `nothing` is the reason where there is no value."""
    if not values:
        return Measure(reason=nothing)
    several = len(values) > 1
    low, median, high = (
        statistics.quantiles(values, n=4, method="inclusive") if several else [values[0]] * 3
    )
    return Measure(
        median, low, high, len(values), note=join(note, QUARTILES if several else ""), source=source
    )


def find(runs: Runs, dataset: str, model: str) -> Mapping[str, Any] | None:
    """The latency file of a model on prompts of a data set, one that was not refused where there
    are several. It may name the registered data set in place of the label, unless that is the label
    of another one here.
    """
    registered = runs.registered(dataset)
    labels = {label for label, _ in runs.groups()}
    names = (dataset,) if registered in labels else (dataset, registered)
    latencies = [t for t in runs.latencies if t["model"] == model and t["dataset"] in names]
    return min(latencies, key=lambda latency: bool(latency.get("refused")), default=None)


def failures(failed: int, requests: int) -> str:
    """A note on requests without an answer, which only a server has; empty where there are none."""
    return f"{failed} of {requests} requests failed and have no times" if failed else ""


def busy(latency: Mapping[str, Any]) -> str:
    """How other processes kept the machine busy during the trials; empty where it was quiet."""
    return str((latency.get("load") or {}).get("busy") or "")


def keys(runs: Runs, measured: Mapping[str, Any], name: str) -> dict[str, Any]:
    method = runs.named(measured["model"], name).row
    return {
        "model": measured["model"],
        "dataset": measured["dataset"],
        "method": method,
        "variant": name,
    }


def unsupported(runs: Runs, measured: Mapping[str, Any], quantity: str) -> Iterator[Cell]:
    """A cell for each variant that the engine of a file of times does not run, with the reason."""
    for name, reason in (measured.get("unsupported") or {}).items():
        yield Cell(keys(runs, measured, name), quantity, Measure(reason=f"not supported: {reason}"))


def variants(latency: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(str(row.get("variant")) for row in latency.get("rows") or ()))


def trials(
    latency: Mapping[str, Any], name: str, key: str | None = None
) -> list[Mapping[str, Any]]:
    """The trials of a variant in a section: the undisturbed ones, or all where others kept the
    machine busy.
    """
    rows = ((latency.get(key) or {}) if key else latency).get("rows") or ()
    return [
        row
        for row in rows
        if row.get("variant") == name and (busy(latency) or not row.get("disturbed"))
    ]


def seconds(latency: Mapping[str, Any], name: str, key: str = "total_s") -> list[float]:
    """The times of the trials of a variant that count."""
    values = [row.get(key) for row in trials(latency, name)]
    return [float(s) for s in values if isinstance(s, int | float) and math.isfinite(s)]


def described(latency: Mapping[str, Any], trials: str = "") -> str:
    """The protocol in a few words: medians, tokens (or other `trials` than those of answers),
    precision, machine.
    """
    protocol = latency.get("protocol") or {}
    answers = (
        f"{protocol.get('trials', '?')} trials, {protocol.get('new_tokens', '?')} generated tokens"
    )
    return join(
        f"medians of {trials or answers}",
        f"{precision(protocol)} on {place(latency)}",
        busy(latency),
    )


def precision(protocol: Mapping[str, Any]) -> str:
    """How the numbers of the decoder of a protocol were computed and kept, in words."""
    stated = {key: str(protocol[key]) for key in ("dtype", "weights", "kv") if protocol.get(key)}
    unknown = "the server's precision" if protocol.get("device") == SERVER else "dtype not recorded"
    return str(Precision(**stated)) if "dtype" in stated else unknown
