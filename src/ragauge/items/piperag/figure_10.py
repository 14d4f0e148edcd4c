"""PipeRAG, Figure 10: RETRO+ and PipeRAG at each interval.

What this shows: the seconds of a sequence at each interval, at the same nprobe: RETRO+ waits for each retrieval,
PipeRAG queries one window in advance; `waited_s` is the idle time. The paired difference of log-likelihood is the cost
of a stale query.

Limits: Figure 8 has the frontier of both. The paper prints no numbers for its points.
"""

from collections.abc import Iterator, Sequence

from ragauge.config.reads import Reads
from ragauge.items.piperag import _lines
from ragauge.rendering import Axis, Figure, lines
from ragauge.results import Cell, Measure, Runs, Table, noted, sequences
from ragauge.results.systems import System, grouped

SHOWN = ("retro", "retro_plus", "piperag")
STALE = "stale_minus_fresh_nats"

READS = Reads(pipelines=SHOWN)


def table(runs: Runs) -> Table:
    """One line for each (model, data set, system, interval, quantity)."""
    return grouped(runs, _group)


def draw(table: Table) -> Figure:
    """Seconds against the interval on a base-2 scale, a line a schedule and nprobe; RETRO is RETRO+ at 64."""
    axes = "interval_tokens", Axis("interval m (tokens)", "base2"), "latency_s", _lines.SECONDS
    plot = _lines.SystemLines(*axes, lambda row: _lines.with_lists(_lines.schedule(row), row))
    points = plot.points(table.assign(method=table["method"].replace("retro", "retro_plus")))
    several = lines.swept(points)
    return plot.draw([p for p in points if p.line in several] or points)


def _group(runs: Runs, group: Sequence[System]) -> Iterator[Cell]:
    for system in (s for s in group if s.kind in SHOWN):
        yield Cell(system.keys, "interval_tokens", Measure(float(system.interval), n=1))
        yield Cell(system.keys, "latency_s", sequences.latency(system))
        yield Cell(system.keys, "waited_s", sequences.waited(system))
        same = (system.interval, system.nprobe, system.index, system.options)
        alike = [s for s in group if (s.interval, s.nprobe, s.index, s.options) == same]
        # the same search with fresh queries; at 64 tokens that is RETRO itself
        fresh = next((s for s in alike if s.kind in ("retro_plus", "retro")), None)
        if system.kind == "piperag" and fresh is not None:
            measure = sequences.difference(runs, system.scored, fresh.scored)
            yield Cell(system.keys, STALE, noted(measure, f"against {fresh.kind} at the same interval and nprobe"))
            yield Cell(system.keys, "speedup_over_fresh", sequences.speedup(runs, fresh, system))
