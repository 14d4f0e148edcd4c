"""Superposition Prompting, Table 7: measured speedups of naive RAG, attention sort and prompt cache.

What this shows: the median time of naive RAG divided by that of the method in one interleaved run
of the latency protocol, in columns named after the device, and the accuracy of the same methods.
`documents_speedup` compares them where each document was read before the question, `set_speedup`
where this list was; `measured_speedup` is the paper's comparison of two states: the method has read
what it can, naive RAG nothing. `preparation_s` and `preparation_bytes` are of that reading.
The paper's CUDA speedups are shown for the models that it timed, without a ratio: they come from
another machine.

Limits: Table 5 has the measured speedups of superposition and the rankers.
"""

from itertools import product

from ragauge.config.reads import Reads, every
from ragauge.report.figures import Axis, Dots, Figure
from ragauge.report.items.superposition import _tables
from ragauge.results import timing
from ragauge.results.cells import Cell, Table
from ragauge.results.measures import quality
from ragauge.results.runs import Runs
from ragauge.results.times import STATE_WORDS

KEYS = ("model", "dataset", "method", "variant")
METHODS = ("naive", "attention_sort", "prompt_cache")
COLUMNS = ("accuracy", "cuda_speedup")

READS = Reads(answers=(every(*METHODS),), datasets="single_hop", latency="short")


def table(runs: Runs) -> Table:
    measured = list[Cell]()
    for group, method in product(runs.groups(READS.datasets), METHODS):
        if variants := group.find(method):
            measured += _tables.cells(variants[0], {"accuracy": quality(variants[0])})
        else:
            measured += _tables.not_run(group, method, ["accuracy"])
    measured += timing.speedup_cells(
        runs, lambda v: {"method": v.method} if v.method in METHODS else None
    )
    return _tables.with_published(
        runs, measured, "superposition_table_7", KEYS, ("method",), COLUMNS
    )


def draw(table: Table) -> Figure:
    """The accuracy, and on each device the speedups in the default state and as in the paper."""
    words = {"documents_speedup": STATE_WORDS["documents"], timing.TIMED: "as in the paper"}
    axes = {"accuracy": Axis("accuracy")}
    for quantity in sorted(set(table["quantity"])):
        kind, _, device = quantity.rpartition("_")
        if kind in words:
            axes[quantity] = Axis(f"speedup ({device.upper()})\n{words[kind]}", "log")
    return Dots(axes)(table)
