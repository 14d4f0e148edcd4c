"""Superposition Prompting, Table 5: the top-k sweep of BM25, TF-IDF, dense retrieval and superposition.

What this shows: accuracy, compute cycles under the paper's rules, theoretical speedup over naive
RAG, and measured speedups of the latency rule in columns named after its device: with each document
read before the question (`documents_speedup`), with this list read (`set_speedup`), and as in the
paper (`measured_speedup`: the method has read what it can, naive RAG nothing), with the seconds and
bytes of that reading. Compute cycles
count the queries of the remaining paths one after another, as the paper's columns do, and not the
work before the question. Cycles and speedups of the paper's models are predicted from their shapes;
`critical_path_speedup` is that of docs/cost-accounting.md. `gold_kept` is the share of questions
whose gold document is kept, `accuracy_if_kept` the accuracy on these: the ranking and the reading.

Limits: `frontier` has the cost as the variants ran here. Measured speedups of different machines
have no ratio.
"""

from ragauge.config.reads import ANY, Reads, defaults, every
from ragauge.report.figures import Axis, Lines
from ragauge.report.items.superposition import _tables
from ragauge.results import timing
from ragauge.results.cells import Cells, Keys, Measures, Table, mean
from ragauge.results.measures import quality, scored, standard
from ragauge.results.runs import Group, Runs, Variant
from ragauge.results.shortcuts import split
from ragauge.results.stats import SHARE

KEYS = ("model", "dataset", "method", "variant", "top_k")
RANKERS = ("bm25", "tfidf", "dense", "shortest")
COLUMNS = ("accuracy", "compute_cycles", "theoretical_speedup", "cuda_speedup")

ANSWERS = every("naive", *RANKERS), defaults("superposition", top_k=ANY)
READS = Reads(ANSWERS, datasets="single_hop", latency="short", predictions=True)


def table(runs: Runs) -> Table:
    measured = runs.by_group(_group, READS.datasets)
    measured += timing.speedup_cells(runs, _keys)
    on = ("method", "top_k")
    return _tables.with_published(runs, measured, "superposition_table_5", KEYS, on, COLUMNS)


draw = Lines(
    "top_k",
    Axis("top-k (documents kept)", "base2"),
    "accuracy",
    Axis("accuracy", from_zero=True),
    share=True,
)


def _group(group: Group) -> Cells:
    for variant in group.find(*RANKERS, "superposition"):
        if _keys(variant):
            measures = standard(variant) | _gold_kept(variant) | split(variant)
            yield from _tables.cells(variant, measures)


def _gold_kept(variant: Variant) -> Measures:
    """Compute how often the gold document is retained, and how good the answers then are."""
    gold_scores = scored(variant, _tables.KEPT)
    counted = [score for key, score in scored(variant).items() if gold_scores.get(key) == 1]
    return {
        "gold_kept": quality(variant, _tables.KEPT),
        "accuracy_if_kept": mean(
            counted, variant.runs.seed, nothing="the gold document was never kept", limits=SHARE
        ),
    }


def _keys(variant: Variant) -> Keys | None:
    """Method and top_k of a variant of the sweep; None for any other."""
    swept = variant.method in RANKERS or variant.is_superposition()
    return {"method": variant.row, "top_k": variant.param("top_k")} if swept else None
