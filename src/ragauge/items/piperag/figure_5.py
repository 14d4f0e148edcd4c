"""PipeRAG, Figure 5: nprobe and retrieval interval against perplexity.

Shows the perplexity of RETRO, RETRO+ and PipeRAG against the inverted lists that a search scans, a line an interval.
S3 has no nprobe of its own and is not drawn.

Does not show: latency (Figure 6). The paper only draws its curves; the shaded panels are of the logs that its
repository ships, at 512 tokens, where nprobe was varied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragauge.rendering import panels, pipelines_footer, piperag_panels
from ragauge.results import pipelines
from ragauge.results.cells import Cell, Measure, frame
from ragauge.results.pipelines import KEYS, System
from ragauge.results.publications import read_csv
from ragauge.results.reads import Reads
from ragauge.results.runs import Runs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LISTS = "nprobe_lists"
KINDS = ("retro", "retro_plus", "piperag")
footer = pipelines_footer.footer

READS = Reads(pipelines=("no_retrieval", *KINDS))


def table(runs: Runs) -> pd.DataFrame:
    """One line for each (model, data set, system, interval, nprobe, quantity)."""
    groups = pipelines.groups(pipelines.systems(runs)).values()
    return frame(KEYS, [cell for group in groups for cell in _group(runs, group)] + _published())


def draw(table: pd.DataFrame) -> Figure:
    """Perplexity against nprobe on a base-2 scale."""
    points = piperag_panels.plane_points(table, LISTS, "perplexity", _line(table), ("measured", "published"))
    return piperag_panels.draw(points, panels.Axis("nprobe (lists scanned)", base2=True), piperag_panels.PERPLEXITY)


def _line(table: pd.DataFrame) -> Callable[[Mapping[str, Any]], str]:
    """The text of a row's line, with the index where several were searched."""
    indexes = set(table[table["measured"].notna()]["index"]) - {""}

    def text(row: Mapping[str, Any]) -> str:
        several = row["model"] != pipelines.PAPER and len(indexes) > 1
        return piperag_panels.with_interval(row) + (f", index {row['index']}" if several else "")

    return text


def _swept(group: Sequence[System]) -> list[System]:
    """What was scored, or is to be, over the indexes on which nprobe was varied; over all where it was on none."""
    fixed = [s for s in group if s.kind in KINDS and s.nprobe.isdigit() and not s.filled]
    scored = [s for s in fixed if s.scored is not None or any(p.task == "perplexity" for p in s.asked)]
    lists: dict[str, set[str]] = {}
    for system in scored:
        lists.setdefault(system.index, set()).add(system.nprobe)
    varied = {index for index, found in lists.items() if len(found) > 1} or set(lists)
    return [s for s in scored if s.index in varied]


def _group(runs: Runs, group: Sequence[System]) -> list[Cell]:
    swept = _swept(group)
    shared = pipelines.shared_keys(swept)
    cells: list[Cell] = []
    for system in swept:
        cells += pipelines.quality(runs, group, system, shared)
        cells.append(Cell(system.keys, LISTS, Measure(float(system.nprobe), n=1)))
    return cells


def _published() -> list[Cell]:
    swept = [
        pipelines.logged(row)
        for row in read_csv("piperag_perplexity_from_logs")
        if "_interval_" in row["log"] or "_nprobe_" in row["log"]
    ]
    lists = [Cell(c.keys, LISTS, Measure(), float(c.keys["nprobe"])) for c in swept if c.keys["nprobe"]]
    return swept + lists
