"""PipeRAG, Figure 10: RETRO+ and PipeRAG interval by interval.

Shows the seconds of a sequence at each interval, at the same nprobe: RETRO+ waits for each retrieval, PipeRAG asks one
window ahead; `waited_s` is the time either stood still. Their paired difference of log-likelihood is the cost of a
stale query.

Does not show: the frontier of both (Figure 8), nor the paper's points, for which it prints no numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragauge.rendering import panels, pipelines_footer, piperag_panels
from ragauge.rendering.style import Figure
from ragauge.results import sequences
from ragauge.results.cells import Cell, Measure, Table, noted
from ragauge.results.reads import Reads
from ragauge.results.runs import Runs
from ragauge.results.systems import System, grouped

SHOWN = ("retro", "retro_plus", "piperag")
STALE = "stale_minus_fresh_nats"
footer = pipelines_footer.footer

READS = Reads(pipelines=SHOWN)


def table(runs: Runs) -> Table:
    """One line for each (model, data set, system, interval, quantity)."""
    return grouped(runs, _group)


def draw(table: Table) -> Figure:
    """Seconds against the interval on a base-2 scale, one line per schedule and nprobe."""
    points = piperag_panels.plane_points(table, "interval_tokens", "latency_s", _line, ("measured",))
    alike = [replace(p, kind="retro_plus") if p.kind == "retro" else p for p in points]
    swept = piperag_panels.swept(alike)
    shown = [p for p in alike if p.line in swept] or alike
    return piperag_panels.draw(shown, panels.Axis("interval m (tokens)", base2=True), piperag_panels.SECONDS)


def _line(row: Mapping[str, Any]) -> str:
    """At 64 tokens RETRO+ is RETRO itself."""
    row = {**row, "method": "retro_plus"} if row["method"] == "retro" else row
    return ", ".join(filter(None, (piperag_panels.method(row), piperag_panels.lists(row))))


def _group(runs: Runs, group: Sequence[System]) -> Iterator[Cell]:
    for system in (s for s in group if s.kind in SHOWN):
        yield Cell(system.keys, "interval_tokens", Measure(float(system.interval), n=1))
        yield Cell(system.keys, "latency_s", sequences.latency(system))
        yield Cell(system.keys, "waited_s", sequences.waited(system))
        fresh = _fresh(group, system)
        if system.kind == "piperag" and fresh is not None:
            measure = sequences.difference(runs, system.scored, fresh.scored)
            yield Cell(system.keys, STALE, noted(measure, f"against {fresh.kind} at the same interval and nprobe"))
            yield Cell(system.keys, "speedup_over_fresh", sequences.speedup(runs, fresh, system))


def _fresh(group: Sequence[System], system: System) -> System | None:
    """The same search with fresh queries; at 64 tokens that is RETRO itself."""
    same = (system.interval, system.nprobe, system.index, system.options)
    alike = [s for s in group if (s.interval, s.nprobe, s.index, s.options) == same]
    return next((s for s in alike if s.kind in ("retro_plus", "retro")), None)
