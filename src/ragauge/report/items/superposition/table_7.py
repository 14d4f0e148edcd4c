"""Superposition Prompting, Table 7: measured speedups of naive RAG, attention sort and prompt cache.

What this shows: the median time of naive RAG divided by that of the method in one interleaved run
of the latency protocol, in a column named after the device, and the accuracy of the same methods.
The paper's CUDA speedups are shown for the models that it timed, without a ratio: they come from
another machine.

Limits: Table 5 has the measured speedups of superposition and the rankers.
"""

from itertools import product

from ragauge.config.reads import Reads, every
from ragauge.report.figures import Axis, Dots, Figure
from ragauge.report.items.superposition import _tables
from ragauge.results import timing
from ragauge.results.cells import Table, frame
from ragauge.results.measures import find, quality
from ragauge.results.runs import Runs

KEYS = ("model", "dataset", "method", "variant")
METHODS = ("naive", "attention_sort", "prompt_cache")
COLUMNS = ("accuracy", "cuda_speedup")

READS = Reads(answers=(every(*METHODS),), datasets="single_hop", latency="short")


def table(runs: Runs) -> Table:
    measured = []
    for group, method in product(runs.groups(READS.datasets), METHODS):
        if variants := find(runs, *group, method):
            measured += _tables.cells(runs, variants[0], {"accuracy": quality(runs, variants[0])})
        else:
            measured += _tables.not_run(runs, *group, method, ["accuracy"])
    measured += timing.speedup_cells(
        runs, lambda v: {"method": v.method} if v.method in METHODS else None
    )
    return frame(
        KEYS, _tables.with_published(runs, measured, "superposition_table_7", ("method",), COLUMNS)
    )


def draw(table: Table) -> Figure:
    devices = sorted(q for q in table["quantity"].unique() if q.startswith("measured_speedup"))
    timed = {q: Axis(f"measured speedup ({q.rpartition('_')[2].upper()})", "log") for q in devices}
    return Dots({"accuracy": Axis("accuracy"), **timed})(table)
