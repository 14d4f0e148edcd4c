"""PipeRAG, Figure 8: RETRO+, a RETRO that may ask at any interval, against PipeRAG.

Shows perplexity against the seconds of a sequence for both at every interval and nprobe that was run, with the frontier
of each, and the largest speedup of PipeRAG over a RETRO+ of no lower perplexity: what remains of its gain when the
baseline has flexible intervals too.

Does not show: the paper's points, which it only draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragauge.paper import _piperag, _piperag_claims, _piperag_panels
from ragauge.paper._cells import Cell, frame
from ragauge.paper._piperag import KEYS, System
from ragauge.paper._runs import Runs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SHOWN = ("no_retrieval", "retro_plus", "piperag")


def table(runs: Runs) -> pd.DataFrame:
    """One line for each (model, data set, system, quantity)."""
    groups = _piperag.groups(_piperag.systems(runs)).values()
    return frame(KEYS, [cell for group in groups for cell in _group(runs, group)])


def draw(table: pd.DataFrame) -> Figure:
    """Perplexity against seconds, a frontier a schedule."""
    points = _piperag_panels.plane_points(table, "latency_s", "perplexity", _piperag_panels.method, ("measured",))
    return _piperag_panels.draw(points, _piperag_panels.SECONDS, _piperag_panels.PERPLEXITY, frontiers=True)


def _group(runs: Runs, group: Sequence[System]) -> list[Cell]:
    shown = [s for s in group if s.kind in SHOWN]
    shared = _piperag.shared_keys(shown)
    cells: list[Cell] = []
    for system in shown:
        cells += _piperag.quality(runs, group, system, shared)
        cells.append(Cell(system.keys, "latency_s", _piperag.latency(system)))
    return cells + _piperag_claims.best_speedups(runs, group, "retro_plus", shared)
