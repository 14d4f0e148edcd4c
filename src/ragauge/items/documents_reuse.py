"""Documents' keys and values on disk: costs and savings.

What this shows: for each variant that reads documents before the question, the seconds of computing, writing and
reading them and of the rest of the answer (medians of the latency protocol); the mean latency when 0 to 100% of the
questions find their documents on disk; how often documents must be used again until storing them has paid; and from how
many questions, and from which hit rate, the total time is below naive's. Stored documents equal computed ones bit for
bit, so quality is the same at every hit rate.

Limits: Table 7 has documents that stay in memory; the price of the disk is not counted. Reading was timed from the disk
of the result's folder with a cold system cache; another disk gives other numbers.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from ragauge.config.reads import Reads, timed
from ragauge.rendering import Axis, Figure, Lines
from ragauge.results import Cell, Measure, Runs, Table, frame, noted, quality, timing
from ragauge.results.reuse import Seconds, break_even_hit_rate, break_even_questions, break_even_reuses

KEYS = ("model", "dataset", "method", "variant", "hit_rate")
HIT_RATES = tuple(percent / 100 for percent in range(0, 101, 10))
LATENCY = "mean_latency_s"
SAME = "the same at every hit rate"
UNTIMED = "not timed: the latency protocol ran without `documents: cold`"

Keys = Mapping[str, Any]

READS = Reads(answers=(timed(),), latency="any")


def table(runs: Runs) -> Table:
    """One line for each (model, data set, variant, quantity), the mean latency at each hit rate."""
    return frame(KEYS, (cell for latency in runs.latencies for cell in _protocol(runs, latency)))


HIT_RATE_LINES = Lines(
    x="percent",
    x_axis=Axis("questions whose documents are on disk (%)"),
    y=LATENCY,
    y_axis=Axis("mean latency (s)", from_zero=True),
    line=lambda row: str(row.keys["variant"]).replace("_", " "),
    nothing="Nothing to draw yet: no latency file has documents timed from disk.",
)


def draw(table: Table) -> Figure:
    """A panel a model and data set: mean latency against the hit rate, a line a variant."""
    return HIT_RATE_LINES(table.assign(percent=[100 * rate if rate != "" else rate for rate in table["hit_rate"]]))


def _protocol(runs: Runs, latency: Mapping[str, Any]) -> Iterator[Cell]:
    """The cells of one latency file."""
    row = {"model": latency["model"], "dataset": latency["dataset"]}
    trials = (latency.get("documents") or {}).get("rows")
    naive = _naive_s(runs, latency)
    for name in timing.variants(latency):
        keys = {**row, "method": runs.named(latency["model"], name).row, "variant": name}
        mine = timing.counted(latency, trials, name)
        online = timing.seconds(latency, name)
        if latency.get("refused"):
            yield Cell(keys, LATENCY, Measure(reason=f"timing refused: {latency['refused']}"))
        elif online and name == naive[0]:
            yield from (Cell(keys | {"hit_rate": h}, LATENCY, Measure(naive[1], n=len(online))) for h in HIT_RATES)
        elif not trials:
            yield Cell(keys, LATENCY, Measure(reason=UNTIMED))
        elif mine and online:
            yield from _variant(runs, keys, _seconds(mine, online), naive[1], (len(mine), timing.described(latency)))


def _variant(runs: Runs, keys: Keys, seconds: Seconds, naive_s: float | None, basis: tuple[int, str]) -> Iterator[Cell]:
    """The cells of one variant; `basis` is the number of trials and the protocol in words."""
    n, note = basis
    for quantity in ("computing_s", "saving_s", "loading_s", "online_s"):
        yield Cell(keys, quantity, Measure(getattr(seconds, quantity), n=n, note=note))
    for rate in HIT_RATES:
        yield Cell({**keys, "hit_rate": rate}, LATENCY, Measure(seconds.latency_s(rate), n=n))
    yield Cell(keys, "break_even_reuses", _or_never(break_even_reuses(seconds), n, "reading takes as long"))
    if naive_s is not None:
        never = "reading and answering take as long as naive"
        yield Cell(keys, "break_even_questions", _or_never(break_even_questions(seconds, naive_s), n, never))
        yield Cell(keys, "break_even_hit_rate", _or_never(break_even_hit_rate(seconds, naive_s), n, never))
    answered = [v for v in runs.of(keys["dataset"], keys["model"]) if v.name == keys["variant"]]
    yield from (Cell(keys, "quality", noted(quality(runs, variant), SAME)) for variant in answered)


def _seconds(trials: list[Mapping[str, Any]], online: list[float]) -> Seconds:
    """Medians; writing is what a miss takes beyond computing."""
    computing, missed, loading = (
        statistics.median(float(trial[key]) for trial in trials) for key in ("computing_s", "missed_s", "loading_s")
    )
    return Seconds(computing, max(0.0, missed - computing), loading, statistics.median(online))


def _naive_s(runs: Runs, latency: Mapping[str, Any]) -> tuple[str, float | None]:
    """The plain prompt's variant in a latency file and its median seconds, where it was timed."""
    for name in timing.variants(latency):
        if runs.named(latency["model"], name).method == "naive" and (times := timing.seconds(latency, name)):
            return name, statistics.median(times)
    return "", None


def _or_never(value: float | None, n: int, never: str) -> Measure:
    return Measure(n=n, note=f"never: {never}") if value is None else Measure(float(value), n=n)
