"""Superposition Prompting, Figure 1: theoretical speedup (log scale) against accuracy.

What this shows: each method as a line over its top_k, or a point where it has none, with 95%
intervals of the accuracy; the paper's models (Tables 1 and 5) are in shaded panels. Up and to
the right is better.

Limits: the speedup is that of compute cycles under the paper's rules (prompt processing alone), not
of time.
"""

from ragauge.config.reads import ANY, Reads, defaults, every
from ragauge.report.figures import Axis, Lines
from ragauge.report.items.superposition import _tables
from ragauge.results.cells import Cells, Table, frame, merge
from ragauge.results.measures import standard
from ragauge.results.publications import published
from ragauge.results.runs import Group, Runs

KEYS = ("model", "dataset", "method", "variant", "top_k")
METHODS = ("naive", "bm25", "tfidf", "dense", "attention_sort", "prompt_cache", "superposition")
QUANTITIES = ("accuracy", "theoretical_speedup")

ANSWERS = every(*(m for m in METHODS if m != "superposition")), defaults("superposition", top_k=ANY)
READS = Reads(ANSWERS, datasets="single_hop")


def table(runs: Runs) -> Table:
    measured = runs.by_group(_group, READS.datasets)
    # Table 5, and of Table 1 what Table 5 does not have: the methods without top_k, and OpenELM
    columns = {q: q for q in QUANTITIES}
    swept = published("superposition_table_5", ("model", "method", "top_k"), columns, "nq_open")
    there = {(c.paper_model, c.keys["method"]) for c in swept}
    single = published("superposition_table_1", ("model", "method"), columns, "nq_open")
    printed = swept + [c for c in single if (c.paper_model, c.keys["method"]) not in there]
    return frame(KEYS, merge(measured, printed, on=("method", "top_k")))


draw = Lines(
    "theoretical_speedup",
    Axis("theoretical speedup over naive", "log"),
    "accuracy",
    Axis("accuracy", from_zero=True),
    share=True,
)


def _group(group: Group) -> Cells:
    for variant in group.find(*METHODS):
        if variant.method != "superposition" or variant.is_superposition():
            measures = standard(variant)
            yield from _tables.cells(variant, {name: measures[name] for name in QUANTITIES})
