"""A stream of questions with recurring documents, answered with a store of prepared documents.

What this shows: for each method on the same requests (`ragauge stream`: documents drawn from a
corpus by Zipf's law, a store of a given size that drops the least recently used; or the cache of a
server), the hit rate as the share of the documents' tokens found (of the prompt's, on a server);
the median and 95th percentile of the time to first token, with intervals of a block bootstrap;
questions answered a second; and how often the documents of a request must recur until their
preparation has paid against the plain prompt. Reading from disk is timed with a cold cache. The
curve is the mean first token of a request over the number of recurrences, with nothing stored at
first and everything afterwards.

Limits: no quality, since documents are drawn and not retrieved, and no price of the store. A method
that reads documents together finds them again only together.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from ragauge.config.reads import Reads
from ragauge.report.figures import Axes, Figure, style
from ragauge.report.figures.axis import log_axis
from ragauge.results import timing
from ragauge.results.cells import Cell, CellSource, Measure, Table, frame, join, mean
from ragauge.results.provenance import place
from ragauge.results.reuse import Seconds, break_even_questions
from ragauge.results.runs import Runs
from ragauge.results.times import SERVER, Stream, StreamTimes

KEYS = ("model", "dataset", "method", "variant", "store", "store_gb", "exponent")
REUSES = (0, 1, 2, 4, 8, 16, 32)
ENDS = ("missed_s", "found_s")

READS = Reads(stream="any")


def table(runs: Runs) -> Table:
    return frame(KEYS, (cell for stream in runs.streams for cell in _file(runs, stream)))


def draw(table: Table) -> Figure:
    groups = list(table.groupby(["model", "dataset"], sort=False))
    if not groups:
        return style.empty("Nothing to draw yet: no model was asked a stream of questions.")
    with style.theme():
        figure = style.figure(style.TEXT_IN, 2.5 * len(groups) + 0.5)
        grid = figure.subplots(len(groups), 3, squeeze=False)
        for line, (key, part) in zip(grid, groups, strict=True):
            names = list(dict.fromkeys(part["variant"]))
            line[0].set_title(" · ".join(map(str, key)), loc="left", color=style.MUTED, pad=3)
            _bars(line[0], part, names)
            _waits(line[1], part, names)
            _reuse(line[2], part)
        methods = sorted(dict.fromkeys(table["method"]), key=style.method_order)
        style.legend(
            figure, [style.handle(*style.method_style(name)) for name in methods], columns=6
        )
        return figure


def _file(runs: Runs, times: StreamTimes) -> Iterator[Cell]:
    protocol = times.protocol
    more = {
        "store": SERVER if protocol.is_served else protocol.store,
        "store_gb": "" if protocol.is_served else protocol.store_gb,
        "exponent": protocol.exponent,
    }
    plain = [s for s in times.streams if runs.named(times.model, s.variant).method == "naive"]
    first = plain[0].summary.first_token_s if plain else None
    naive_s = first.p50.value if first else None
    for stream in times.streams:
        keys = timing.keys(runs, times, stream.variant) | more
        note = join(_described(times), stream.busy or "")
        yield from (Cell(keys, quantity, m) for quantity, m in _stream(runs, stream, naive_s, note))
    for cell in timing.unsupported(runs, times, "first_token_p50_s"):
        yield replace(cell, keys={**cell.keys, **more})


def _stream(
    runs: Runs, stream: Stream, naive_s: float | None, note: str
) -> Iterator[tuple[str, Measure]]:
    failures = timing.failures(stream.failed, len(stream.requests))
    summary = stream.summary
    if summary.first_token_s is None:
        reason = f"refused: {stream.refused}" if stream.refused else failures
        yield "first_token_p50_s", Measure(reason=reason)
        return
    measured = partial(Measure, note=join(note, failures), source=CellSource.LATENCY)
    n = summary.requests
    for name in ("p50", "p95"):
        first = getattr(summary.first_token_s, name)
        yield f"first_token_{name}_s", measured(first.value, first.low, first.high, n)
    yield "questions_per_s", measured(summary.questions_per_s, n=n)
    shares = [request.found for request in stream.requests if request.found is not None]
    nothing = "nothing is stored, or the server does not say"
    yield "hit_rate", mean(shares, runs.seed, nothing=nothing)
    if shares and stream.missed_s and stream.found_s:
        note = f"of {style.counted(stream.probes, 'probe')}"
        probed = Measure(n=stream.probes, note=note, source=CellSource.LATENCY)
        yield "missed_s", replace(probed, value=stream.missed_s)
        yield "found_s", replace(probed, value=stream.found_s)
        reuses = _break_even(stream.missed_s, stream.found_s, naive_s)
        is_number = reuses.value is not None
        yield "break_even_reuses", replace(probed, value=reuses.value) if is_number else reuses


def _break_even(missed_s: float, found_s: float, naive_s: float | None) -> Measure:
    """How often a request's documents must be asked about again; the first time they are prepared."""
    if naive_s is None:
        return Measure(reason="the plain prompt was not measured")
    questions = break_even_questions(Seconds(missed_s - found_s, 0.0, 0.0, found_s), naive_s)
    if questions is None:
        return Measure(
            reason="never: with everything found the first token takes as long as the plain prompt's"
        )
    return Measure(float(questions - 1))


def _described(times: StreamTimes) -> str:
    protocol = times.protocol
    store = f"store of {protocol.store_gb} GB on {protocol.store}, {protocol.dtype}"
    if protocol.is_served:
        store = f"the server's own cache, {protocol.cache}"
    corpus = f"{protocol.documents} documents a request of {protocol.corpus_documents}"
    if protocol.growth:
        corpus += f", of which {protocol.growth:g} a request enter"
    return f"{corpus}, {store} on {place(times)}"


def _rows(part: Table, quantity: str) -> list[dict[Any, Any]]:
    return list(part[(part["quantity"] == quantity) & part["measured"].notna()].to_dict("records"))


def _bars(ax: Axes, part: Table, names: list[str]) -> None:
    for row in _rows(part, "hit_rate"):
        colour = style.method_style(str(row["method"]))[1]
        ax.barh(names.index(row["variant"]), row["measured"], color=colour, height=0.6)
    style.name_rows(ax, [name.replace("_", " ") for name in names])
    ax.set_xlim(0, 1)
    ax.set_xlabel("hit rate, by tokens")


def _waits(ax: Axes, part: Table, names: list[str]) -> None:
    """The median, filled, and the 95th percentile, hollow."""
    values = []
    for quantity in ("first_token_p50_s", "first_token_p95_s"):
        for row in _rows(part, quantity):
            _, colour, marker = style.method_style(str(row["method"]))
            y = names.index(row["variant"])
            face = "white" if quantity.endswith("p95_s") else colour
            style.interval(ax, row["measured"], y, row["low"], row["high"], colour)
            ax.plot(
                row["measured"],
                y,
                marker,
                color=colour,
                mfc=face,
                ms=style.marker_size(marker),
                mew=0.9,
                zorder=4,
            )
            values.append(row["measured"])
    style.name_rows(ax, [""] * len(names))
    log_axis(ax, values)
    ax.set_xlabel("first token (s): p50, p95 hollow")


def _reuse(ax: Axes, part: Table) -> None:
    ax.grid(axis="both")
    missed, hits = ({r["variant"]: r for r in _rows(part, end)} for end in ENDS)
    for name, row in missed.items():
        _, colour, marker = style.method_style(str(row["method"]))
        waits = [(row["measured"] + n * hits[name]["measured"]) / (n + 1) for n in REUSES]
        ax.plot(
            range(len(REUSES)),
            waits,
            color=colour,
            marker=marker,
            ms=style.marker_size(marker),
            mew=0,
        )
    for row in _rows(part, "first_token_p50_s"):
        if row["method"] == "naive":
            ax.axhline(row["measured"], color=style.INK, lw=0.9, ls=(0, (3, 2)))
    ax.set_xticks(range(len(REUSES)), [str(n) for n in REUSES])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("times asked about again")
    ax.set_ylabel("mean first token (s)")
