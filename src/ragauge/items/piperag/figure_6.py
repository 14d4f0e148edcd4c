"""PipeRAG, Figure 6: perplexity against latency, with the control.

Shows every system that was both scored and timed, and the frontier of each schedule: the systems that no other of its
kind beats in both. Below them are the two claims of the text, over all pairs of a RETRO and a PipeRAG: the largest
speedup at equal or lower perplexity, and the largest gain of perplexity at equal or lower latency; each is the luckiest
of its pairs. `retrieved_minus_random_nats` is the control: retrieved neighbours must beat random ones of the same
database on the same sequences by an interval below zero. Where they do not, a gain over no retrieval is not due to
retrieval.

Does not show: the paper's points, for which it prints no numbers; Table 1 has three of them per data set.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragauge.experiment.reads import Reads
from ragauge.items.piperag import _claims, _lines, _published
from ragauge.rendering import Figure, lines
from ragauge.results import Cell, Runs, Table, sequences
from ragauge.results.systems import KINDS, System, grouped

READS = Reads(pipelines=KINDS)


def table(runs: Runs) -> Table:
    """One line for each (model, data set, system, quantity), then the claims of the text."""
    return grouped(runs, _group, _published.table_1() + _claims.printed())


def draw(table: Table) -> Figure:
    """Perplexity against seconds, one frontier per schedule."""
    found = _lines.points(table, "latency_s", "perplexity", _lines.schedule, ("measured", "published"))
    return lines.multiples(found, _lines.SECONDS, _lines.PERPLEXITY, join="best")


def _group(runs: Runs, group: Sequence[System]) -> list[Cell]:
    shared = sequences.shared_keys(group)
    cells: list[Cell] = []
    for system in group:
        cells += sequences.quality(runs, group, system, shared)
        if system.kind != "random":
            cells.append(Cell(system.keys, "latency_s", sequences.latency(system)))
        cells += sequences.control(runs, group, system)
    cells += _claims.best_speedups(runs, group, "retro", shared)
    return cells + _claims.best_gains(runs, group, shared)
