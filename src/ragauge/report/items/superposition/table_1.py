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
from ragauge.results.cells import Cells, Table, noted
from ragauge.results.measures import difference, quality, standard
from ragauge.results.publications import paper_model
from ragauge.results.runs import RANKED, Group, Runs, Variant
from ragauge.results.shortcuts import split

KEYS = ("model", "dataset", "method", "variant", "top_k")
# the paper's methods before and after Contriever
BEFORE = ("naive", "bm25", "tfidf")
AFTER = ("attention_sort", "prompt_cache", "superposition")
REFERENCES = ("closed_book", "oracle")
QUANTITIES = ("accuracy", "compute_cycles", "theoretical_speedup")

ANSWERS = others("superposition"), defaults("superposition", top_k=SMALLEST)
READS = Reads(ANSWERS, datasets="single_hop", predictions=True)


def table(runs: Runs) -> Table:
    measured = runs.by_group(_group, READS.datasets)
    return _tables.with_published(
        runs, measured, "superposition_table_1", KEYS, ("method",), QUANTITIES
    )


draw = Dots(
    {"accuracy": Axis("accuracy"), "theoretical_speedup": Axis("theoretical speedup", "log")}
)


def _group(group: Group) -> Cells:
    chosen = {row: _chosen(group, row) for row in _rows(group)}
    paper_name = next(map(paper_model, group.variants), None)
    best = chosen.get("superposition")
    for row, variant in chosen.items():
        if variant is None:
            yield from _tables.not_run(group, row, QUANTITIES, paper_name)
            continue
        measures = standard(variant) | split(variant)
        tried = [str(v.param("top_k")) for v in group.find(variant.method) if v.row == row]
        if variant.method in RANKED and len(tried) > 1:
            choice = f"top_k: the best of {', '.join(tried)} on these questions"
            measures["accuracy"] = noted(measures["accuracy"], choice)
        if best and best is not variant:
            measures["superposition_gain"] = difference(best, variant)
        yield from _tables.cells(variant, measures)


def _rows(group: Group) -> list[str]:
    """The paper's methods, other encoders next to Contriever, then the reference points that were
    run.
    """
    present = {v.row for v in group.variants}
    encoders = sorted(row for row in present if row.startswith("dense:"))
    dense = ["contriever"] if "contriever" in present or not encoders else []
    others = sorted(present - {*BEFORE, "contriever", *encoders, *AFTER, *REFERENCES})
    references = (row for row in REFERENCES if row in present)
    return [*BEFORE, *dense, *encoders, *AFTER, *others, *references]


def _chosen(group: Group, row: str) -> Variant | None:
    method = "dense" if row == "contriever" else row.partition(":")[0]
    candidates = [
        v
        for v in group.find(method)
        if v.row == row and (method != "superposition" or v.is_superposition())
    ]
    if method not in RANKED:
        return next(iter(candidates), None)
    return max(candidates, key=lambda v: quality(v).value or 0.0, default=None)
