"""PipeRAG, Figure 8: RETRO+, a RETRO that may ask at any interval, against PipeRAG.

Shows perplexity against the seconds of a sequence for both at every interval and nprobe that was run, with the frontier
of each, and the largest speedup of PipeRAG over a RETRO+ of no lower perplexity: what remains of its gain when the
baseline has flexible intervals too.

Does not show: the paper's points, for which it prints no numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragauge.items.piperag import _claims
from ragauge.rendering import pipelines_footer, piperag_panels
from ragauge.rendering.style import Figure
from ragauge.results import sequences
from ragauge.results.cells import Cell, Table
from ragauge.results.reads import Reads
from ragauge.results.runs import Runs
from ragauge.results.systems import System, grouped

SHOWN = ("no_retrieval", "retro_plus", "piperag")
footer = pipelines_footer.footer

READS = Reads(pipelines=SHOWN)


def table(runs: Runs) -> Table:
    """One line for each (model, data set, system, quantity)."""
    return grouped(runs, _group)


def draw(table: Table) -> Figure:
    """Perplexity against seconds, one frontier per schedule."""
    points = piperag_panels.plane_points(table, "latency_s", "perplexity", piperag_panels.method, ("measured",))
    return piperag_panels.draw(points, piperag_panels.SECONDS, piperag_panels.PERPLEXITY, frontiers=True)


def _group(runs: Runs, group: Sequence[System]) -> list[Cell]:
    shown = [s for s in group if s.kind in SHOWN]
    shared = sequences.shared_keys(shown)
    cells: list[Cell] = []
    for system in shown:
        cells += sequences.quality(runs, group, system, shared)
        cells.append(Cell(system.keys, "latency_s", sequences.latency(system)))
    return cells + _claims.best_speedups(runs, group, "retro_plus", shared)
