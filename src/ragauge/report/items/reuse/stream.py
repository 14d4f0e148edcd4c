"""A stream of questions with recurring documents, answered with a store of prepared documents.

What this shows: for each method on the same requests (`ragauge stream`: documents drawn from a
corpus by Zipf's law, a store of a given size that drops the least recently used; or the cache of a
server), the hit rate as the share of the documents' tokens found (of the prompt's, on a server);
the median and 95th percentile of the time to first token, with intervals of a block bootstrap;
questions answered a second; the bytes in the store after the last request; and how often the
documents of a request must recur until their preparation has paid against the plain prompt. Reading
from disk is timed with a cold cache. The curve is the mean first token of a request over the number
of recurrences, with nothing stored at first and everything afterwards.

Limits: no quality, since documents are drawn and not retrieved, and no price of the store. A method
whose documents depend on each other, by position or context, finds them again only together.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from ragauge.config.reads import Reads
from ragauge.report.figures import Axis, Figure, Panel, Point, lines, style
from ragauge.results import timing
from ragauge.results.cells import Cells, CellSource, Measure, Table, frame, join, mean, row_cells
from ragauge.results.provenance import place
from ragauge.results.reuse import Seconds, break_even_questions
from ragauge.results.runs import Runs
from ragauge.results.stats import SHARE, pooled
from ragauge.results.times import SERVER, Stream, StreamTimes, remarks

KEYS = ("model", "dataset", "method", "variant", "store", "store_gb", "exponent")
NEVER = "never: with everything found the first token takes as long as the plain prompt's"
REUSES = (0, 1, 2, 4, 8, 16, 32)
WAITS = {"first_token_p50_s": False, "first_token_p95_s": True}  # quantity -> drawn hollow
HIT_RATE = Axis("hit rate, by tokens", from_zero=True)
FIRST_TOKEN = Axis("first token (s): p50, p95 hollow", "log")
AGAIN = Axis("times asked about again")
MEAN = Axis("mean first token (s)", from_zero=True)

READS = Reads(stream="any")


def table(runs: Runs) -> Table:
    return frame(KEYS, _cells(runs))


def draw(table: Table) -> Figure:
    groups = table.groupby(["model", "dataset"], sort=False)
    panels = [panel for key, part in groups for panel in _panels(" · ".join(map(str, key)), part)]
    nothing = "Nothing to draw yet: no model was asked a stream of questions."
    return lines.draw(panels, columns=2, height_in=2.5, nothing=nothing)


def _cells(runs: Runs) -> Cells:
    for times in runs.streams:
        protocol = times.protocol
        more = {
            "store": protocol.store,
            "store_gb": protocol.store_gb,
            "exponent": protocol.exponent,
        }
        if protocol.is_served:
            more |= {"store": SERVER, "store_gb": ""}
        plain = [s for s in times.streams if runs.named(times.model, s.variant).method == "naive"]
        first = plain[0].summary.first_token_s if plain else None
        naive_s = first.p50.value if first else None
        for stream in times.streams:
            keys = timing.keys(runs, times, stream.variant) | more
            note = join(_described(times), stream.busy or "")
            yield from row_cells(keys, dict(_stream(runs, stream, naive_s, note)))
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
    measured = partial(
        Measure, note=join(note, failures, *remarks(stream.requests)), source=CellSource.LATENCY
    )
    n = summary.requests
    for name in ("p50", "p95"):
        first = getattr(summary.first_token_s, name)
        yield f"first_token_{name}_s", measured(first.value, first.low, first.high, n)
    yield "questions_per_s", measured(summary.questions_per_s, n=n)
    known = [request for request in stream.requests if request.found is not None]
    shares = pooled(*zip(*((r.found, r.found_of) for r in known), strict=True)) if known else []
    nothing = "nothing is stored, or the server does not say"
    yield "hit_rate", mean(shares, runs.seed, nothing=nothing, limits=SHARE)
    if shares and stream.stored_bytes:
        yield "stored_bytes", measured(stream.stored_bytes)
    if shares and stream.missed_s and stream.found_s:
        note = f"of {style.counted(stream.probes, 'probe')}"
        probed = partial(Measure, n=stream.probes, note=note, source=CellSource.LATENCY)
        yield "missed_s", probed(stream.missed_s)
        yield "found_s", probed(stream.found_s)
        reuses = _break_even(stream.missed_s, stream.found_s, naive_s)
        yield "break_even_reuses", reuses if reuses.reason else probed(reuses.value)


def _break_even(missed_s: float, found_s: float, naive_s: float | None) -> Measure:
    """Count the repeat requests that pay for preparing a request's documents the first time."""
    if naive_s is None:
        return Measure(reason="the plain prompt was not measured")
    questions = break_even_questions(Seconds(missed_s - found_s, 0.0, 0.0, found_s), naive_s)
    if questions is None:
        return Measure(reason=NEVER)
    return Measure(questions - 1)


def _described(times: StreamTimes) -> str:
    protocol = times.protocol
    store = f"store of {protocol.store_gb} GB on {protocol.store}, {protocol.dtype}"
    if protocol.is_served:
        store = f"the server's own cache, {protocol.cache}"
    corpus = f"{protocol.documents} documents a request of {protocol.corpus_documents}"
    if protocol.growth:
        corpus += f", of which {protocol.growth:g} a request enter"
    return f"{corpus}, {store} on {place(times)}"


def _panels(title: str, part: Table) -> list[Panel]:
    """The wait at each variant's hit rate, and the mean wait over the times of asking again."""
    waits = list[Point]()
    means = list[Point]()
    for row in lines.rows(part):
        name = lines.variant(row).replace("_", " ")
        point = Point(title, name, 0.0, 0.0, look=row.keys["method"])
        share = row.number("hit_rate")
        at = replace(point, x=share if math.isfinite(share) else 0.0, row=row)
        waits += [
            replace(at, y=row.number(name), y_interval=row.interval(name), hollow=hollow)
            for name, hollow in WAITS.items()
        ]
        is_naive = row.keys["method"] == "naive"
        missed_s, found_s = (
            row.number("first_token_p50_s" if is_naive else end) for end in ("missed_s", "found_s")
        )
        means += [replace(point, x=n, y=(missed_s + n * found_s) / (n + 1)) for n in REUSES]
    return [
        Panel(title, HIT_RATE, FIRST_TOKEN, _finite(waits)),
        Panel("", AGAIN, MEAN, _finite(means)),
    ]


def _finite(points: Iterable[Point]) -> list[Point]:
    return [point for point in points if math.isfinite(point.y)]
