"""PipeRAG, Figure 10: RETRO+ and PipeRAG at each interval.

What this shows: a panel an interval, and in it the seconds of a sequence against perplexity over
nprobe: RETRO+ waits for each retrieval, PipeRAG queries one window in advance; `waited_s` is the
idle time. The paired difference of log-likelihood is the cost of a stale query, at the same
interval and nprobe.

Limits: Figure 8 has the frontier of both over all intervals. The paper prints no numbers for its
points.
"""

from dataclasses import replace
from operator import attrgetter

from ragauge.config.reads import Reads
from ragauge.report.figures import Figure, Point
from ragauge.report.items.piperag import _lines
from ragauge.results import sequences
from ragauge.results.cells import Cell, Cells, Measure, Table, noted, row_cells
from ragauge.results.runs import Runs
from ragauge.results.systems import Systems, grouped

SEARCH = attrgetter("interval", "nprobe", "index", "options")
SHOWN = ("retro", "retro_plus", "piperag")

READS = Reads(pipelines=("no_retrieval", *SHOWN))


def table(runs: Runs) -> Table:
    return grouped(runs, _group)


def draw(table: Table) -> Figure:
    """Seconds against perplexity, joined over nprobe, a panel an interval; RETRO is RETRO+ at 64."""
    plot = replace(_lines.FRONTIERS, join="all")
    all_points = plot.points(table.assign(method=table["method"].replace("retro", "retro_plus")))
    # RETRO may have been run under both names
    once = {
        (p.panel, p.line, p.row.keys["interval"], p.row.keys["nprobe"]): p for p in all_points
    }.values()
    points = [_at_interval(point) for point in once]
    return plot.draw(
        sorted(points, key=lambda p: (p.panel.partition("\n")[2], p.row.keys["interval"]))
    )


def _at_interval(point: Point) -> Point:
    """Return the point in the panel of its interval, labelled by nprobe.

    `hide` is no part of the curve over nprobe.
    """
    interval, nprobe = (point.row.keys[name] for name in ("interval", "nprobe"))
    moved = replace(
        point,
        panel=f"m = {interval}\n{point.panel}",
        label=f"n{nprobe}",
        order=point.row.number("nprobe"),
    )
    if nprobe == "hide":
        return replace(moved, curve=f"{point.line}, {nprobe}", label=nprobe)
    return moved


def _group(group: Systems) -> Cells:
    systems = [s for s in group if s.kind in SHOWN]
    shared = sequences.shared_keys(systems)
    for system in systems:
        yield Cell(system.keys, "interval_tokens", Measure(system.interval, n=1))
        yield from sequences.quality(group, system, shared)
        times = {"latency_s": sequences.latency(system), "waited_s": sequences.waited(system)}
        yield from row_cells(system.keys, times)
        alike = [s for s in group if SEARCH(s) == SEARCH(system)]
        # the same search with fresh queries; at 64 tokens that is RETRO itself
        fresh = next((s for s in alike if s.kind in ("retro_plus", "retro")), None)
        if system.kind == "piperag" and fresh:
            stale = sequences.difference(system.scored, fresh.scored)
            stale = noted(stale, f"against {fresh.kind} at the same interval and nprobe")
            speedup = sequences.speedup(fresh, system)
            measures = {"stale_minus_fresh_nats": stale, "speedup_over_fresh": speedup}
            yield from row_cells(system.keys, measures)
