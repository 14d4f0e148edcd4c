"""Superposition Prompting, Table 2: multi-hop questions (MuSiQue) with iterative superposition.

What this shows: F1, exact match, compute cycles and theoretical speedup of naive RAG, attention
sort, prompt cache and superposition at every (iterations, top_k), and of the run's rankers and
references; and, which the paper does not have, `best_subspan_em`: a sentence that contains the
right answer has a low F1. Only the first round of iterative superposition is cached, so later
rounds count in its cycles. The paper's numbers stand beside the rounds that its cycles were counted
with (`hops: one`); rounds that all select k (section 4.1.2) are rows without them. Cycles and
speedups of the paper's models are predicted from their shapes; `critical_path_speedup` is that of
docs/cost-accounting.md.

Limits: no times. F1 and exact match are those of MuSiQue's official evaluation, with aliases.
"""

from dataclasses import replace
from typing import Any

from ragauge.config.reads import ANY, Reads, defaults, others
from ragauge.report.figures import Axis, Dots, style
from ragauge.report.items.superposition import _tables
from ragauge.results.cells import Cells, Line, Table
from ragauge.results.measures import quality, standard
from ragauge.results.runs import Group, Runs, Variant
from ragauge.results.shortcuts import split

KEYS = ("model", "dataset", "method", "variant", "iterations", "top_k")
QUANTITIES = ("f1", "em", "compute_cycles", "theoretical_speedup")
QUALITIES = ("f1", "em", "best_subspan_em")
METHODS = ("naive", "attention_sort", "prompt_cache", "superposition")

ANSWERS = others("superposition"), defaults("superposition", top_k=ANY, iterations=ANY, hops=ANY)
READS = Reads(ANSWERS, datasets="multi_hop", predictions=True)


def table(runs: Runs) -> Table:
    measured = runs.by_group(_group, READS.datasets)
    on = ("method", "iterations", "top_k")
    return _tables.with_published(
        runs, measured, "superposition_table_2", KEYS, on, QUANTITIES, "musique"
    )


def _name(line: Line) -> str:
    details = [
        f"{sign}={line[key]}" for sign, key in (("t", "iterations"), ("k", "top_k")) if line[key]
    ]
    return style.method_label(line["method"]) + (f" ({', '.join(details)})" if details else "")


draw = Dots(
    {
        "f1": Axis("F1"),
        "best_subspan_em": Axis("best EM subspan"),
        "theoretical_speedup": Axis("theoretical speedup", "log"),
    },
    name=_name,
)


def _group(group: Group) -> Cells:
    def order(variant: Variant) -> tuple[Any, ...]:
        place = [*METHODS, variant.method].index(variant.method)
        sizes = (variant.param(name) or 0 for name in ("iterations", "top_k"))
        return place, variant.row, *sizes

    for variant in sorted(group.variants, key=order):
        measures = standard(variant) | {metric: quality(variant, metric) for metric in QUALITIES}
        shown = {
            name: measures[name]
            for name in (*QUANTITIES, "best_subspan_em", "critical_path_speedup")
        }
        options = {name: variant.param(name) for name in ("iterations", "hops")}
        if variant.method != "superposition" or variant.is_superposition(**options):
            is_text = (options["iterations"] or 1) > 1 and options["hops"] != "one"
            cells = _tables.cells(variant, shown | split(variant))
            yield from (replace(cell, paper_model=None) if is_text else cell for cell in cells)
    for method in METHODS:
        if not group.find(method):
            yield from _tables.not_run(group, method, QUANTITIES)
