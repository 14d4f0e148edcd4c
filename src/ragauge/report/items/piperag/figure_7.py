"""PipeRAG, Figure 7: projections to 4 and 16 times faster retrieval or inference.

What this shows: the seconds if one part were faster against perplexity, for RETRO and PipeRAG, and
the frontier of each. A projection is a fold over the measured trace: for PipeRAG the longer of
retrieval and generation in each window plus the first retrieval, for RETRO the sum of both.
`latency_as_traced_s` is the same fold with nothing faster, `over_ideal` the measured seconds
divided by it. The errors of the fitted lines that nprobe `hide` relies on are in the table.

Limits: faster parts were not measured. The paper prints no numbers, and its performance model
predicts from profiles.
"""

from dataclasses import replace

from ragauge.config.reads import Reads
from ragauge.report.figures import Figure
from ragauge.report.items.piperag import _lines, _published
from ragauge.results import sequences
from ragauge.results.cells import (
    Cells,
    CellSource,
    Keys,
    Measure,
    Measures,
    Table,
    noted,
    row_cells,
)
from ragauge.results.runs import Runs
from ragauge.results.systems import System, Systems, grouped

FASTER = [(part, times) for part in ("generation", "retrieval") for times in (4, 16)]
PARTS = {"generation": "inference", "retrieval": "retrieval"}
NOTE = "projected, not measured"
SHOWN = ("no_retrieval", "retrieve_once", "retro", "piperag")
DRAWN = ("retro", "piperag")
FITS = {"decode": "decode_fit_error_percent", "neighbours": "neighbours_fit_error_percent"}
STATEMENTS = {  # of its performance model and of ONNX in the text
    "predicted_latency_median_error_percent": "performance_model_median_error",
    "onnx_with_cache_over_torch": "onnx_with_cache_speedup_over_pytorch",
}

READS = Reads(pipelines=SHOWN)


def table(runs: Runs) -> Table:
    keys = _published.row("the paper's text", "piperag")
    note = (
        "not run in an experiment: benchmarks/pipeline.py measures it; published for another model"
    )
    return grouped(runs, _group, _published.stated(keys, STATEMENTS, note))


def draw(table: Table) -> Figure:
    """As in the paper, a column a speedup: above inference so many times faster, below retrieval."""
    projected = replace(_lines.SECONDS, label="projected latency (s)")
    plot = replace(_lines.FRONTIERS, y_axis=projected, kinds=DRAWN)
    points = [
        replace(point, panel=f"{PARTS[part]} {times} times faster\n{point.panel}")
        for part, times in FASTER
        for point in replace(plot, y=_quantity(part, times)).points(table)
    ]
    return plot.draw(sorted(points, key=lambda p: p.panel.partition("\n")[2]))


def _group(group: Systems) -> Cells:
    systems = [s for s in group if s.kind in SHOWN and (s.timed or s.requested("generate"))]
    shared = sequences.shared_keys(systems)
    for system in systems:
        yield from sequences.quality(group, system, shared)
        ideal = sequences.ideal_overlap(system)
        measured = sequences.latency(system)
        over = Measure(reason=ideal.reason)
        # of the same trial's trace: 1 is a perfect overlap
        if ideal.value is not None and measured.value is not None:
            over = Measure(measured.value / ideal.value, n=ideal.n)
        measures = {"latency_as_traced_s": ideal, "over_ideal": over}
        for part, times in FASTER:
            projected = noted(sequences.ideal_overlap(system, **{part: times}), NOTE)
            measures[_quantity(part, times)] = replace(projected, source=CellSource.PROJECTION)
        yield from row_cells(system.keys, measures | _fits(system))


def _quantity(part: str, times: int) -> str:
    return f"latency_{part}_{times}x_s"


def _fits(system: System) -> Measures:
    """The median errors of the fitted lines by which nprobe `hide` was chosen, as recorded."""
    model: Keys = (system.timed.meta.get("performance_model") or {}) if system.timed else {}
    note = "median of |predicted - traced| over the calls it was fitted to"
    return {
        quantity: Measure(100 * float(model[part]["error"]), n=1, note=note)
        for part, quantity in FITS.items()
        if part in model
    }
