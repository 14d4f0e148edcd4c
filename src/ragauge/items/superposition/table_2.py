"""Superposition Prompting, Table 2: multi-hop questions (MuSiQue) with iterative superposition.

Shows F1, exact match, compute cycles and theoretical speedup of naive RAG, attention sort, prompt cache and
superposition at every (iterations, top_k) that was run; rankers and reference points of the run stand beside them.
Only the first round of iterative superposition is cached, so that later rounds count in its cycles.
For the paper's models cycles and speedups are predicted from their shapes; `critical_path_speedup` is our accounting's.

Does not show: time. F1 and exact match are those of MuSiQue's official evaluation, with aliases.
"""

from __future__ import annotations

from ragauge.experiment.reads import ANY, Reads, defaults, others
from ragauge.items.superposition import _tables
from ragauge.rendering import Axis, Figure, dots, style
from ragauge.results import Cell, Runs, Table, Variant, frame, quality, standard

KEYS = ("model", "dataset", "method", "variant", "iterations", "top_k")
QUANTITIES = ("f1", "em", "compute_cycles", "theoretical_speedup")
METHODS = ("naive", "attention_sort", "prompt_cache", "superposition")

READS = Reads(
    answers=(others("superposition"), defaults("superposition", top_k=ANY, iterations=ANY)),
    datasets="multi_hop",
    predictions=True,
)


def table(runs: Runs) -> Table:
    """One line for each (model, data set, method, iterations, top_k, quantity)."""
    measured = [cell for group in runs.groups(READS.datasets) for cell in _group(runs, *group)]
    on = ("method", "iterations", "top_k")
    return frame(KEYS, _tables.beside_paper(runs, measured, "superposition_table_2", on, QUANTITIES, "musique"))


def draw(table: Table) -> Figure:
    """F1 and theoretical speedup as points with intervals."""
    axes = {"f1": Axis("F1"), "theoretical_speedup": Axis("theoretical speedup", "log")}
    labels = [_label(*key) for key in table[["method", "iterations", "top_k"]].itertuples(index=False)]
    return dots.draw(table, table["method"], axes, names=labels)


def _group(runs: Runs, dataset: str, model: str) -> list[Cell]:
    present = sorted(runs.of(dataset, model), key=_order)
    cells = [cell for v in present if _belongs(v) for cell in _measured(runs, v)]
    there = {v.method for v in present}
    for method in METHODS:
        if method not in there:
            cells += _tables.not_run(runs, dataset, model, method, QUANTITIES)
    return cells


def _belongs(variant: Variant) -> bool:
    """Superposition with nothing but top_k and iterations changed, and every other method."""
    iterations = variant.param("iterations")
    return variant.method != "superposition" or variant.is_superposition(iterations=iterations)


def _order(variant: Variant) -> tuple[int, str, int, int]:
    place = METHODS.index(variant.method) if variant.method in METHODS else len(METHODS)
    return place, variant.row, int(variant.param("iterations") or 0), int(variant.param("top_k") or 0)


def _measured(runs: Runs, variant: Variant) -> list[Cell]:
    measures = {
        "f1": quality(runs, variant, "f1"),
        "em": quality(runs, variant, "em"),
        **{q: m for q, m in standard(runs, variant).items() if q != "accuracy"},
    }
    return _tables.cells(runs, variant, measures)


def _label(method: str, iterations: object, top_k: object) -> str:
    details = [f"t={iterations}" if iterations else "", f"k={top_k}" if top_k else ""]
    shown = ", ".join(d for d in details if d)
    return f"{style.method_label(method)} ({shown})" if shown else style.method_label(method)
