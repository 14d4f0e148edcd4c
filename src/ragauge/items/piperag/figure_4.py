"""PipeRAG, Figure 4: the size of the database against perplexity.

Shows the perplexity of each schedule over indexes of the first shards of a database, against the chunks that they hold;
with and without near-duplicates of the evaluation text as lines of their own.

Does not show: the paper's curves, which it only draws; the table has the perplexities of the logs that its repository
ships. Indexes that were filled with drawn vectors have no more text in them and are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ragauge.rendering import panels, pipelines_footer, piperag_panels
from ragauge.results import pipelines
from ragauge.results.cells import Cell, Measure, frame, noted
from ragauge.results.pipelines import KEYS, System
from ragauge.results.publications import read_csv
from ragauge.results.reads import Reads
from ragauge.results.runs import Runs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SIZE = "database_chunks"
KEPT = "near-duplicates kept"
ONE_SIZE = "No system of this run asked databases of two sizes; the table has what there is."
footer = pipelines_footer.footer

READS = Reads(pipelines=pipelines.KINDS)


def table(runs: Runs) -> pd.DataFrame:
    """One line for each (model, data set, system, index, quantity)."""
    groups = pipelines.groups(pipelines.systems(runs)).values()
    return frame(KEYS, [cell for group in groups for cell in _group(runs, group)] + _published())


def draw(table: pd.DataFrame) -> Figure:
    """Perplexity against chunks, a line a system that was run over several sizes."""
    line = piperag_panels.with_interval_and_lists
    points = piperag_panels.plane_points(table, SIZE, "perplexity", line, ("measured",))
    sizes = piperag_panels.by_line(points)
    grown = {name for name, members in sizes.items() if len({p.x for p in members}) > 1}
    shown = [p for p in points if p.line in grown or p.line.replace(f", {KEPT}", "") in grown]
    axis = panels.Axis("chunks in the database", log=True)
    return piperag_panels.draw(shown, axis, piperag_panels.PERPLEXITY, nothing=ONE_SIZE)


def _group(runs: Runs, group: Sequence[System]) -> list[Cell]:
    """The systems over each index that holds nothing but text; what asks none stands beside."""
    searched = [s for s in group if s.index and not s.filled]
    shown = [s for s in group if s.kind in ("no_retrieval", "random")] + searched
    shared = pipelines.shared_keys(shown)
    return [cell for system in shown for cell in _cells(runs, group, system, shared)]


def _cells(runs: Runs, group: Sequence[System], system: System, shared: set[pipelines.Text]) -> list[Cell]:
    keys = system.keys | {"options": _options(runs, system)}
    cells = [replace(cell, keys=keys) for cell in pipelines.quality(runs, group, system, shared)]
    if system.index:
        cells.append(Cell(keys, SIZE, _size(runs, system)))
    return cells


def _options(runs: Runs, system: System) -> str:
    kept = pipelines.index_setting(runs, system.dataset, system.index, "near_duplicates") == "keep"
    return ", ".join(filter(None, (system.options, KEPT if kept else "")))


def _size(runs: Runs, system: System) -> Measure:
    report = pipelines.index_report(runs, system.dataset, system.index)
    if "vectors" not in report:
        return Measure(note="not known: no recall.json of this index")
    shards = pipelines.index_setting(runs, system.dataset, system.index, "shards")
    return noted(Measure(float(report["vectors"]), n=1), f"the first {shards} shards" if shards else "")


def _published() -> list[Cell]:
    """The logs' perplexities at one interval and the index's own nprobe: they differ in the database."""
    return [
        pipelines.logged(row)
        for row in read_csv("piperag_perplexity_from_logs")
        if "_interval_" not in row["log"] and "_nprobe_" not in row["log"]
    ]
