"""Measured speedups from the latency files: medians of one machine's trials, not compared across
machines.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragauge.cost.hardware import Precision
from ragauge.io.jsonl import JsonObject
from ragauge.methods.base.method import State
from ragauge.results.cells import (
    Cell,
    Cells,
    CellSource,
    Measure,
    Measures,
    join,
    row_cells,
    with_interval_note,
)
from ragauge.results.provenance import place
from ragauge.results.publications import named_model, paper_table
from ragauge.results.runs import Runs, Variant, known_names
from ragauge.results.stats import median_ratio_interval
from ragauge.results.times import STATE_WORDS, LatencyTimes, ProtocolFacts, TimesFile, remarks

TIMED = "measured_speedup"  # of which machine, the device's name says
LIKE_PAPERS = "as in the paper, of two states"
QUARTILES = "low and high are quartiles"


def speedup_cells(runs: Runs, more_keys: Callable[[Variant], Mapping[str, Any] | None]) -> Cells:
    """The cells of each timed variant to which `more_keys` gives others, in a row of the data set
    whose prompts were timed: `<state>_speedup_<device>`, `measured_speedup_<device>` (as the papers
    have it: the variant in the best of its states, naive with nothing read), and the preparation.
    """
    cells = []
    for latency in runs.latencies:
        if runs.kind(latency.dataset) == "long":
            continue  # of CFIC's items, which show seconds
        names = known_names(runs.source(latency.model))
        is_papers = (
            latency.device == "cuda"
            and paper_table(latency.dataset, runs) == "superposition_table_1"
        )
        model = named_model(names, "superposition_table_7") if is_papers else None
        for name in latency.variants:
            further = more_keys(runs.named(latency.model, name))
            if further is not None:
                row = {**keys(runs, latency, name), **further}
                measures = {
                    f"{state}_speedup_{latency.device}": speedup(runs, latency, name, state)
                    for state in latency.states
                }
                measures |= preparation(latency, name, latency.usable.get(name, "nothing"))
                measure = speedup(runs, latency, name)
                cells += row_cells(row, measures)
                cells.append(Cell(row, f"{TIMED}_{latency.device}", measure, paper_model=model))
    return cells


def speedup(runs: Runs, latency: LatencyTimes, name: str, state: State | None = None) -> Measure:
    """Median total seconds of naive over those of the variant, in the same interleaved run: both in
    a state, or as the papers have it.
    """
    if latency.refused:
        return Measure(reason=f"timing refused: {latency.refused}")
    base = naive_of(runs, latency)
    best = state or latency.usable.get(name, "nothing")
    slow = latency.seconds(base, state=state or "nothing")
    fast = latency.seconds(name, state=best)
    if not slow or not fast:
        missing = name if slow else base or "naive"
        return Measure(reason=f"{missing} was not timed in this state")
    note = described(latency, state=best)
    if state is None and best != "nothing" and latency.measured_state(base, best) != "nothing":
        read = f"{name}: {STATE_WORDS[best]}, {base}: {STATE_WORDS['nothing']}"
        note = join(note, f"{LIKE_PAPERS}: {read}")
    return ratio(slow, fast, runs.seed, n=len(fast), note=note)


def preparation(latency: LatencyTimes, name: str, state: State) -> Measures:
    """Seconds of what a variant has read before the question in a state, a value a prompt, and bytes
    of the keys and values that stay; nothing where it has read nothing.
    """
    trials = {trial.prompt: trial for trial in latency.trials(name, state)}
    if latency.refused or latency.measured_state(name, state) in ("nothing", None):
        return {}
    measures: Measures = {}
    for quantity in ("preparation_s", "preparation_bytes"):
        values = [getattr(trial, quantity) for trial in trials.values()]
        known = [float(value) for value in values if value is not None]
        note = f"of {len(known)} prompts; {described(latency, state=state)}"
        measures |= {quantity: quartiles(known, note)} if known else {}
    return measures


def naive_of(runs: Runs, latency: LatencyTimes) -> str:
    """The first timed variant of the method naive; empty where there is none."""
    names = latency.variants
    return next((n for n in names if runs.named(latency.model, n).method == "naive"), "")


def ratio(
    slow: Sequence[float], fast: Sequence[float], seed: int, n: int, note: str = ""
) -> Measure:
    """How many times the median of some trials is that of others, in the same interleaved run."""
    times = statistics.median(slow) / statistics.median(fast)
    interval = median_ratio_interval(slow, fast, seed)
    return with_interval_note(Measure(times, *interval, n, note=note, source=CellSource.LATENCY))


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


def failures(failed: int, requests: int) -> str:
    """A note on requests without an answer, which only a server has; empty where there are none."""
    return f"{failed} of {requests} requests failed and have no times" if failed else ""


def keys(runs: Runs, times: TimesFile, name: str) -> JsonObject:
    method = runs.named(times.model, name).row
    return {"model": times.model, "dataset": times.dataset, "method": method, "variant": name}


def unsupported(runs: Runs, times: TimesFile, quantity: str) -> Cells:
    """A cell for each variant that the engine of a file of times does not run, with the reason."""
    for name, reason in times.unsupported.items():
        yield Cell(keys(runs, times, name), quantity, Measure(reason=f"not supported: {reason}"))


def described(latency: LatencyTimes, trials: str = "", state: State | None = None) -> str:
    """The protocol in a few words: medians, tokens (or other `trials` than those of answers),
    precision, machine, and what was read before the question.
    """
    protocol = latency.protocol
    several = "" if protocol.trials == 1 else "s"
    answers = f"{protocol.trials} trial{several}, {protocol.new_tokens} generated tokens"
    return join(
        f"medians of {trials or answers}",
        f"{precision(protocol)} on {place(latency)}",
        latency.load.busy or "",
        *remarks(latency.rows),
        f"before the question: {STATE_WORDS[state or latency.default_state]}",
    )


def precision(protocol: ProtocolFacts) -> str:
    """How the numbers of the decoder of a protocol were computed and kept, in words."""
    if protocol.dtype:
        return str(Precision(protocol.dtype, protocol.weights, protocol.kv))
    return "the server's precision" if protocol.is_served else "dtype not recorded"
