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

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ragauge.config.reads import Reads
from ragauge.report.figures import Axes, Figure, style
from ragauge.report.figures.axis import log_axis
from ragauge.results import timing
from ragauge.results.cells import Cell, CellSource, Measure, Table, frame, join, mean
from ragauge.results.provenance import SERVER, place
from ragauge.results.reuse import Seconds, break_even_questions
from ragauge.results.runs import Runs

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


def _file(runs: Runs, measured: Mapping[str, Any]) -> Iterator[Cell]:
    protocol = measured.get("protocol") or {}
    more = {key: protocol.get(key, "") for key in ("store", "store_gb", "exponent")}
    more |= {"store": SERVER, "store_gb": ""} if protocol.get("device") == SERVER else {}
    streams = {str(stream["variant"]): stream for stream in measured.get("streams") or ()}
    plain = (
        stream
        for name, stream in streams.items()
        if runs.named(measured["model"], name).method == "naive"
    )
    naive_s = _first(next(plain, {}), "p50").value
    for name, stream in streams.items():
        keys = timing.keys(runs, measured, name) | more
        note = join(_described(measured), stream.get("busy") or "")
        yield from (Cell(keys, quantity, m) for quantity, m in _stream(runs, stream, naive_s, note))
    for cell in timing.unsupported(runs, measured, "first_token_p50_s"):
        yield replace(cell, keys={**cell.keys, **more})


def _stream(
    runs: Runs, stream: Mapping[str, Any], naive_s: float | None, note: str
) -> Iterator[tuple[str, Measure]]:
    failures = timing.failures(stream.get("failed", 0), len(stream.get("requests", ())))
    if not stream.get("summary"):
        yield (
            "first_token_p50_s",
            Measure(reason=f"refused: {stream['refused']}" if stream["refused"] else failures),
        )
        return
    note = join(note, failures)
    for percentile in ("p50", "p95"):
        yield (
            f"first_token_{percentile}_s",
            replace(_first(stream, percentile), reason="", note=note),
        )
    n = stream["summary"]["requests"]
    rate = stream["summary"]["questions_per_s"]
    yield "questions_per_s", Measure(rate, n=n, note=note, source=CellSource.LATENCY)
    shares = [row["found"] for row in stream["requests"] if row["found"] is not None]
    yield (
        "hit_rate",
        mean(shares, runs.seed, nothing="nothing is stored, or the server does not say"),
    )
    if shares and all(stream[end] for end in ENDS):
        n = stream.get("probes", 2)  # older files do not state it
        of_probes = Measure(n=n, note=f"of {style.counted(n, 'probe')}", source=CellSource.LATENCY)
        yield from ((end, replace(of_probes, value=stream[end])) for end in ENDS)
        yield "break_even_reuses", _break_even(stream, naive_s, of_probes)


def _first(stream: Mapping[str, Any], percentile: str) -> Measure:
    summary = stream.get("summary") or {}
    seconds = summary.get("first_token_s", {}).get(percentile)
    if not seconds:
        return Measure(reason="not measured")
    return Measure(
        seconds["value"],
        seconds["low"],
        seconds["high"],
        summary["requests"],
        source=CellSource.LATENCY,
    )


def _break_even(stream: Mapping[str, Any], naive_s: float | None, of_probes: Measure) -> Measure:
    """How often a request's documents must be asked about again; the first time they are prepared."""
    if naive_s is None:
        return Measure(reason="the plain prompt was not measured")
    missed, again = (float(stream[end]) for end in ENDS)
    questions = break_even_questions(Seconds(missed - again, 0.0, 0.0, again), naive_s)
    if questions is None:
        return Measure(
            reason="never: with everything found the first token takes as long as the plain prompt's"
        )
    return replace(of_probes, value=float(questions - 1))


def _described(measured: Mapping[str, Any]) -> str:
    protocol = measured.get("protocol") or {}
    store = f"store of {protocol.get('store_gb', '?')} GB on {protocol.get('store', '?')}, {protocol.get('dtype', '')}"
    store = (
        f"the server's own cache, {protocol['cache']}"
        if protocol.get("device") == SERVER
        else store
    )
    of_corpus = f"{protocol.get('documents', '?')} documents a request of {protocol.get('corpus_documents', '?')}"
    of_corpus += (
        f", of which {growth:g} a request enter" if (growth := protocol.get("growth")) else ""
    )
    return f"{of_corpus}, {store} on {place(measured)}"


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
