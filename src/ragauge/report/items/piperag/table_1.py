"""PipeRAG, Table 1: performance-driven retrieval (nprobe `hide`), no or one retrieval, and RETRO.

What this shows: perplexity and the median seconds of a generated sequence, their differences from
no retrieval, the ideal overlap of the sequence's own trace, and the nprobe that `hide` (the paper's S3)
chose, at the interval of the lowest perplexity. RETRO has the nprobe whose perplexity is just worse
among those that are slower, as the released script selects it. Where the paper's RETRO was scored
on all labels, its perplexities stand beside the paper's.

Limits: Figures 5 and 6 have other intervals and nprobe. The paper's seconds are of another database
and machine and have no ratio.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from statistics import median

from ragauge.config.reads import Reads
from ragauge.report.figures import Axis, Dots, TableRow, style
from ragauge.report.items.piperag import _lines, _published
from ragauge.results import sequences
from ragauge.results.cells import Cell, Cells, Line, Measure, Table, noted, row_cells
from ragauge.results.pipelines import SequenceKey
from ragauge.results.runs import Runs
from ragauge.results.systems import System, Systems, in_columns, in_groups, plain

AXES = {"perplexity": Axis("perplexity"), "latency_s": Axis("latency of a sequence (s)")}
PublishedKey = tuple[str, str, str]  # the paper's data set, the schedule, the quantity
PERPLEXITIES = ("perplexity", "perplexity_difference")
LARGEST = "the largest nprobe: no RETRO is slower than hide and of a higher perplexity"
OVERHEAD = "latency_over_no_retrieval_percent"

READS = Reads(pipelines=("no_retrieval", "retrieve_once", "retro", "piperag"))


def table(runs: Runs) -> Table:
    # the differences are from no retrieval, in brackets in the paper
    quantities = ("perplexity", "latency_s", "latency_difference_s", "perplexity_difference")
    printed = _published.table_1(quantities)
    values = {_line(cell): cell.published for cell in printed if cell.quantity in PERPLEXITIES}
    cells = in_groups(runs, partial(_group, values))
    compared = {_line(cell) for cell in cells if cell.published is not None}
    rows = {line[:2] for line in compared}
    for cell in (cell for cell in printed if _line(cell) not in compared):
        note = _published.OTHER_MACHINE if _line(cell)[:2] in rows else _published.OTHER
        cells.append(replace(cell, measure=Measure(note=note)))
    # the overhead of nprobe hide in the paper's text, in rows of their own: they are of another model
    for end in ("min", "max"):
        keys = _published.row(f"the paper's text, {end}imum", "piperag", nprobe="hide")
        cells += _published.stated(keys, {OVERHEAD: f"s3_latency_overhead_{end}"}, _published.OTHER)
    return in_columns(cells)


def _row_name(line: Line) -> str:
    is_set = line["method"] == "piperag" and line["interval"]
    interval = f", m = {line['interval']}" if is_set else ""
    index = f", index {line['index'].label}" if line["index"] else ""
    searched = _lines.database(line, ", ") + index
    label = style.method_label(line["method"]) + interval
    return _lines.with_lists(label, TableRow(line, {})) + searched


draw = Dots(AXES, name=_row_name)


def _line(cell: Cell) -> PublishedKey:
    return _published.dataset(cell.keys["dataset"]), cell.keys["method"], cell.quantity


def _group(values: Mapping[PublishedKey, float | None], group: Systems) -> Cells:
    timed = {s.index for s in group if s.timed or s.requested("generate")}
    compared = [
        s
        for s in plain(group)
        if (s.index in timed or not timed)
        and s.kind in READS.pipelines
        and (s.kind != "piperag" or s.hides_search)
    ]
    shared = sequences.shared_keys(compared)
    notes = {s: "" for s in compared if s.kind == "no_retrieval"}
    for index in dict.fromkeys(s.index for s in compared if s.index):
        notes |= _of_index([s for s in compared if s.index == index], shared)
    base = next((s for s in notes if s.kind == "no_retrieval"), None)
    for system, note in notes.items():
        is_alike = sequences.is_scored_alike(system)
        for cell in _row(base, system, shared):
            measure = noted(cell.measure, note) if cell.quantity == "latency_s" else cell.measure
            yield replace(
                cell, measure=measure, published=values.get(_line(cell)) if is_alike else None
            )


def _of_index(systems: Systems, shared: set[SequenceKey]) -> dict[System, str]:
    """Return what the table compares of an index, each with a note on its choice; one retrieval has
    the largest nprobe.
    """
    scores = {s: sequences.perplexity(s, shared).value or math.inf for s in systems}
    seconds = {s: sequences.latency(s).value or 0.0 for s in systems}
    # nprobe rising
    once, retros = ([s for s in systems if s.kind == kind] for kind in ("retrieve_once", "retro"))
    s3 = min((s for s in systems if s.kind == "piperag"), key=scores.__getitem__, default=None)
    worse = [
        s
        for s in retros
        if s3 and scores[s3] < scores[s] < math.inf and seconds[s] > seconds[s3] > 0
    ]
    compared = dict.fromkeys(retros[-1:], LARGEST if s3 and seconds[s3] else "")
    if worse:
        compared = {min(worse, key=scores.__getitem__): ""}
    return dict.fromkeys(once[-1:], "") | compared | ({s3: ""} if s3 else {})


def _row(base: System | None, system: System, shared: set[SequenceKey]) -> Cells:
    measures = {
        "perplexity": sequences.perplexity(system, shared),
        "latency_s": sequences.latency(system),
        "ideal_overlap_s": sequences.ideal_overlap(system),
        "waited_s": sequences.waited(system),
    }
    if base and system is not base:
        seconds = _difference(measures["latency_s"], sequences.latency(base))
        quality = _difference(measures["perplexity"], sequences.perplexity(base, shared))
        measures |= {"latency_difference_s": seconds, "perplexity_difference": quality}
    yield from row_cells(system.keys, measures)
    scanned = system.chosen_nprobes
    if scanned and system.hides_search:
        spread = median(scanned), min(scanned), max(scanned)
        nprobe = Measure(*spread, len(scanned), note="median, least and most of its retrievals")
        yield Cell(system.keys, "nprobe_chosen", nprobe)
    if system.kind != "no_retrieval":
        ratio = Measure(reason="not run: no_retrieval")
        if base:
            ratio = sequences.speedup(system, base)
        value, low, high = (
            None if v is None else 100 * (v - 1) for v in (ratio.value, ratio.low, ratio.high)
        )
        yield Cell(system.keys, OVERHEAD, replace(ratio, value=value, low=low, high=high))


def _difference(measure: Measure, base: Measure) -> Measure:
    if measure.value is None or base.value is None:
        return Measure(reason=measure.reason or base.reason)
    return Measure(measure.value - base.value, n=min(measure.n, base.n))
