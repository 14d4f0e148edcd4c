"""Superposition Prompting, Table 1: accuracy and compute of every method on single-hop questions (NQ-Open).

What this shows: the paper's seven methods and two references (no documents, gold documents alone):
the primary metric, compute cycles under the paper's rules and the theoretical speedup over naive
RAG (ratio of means); `critical_path_speedup` is that ratio under the accounting of
docs/cost-accounting.md. Cycles and speedups of the paper's models are predicted from their shapes.
A ranker is shown at the top_k of its best accuracy, superposition at its smallest, as in the paper;
`superposition_gain` is superposition minus the method on the same questions, with a paired test.

Limits: Tables 5 and 7 have times. Choosing top_k on the reported questions favours the rankers.
Cycles count prompt processing alone, not the generated tokens.
"""

from ragauge.config.reads import SMALLEST, Reads, defaults, others
from ragauge.report.figures import Axis, Dots
from ragauge.report.items.superposition import _tables
from ragauge.results.cells import Cell, Table, frame, noted
from ragauge.results.measures import difference, find, quality, standard
from ragauge.results.publications import paper_model
from ragauge.results.runs import RANKED, Runs, Variant
from ragauge.results.shortcuts import split

KEYS = ("model", "dataset", "method", "variant", "top_k")
METHODS = (
    "naive",
    "bm25",
    "tfidf",
    "contriever",
    "attention_sort",
    "prompt_cache",
    "superposition",
)
REFERENCES = ("closed_book", "oracle")
QUANTITIES = ("accuracy", "compute_cycles", "theoretical_speedup")

ANSWERS = others("superposition"), defaults("superposition", top_k=SMALLEST)
READS = Reads(ANSWERS, datasets="single_hop", predictions=True)


def table(runs: Runs) -> Table:
    measured = runs.by_group(_group, READS.datasets)
    return frame(
        KEYS,
        _tables.with_published(runs, measured, "superposition_table_1", ("method",), QUANTITIES),
    )


draw = Dots(
    {"accuracy": Axis("accuracy"), "theoretical_speedup": Axis("theoretical speedup", "log")}
)


def _group(runs: Runs, dataset: str, model: str) -> list[Cell]:
    chosen = {row: _chosen(runs, dataset, model, row) for row in _rows(runs, dataset, model)}
    paper_name = next((paper_model(v, runs) for v in runs.of(dataset, model)), None)
    best = chosen.get("superposition")
    cells = []
    for row, variant in chosen.items():
        if variant is None:
            cells += _tables.not_run(runs, dataset, model, row, QUANTITIES, paper_name)
            continue
        measures = standard(runs, variant) | split(runs, variant)
        tried = [
            str(v.param("top_k"))
            for v in find(runs, dataset, model, variant.method)
            if v.row == row
        ]
        if variant.method in RANKED and len(tried) > 1:
            choice = f"top_k: the best of {', '.join(tried)} on these questions"
            measures["accuracy"] = noted(measures["accuracy"], choice)
        if best is not None and best is not variant:
            measures["superposition_gain"] = difference(runs, best, variant)
        cells += _tables.cells(runs, variant, measures)
    return cells


def _rows(runs: Runs, dataset: str, model: str) -> list[str]:
    """The paper's methods, other encoders next to Contriever, then the reference points that were
    run.
    """
    present = {v.row for v in runs.of(dataset, model)}
    encoders = sorted(row for row in present if row.startswith("dense:"))
    paper = [
        row for row in METHODS if row != "contriever" or "contriever" in present or not encoders
    ]
    index = paper.index("attention_sort")
    others = sorted(present - set(METHODS) - set(encoders) - set(REFERENCES))
    return [
        *paper[:index],
        *encoders,
        *paper[index:],
        *others,
        *(r for r in REFERENCES if r in present),
    ]


def _chosen(runs: Runs, dataset: str, model: str, row: str) -> Variant | None:
    method = "dense" if row == "contriever" else row.partition(":")[0]
    candidates = [v for v in find(runs, dataset, model, method) if v.row == row]
    if method == "superposition":
        candidates = [v for v in candidates if v.is_superposition()]
    if not candidates or method not in RANKED:
        return candidates[0] if candidates else None
    return max(candidates, key=lambda v: quality(runs, v).value or 0.0)
