"""Superposition Prompting, Figure 1: theoretical speedup (log scale) against accuracy.

Shows each method as a line over its top_k, or a point where it has none, with bootstrap 95% intervals of the accuracy;
measured models first, the paper's models (Tables 1 and 5) in shaded panels. Up and to the right is better.

Does not show: time. The speedup is that of compute cycles under the paper's rules (prompt processing alone).
"""

from __future__ import annotations

from ragauge.experiment.reads import ANY, Reads, defaults, every
from ragauge.items.superposition import _tables
from ragauge.rendering import Axis, Figure, lines
from ragauge.results import Cell, Runs, Table, Variant, find, frame, merge, published, standard

KEYS = ("model", "dataset", "method", "variant", "top_k")
METHODS = ("naive", "bm25", "tfidf", "dense", "attention_sort", "prompt_cache", "superposition")
QUANTITIES = ("accuracy", "theoretical_speedup")

READS = Reads(
    answers=(every(*(m for m in METHODS if m != "superposition")), defaults("superposition", top_k=ANY)),
    datasets="single_hop",
)


def table(runs: Runs) -> Table:
    """One line for each (model, data set, method, top_k, quantity)."""
    measured = [c for group in runs.groups(READS.datasets) for v in _drawn(runs, *group) for c in _cells(runs, v)]
    return frame(KEYS, merge(measured, _published(), on=("method", "top_k")))


def draw(table: Table) -> Figure:
    """Small multiples, one a model and data set."""
    found = lines.points(table, "theoretical_speedup", "accuracy")
    x, y = Axis("theoretical speedup over naive", "log"), Axis("accuracy", from_zero=True)
    return lines.multiples(found, x, y, share=True)


def _drawn(runs: Runs, dataset: str, model: str) -> list[Variant]:
    found = [v for method in METHODS for v in find(runs, dataset, model, method)]
    return [v for v in found if v.method != "superposition" or v.is_superposition()]


def _cells(runs: Runs, variant: Variant) -> list[Cell]:
    measures = standard(runs, variant)
    return _tables.cells(runs, variant, {q: measures[q] for q in QUANTITIES})


def _published() -> list[Cell]:
    """Table 5, and of Table 1 what Table 5 does not have: the methods without top_k, and OpenELM."""
    columns = {q: q for q in QUANTITIES}
    swept = published("superposition_table_5", ("model", "method", "top_k"), columns, "nq_open")
    there = {(c.paper_model, c.keys["method"]) for c in swept}
    single = published("superposition_table_1", ("model", "method"), columns, "nq_open")
    return swept + [c for c in single if (c.paper_model, c.keys["method"]) not in there]
