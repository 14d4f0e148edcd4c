"""PipeRAG, Table 1: performance-driven retrieval (S3), no retrieval, one retrieval and RETRO.

What this shows: perplexity and the median seconds of a generated sequence, their ratio to those of no retrieval, the
ideal overlap of the sequence's own trace, and the nprobe that S3 chose. RETRO is the one with the largest nprobe. The
overhead over no retrieval in per cent has the paper's in a row of its own.

Limits: Figures 5 and 6 have other intervals and nprobe. The paper's seconds are of another model, database and machine
and have no ratio.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from ragauge.config.reads import Reads
from ragauge.items.piperag import _lines, _published
from ragauge.rendering import Axis, Dots, Figure, Row, style
from ragauge.results import Cell, Measure, Runs, Table, sequences
from ragauge.results.pipelines import Text
from ragauge.results.systems import S3, System, grouped, plain

AXES = {"perplexity": Axis("perplexity"), "latency_s": Axis("latency of a sequence (s)")}
OVERHEAD = "latency_over_no_retrieval_percent"

READS = Reads(pipelines=("no_retrieval", "retrieve_once", "retro", "piperag"))


def table(runs: Runs) -> Table:
    """One line for each (model, data set, system, quantity)."""
    note, printed = Measure(note=_published.OTHER), _published.table_1()
    for end in ("min", "max"):  # S3's overhead in the paper's text, in rows of their own: they are of another model
        keys = _published.row(f"the paper's text, {end}imum", "piperag", nprobe=S3)
        printed.append(Cell(keys, OVERHEAD, note, _published.statement(f"s3_latency_overhead_{end}")))
    return grouped(runs, _group, printed)


def draw(table: Table) -> Figure:
    import pandas as pd

    parts = []  # with a filled index in the name of the data set; what asks no index is repeated next to each
    for _, group in table.groupby(["model", "dataset"], sort=False):
        indexed, others = group[group["index"] != ""], group[group["index"] == ""]
        pairs = zip(indexed["dataset"], indexed["index"], strict=True)
        names = [f"{dataset} · index {index}" if index.filled else dataset for dataset, index in pairs]
        for name, part in indexed.assign(dataset=names).groupby("dataset", sort=False):
            parts.append(pd.concat([others.assign(dataset=str(name)), part]))
        if indexed.empty:
            parts.append(group)
    return Dots(AXES, name=_row_name)(pd.concat(parts) if parts else table)


def _row_name(line: Mapping[Any, Any]) -> str:
    interval = f", m = {line['interval']}" if line["method"] == "piperag" and line["interval"] else ""
    return _lines.with_lists(style.method_label(line["method"]) + interval, Row(line, {}))


def _group(runs: Runs, group: Sequence[System]) -> list[Cell]:
    timed = {s.index for s in group if s.timed is not None or s.requested("generate")}
    compared = [s for s in plain(group) if s.index in timed or not timed]
    chosen = [s for s in compared if s.kind in ("no_retrieval", "retrieve_once")]
    largest = sorted((s for s in compared if s.kind == "retro"), key=lambda s: s.fixed_nprobe or 0)
    chosen += {s.index: s for s in largest}.values()  # of each index the one with the largest nprobe
    chosen += [s for s in compared if s.kind == "piperag" and s.chooses_nprobe]
    base = next((s for s in chosen if s.kind == "no_retrieval"), None)
    shared = sequences.shared_keys(chosen)
    return [cell for system in chosen for cell in _row(runs, base, system, shared)]


def _row(runs: Runs, base: System | None, system: System, shared: set[Text]) -> list[Cell]:
    measures = {
        "perplexity": sequences.perplexity(runs, system, shared),
        "latency_s": sequences.latency(system),
        "ideal_overlap_s": sequences.ideal_overlap(system),
        "waited_s": sequences.waited(system),
    }
    cells = [Cell(system.keys, quantity, measure) for quantity, measure in measures.items()]
    scanned = system.chosen_nprobes
    if scanned and system.chooses_nprobe:
        spread = median(scanned), float(min(scanned)), float(max(scanned))
        chosen = Measure(*spread, len(scanned), note="median, least and most of its retrievals")
        cells.append(Cell(system.keys, "nprobe_chosen", chosen))
    if system.kind != "no_retrieval":
        ratio = sequences.speedup(runs, system, base) if base is not None else Measure(reason="not run: no_retrieval")
        value, low, high = (None if v is None else 100 * (v - 1) for v in (ratio.value, ratio.low, ratio.high))
        cells.append(Cell(system.keys, OVERHEAD, replace(ratio, value=value, low=low, high=high)))
    return cells
