"""PipeRAG, Table 1: performance-driven retrieval (S3) beside no retrieval, one retrieval and RETRO.

Shows perplexity and the median seconds of a generated sequence, how many times those of no retrieval they are, the
ideal overlap of the sequence's own trace, and the lists that S3 chose. RETRO is the one of most lists. A share of time
over no retrieval stands beside the paper's.

Does not show: other intervals and nprobe (Figures 5 and 6). The paper's seconds are of another model, database and
machine and have no ratio.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from ragauge.cost import overlap
from ragauge.rendering import panels, pipelines_footer
from ragauge.results import pipelines
from ragauge.results.cells import Cell, Measure, frame, noted
from ragauge.results.pipelines import KEYS, System
from ragauge.results.reads import Reads
from ragauge.results.runs import Runs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

AXES = {"perplexity": panels.Axis("perplexity"), "latency_s": panels.Axis("latency of a sequence (s)")}
OVERHEAD = "latency_over_no_retrieval_percent"
footer = pipelines_footer.footer

READS = Reads(pipelines=("no_retrieval", "retrieve_once", "retro", "piperag"))


def table(runs: Runs) -> pd.DataFrame:
    """One line for each (model, data set, system, quantity)."""
    groups = pipelines.groups(pipelines.systems(runs)).values()
    return frame(KEYS, [cell for group in groups for cell in _group(runs, group)] + pipelines.published_table())


def draw(table: pd.DataFrame) -> Figure:
    """Perplexity and latency as points with intervals."""
    shown = _by_index(table)
    names = [_row_name(line) for line in shown.to_dict("records")]
    return panels.dots(shown, shown["method"], AXES, names)


def _by_index(table: pd.DataFrame) -> pd.DataFrame:
    """The lines with a filled index in the name of their data set; what asks no index stands beside each."""
    import pandas as pd

    parts = []
    for _, group in table.groupby(["model", "dataset"], sort=False):
        asked, bare = group[group["index"] != ""], group[group["index"] == ""]
        names = [
            f"{d} · index {i}" if "filled" in i else d for d, i in zip(asked["dataset"], asked["index"], strict=True)
        ]
        for name, part in asked.assign(dataset=names).groupby("dataset", sort=False):
            parts.append(pd.concat([bare.assign(dataset=str(name)), part]))
        if asked.empty:
            parts.append(group)
    return pd.concat(parts) if parts else table


def _row_name(line: Mapping[Any, Any]) -> str:
    lists = line["nprobe"] if line["nprobe"] == pipelines.HIDE else f"nprobe {line['nprobe']}" if line["nprobe"] else ""
    interval = f"m = {line['interval']}" if line["method"] == "piperag" and line["interval"] else ""
    return ", ".join(filter(None, (panels.method_label(line["method"]), interval, lists)))


def _group(runs: Runs, group: Sequence[System]) -> list[Cell]:
    timed = {s.index for s in group if s.timed is not None or any(p.task == "generate" for p in s.asked)}
    plain = [s for s in group if not s.options and (s.index in timed or not timed)]
    chosen = [s for s in plain if s.kind in ("no_retrieval", "retrieve_once")]
    chosen += _most_lists([s for s in plain if s.kind == "retro"])
    chosen += [s for s in plain if s.kind == "piperag" and s.nprobe == pipelines.HIDE]
    base = next((s for s in chosen if s.kind == "no_retrieval"), None)
    shared = pipelines.shared_keys(chosen)
    return [cell for system in chosen for cell in _row(runs, base, system, shared)]


def _most_lists(retro: Sequence[System]) -> list[System]:
    """For each index the one that scans most lists."""
    ranked = sorted(retro, key=lambda s: int(s.nprobe) if s.nprobe.isdigit() else 0)
    return list({s.index: s for s in ranked}.values())


def _row(runs: Runs, base: System | None, system: System, shared: set[pipelines.Text]) -> list[Cell]:
    measures = {
        "perplexity": pipelines.perplexity(runs, system, shared),
        "latency_s": pipelines.latency(system),
        "ideal_overlap_s": pipelines.folded(system, overlap.ideal_s),
        "waited_s": pipelines.folded(system, overlap.waited_s),
    }
    cells = [Cell(system.keys, quantity, measure) for quantity, measure in measures.items()]
    scanned = pipelines.nprobes(system)
    if scanned and system.nprobe == pipelines.HIDE:
        low, high = float(min(scanned)), float(max(scanned))
        note = "median, least and most of its retrievals"
        cells.append(Cell(system.keys, "nprobe_chosen", Measure(median(scanned), low, high, len(scanned), note=note)))
    if system.kind == "no_retrieval":
        return cells
    return [*cells, _overhead(runs, base, system)]


def _overhead(runs: Runs, base: System | None, system: System) -> Cell:
    """Per cent of time over no retrieval; beside S3's the larger of the two that the paper's text names."""
    ratio = pipelines.speedup(runs, system, base) if base is not None else Measure(note="not run: no_retrieval")
    s3 = system.nprobe == pipelines.HIDE
    printed = pipelines.statement("s3_latency_overhead_max") if s3 else None
    note = f"the paper's text: {pipelines.statement('s3_latency_overhead_min'):g} to {printed:g} per cent" if s3 else ""
    value, low, high = (None if v is None else 100 * (v - 1) for v in (ratio.value, ratio.low, ratio.high))
    return Cell(system.keys, OVERHEAD, noted(Measure(value, low, high, ratio.n, note=ratio.note), note), printed)
