"""How good answers are: metrics of a run's records with their intervals, and paired differences
between variants.
"""

import math
from collections import defaultdict
from collections.abc import Mapping

from ragauge.metrics import base as metrics
from ragauge.results import materials
from ragauge.results.cells import Measure, Measures, Table, mean, paired
from ragauge.results.costs import cost, critical_path_cycles, speedup
from ragauge.results.runs import Runs, Variant
from ragauge.results.stats import Limits

FLOOR = 0.1  # quality below which a reader is at the floor: differences tell nothing
# part of the longest variant's questions that a variant must have answered to be paired with it
SHARED = 0.8
REFERENCES = ("oracle",)  # no method could know which documents are gold
NAMES = {  # of metrics, where theirs is not their own with spaces
    "best_subspan_em": "best EM subspan",
    "contains_answer": "contains an answer",
    "f1": "F1",
    "em": "exact match",
    "kept_gold_recall": "gold kept",
    "agreement": "agreement with the full prompt (F1)",
}


def metric_name(runs: Runs, dataset: str) -> str:
    """The name of a data set's primary metric, for readers."""
    metric = runs.metrics(dataset)[0]
    return NAMES.get(metric, metric.replace("_", " "))


def metric_limits(runs: Runs, dataset: str) -> Limits | None:
    """The least and the greatest score of a data set's primary metric; None if it has none."""
    return metrics.limits(runs.metrics(dataset)[0])


def quality(runs: Runs, variant: Variant, metric: str | None = None) -> Measure:
    """The mean of a metric over the questions; a failed question counts as wrong. Metric: the data
    set's primary.
    """
    scores = scored(runs, variant, metric)
    if variant.records and not variant.has_responses:
        return Measure(
            reason=f"all {len(variant.failed)} questions failed: {next(iter(variant.failed.values()))}"
        )
    failed = len(variant.failed)
    wrong = len(variant.failed.keys() & scores.keys())
    # where the metric applies
    counted = f"{wrong} of them counted" if wrong < failed else "counted"
    note = (
        f"{failed} of {len(variant.records)} questions failed, {counted} as wrong"
        if failed and scores
        else ""
    )
    return mean(
        list(scores.values()),
        runs.seed,
        note,
        nothing="no question has a score",
        limits=metrics.limits(metric or runs.metrics(variant.dataset)[0]),
    )


def scored(runs: Runs, variant: Variant, metric: str | None = None) -> dict[str, float]:
    """The metric's score of each question; 0 if the question failed, absent where the metric does
    not apply.
    """
    name = metric or runs.metrics(variant.dataset)[0]
    compared = materials.compared_fields(runs, variant, name)
    scores = {
        fields["key"]: metrics.score(name, fields)
        for fields in metrics.with_failed_empty([*compared.values()])
    }
    return {key: float(s) for key, s in scores.items() if s is not None and math.isfinite(s)}


def on_shared(scores: Mapping[str, Mapping[str, float]]) -> dict[str, list[float]]:
    """By name the scores on the questions that all share. A variant that answered far fewer than
    the others is left out, lest all are compared on its few; without a shared question there is
    none.
    """
    most = max(map(len, scores.values()), default=0)
    able = {name: given for name, given in scores.items() if given and len(given) >= SHARED * most}
    keys = [
        key for key in next(iter(able.values()), ()) if all(key in given for given in able.values())
    ]
    return {name: [given[key] for key in keys] for name, given in able.items()} if keys else {}


FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # by which they begin


def by_question(runs: Runs) -> Table:
    """A row for each question of a data set and model, with each variant's score in the data set's
    primary metric. Spreadsheets compute a cell that begins like a formula: such a question's id
    gets an apostrophe in front.
    """
    import pandas as pd

    rows = defaultdict[tuple[str, ...], dict[str, float]](dict)
    for v in runs.run:
        for question, score in scored(runs, v).items():
            shown = f"'{question}" if question.startswith(FORMULAS) else question
            rows[v.dataset, v.model, runs.metrics(v.dataset)[0], shown][v.name] = score
    keys = ("dataset", "model", "metric", "question")
    made = [dict(zip(keys, row, strict=True)) | scores for row, scores in rows.items()]
    return pd.DataFrame(made, columns=[*keys, *dict.fromkeys(v.name for v in runs.run)])


def evidence_quality(runs: Runs, variant: Variant, metric: str) -> Measure:
    """The mean of a metric of evidence over the questions that have any; one that failed has none."""
    scores = [metrics.score(metric, variant.fields[key]) for key in variant.answered]
    counted = [score for score in scores if score is not None]
    without = len(variant.records) - len(counted)
    of_all = f"of {len(variant.records)} questions without evidence"
    note = f"{without} {of_all} are not counted" if without and counted else ""
    nothing = "no question has evidence that was compared"
    return mean(counted, runs.seed, note, nothing=nothing, limits=metrics.limits(metric))


def difference(runs: Runs, better: Variant, worse: Variant, metric: str | None = None) -> Measure:
    """Mean difference of a metric (the primary one) over the questions that both were asked, with a
    paired test.
    """
    a = scored(runs, better, metric)
    b = scored(runs, worse, metric)
    shared = [k for k in a if k in b]
    if not shared:
        return Measure(reason="no question in common")
    return paired(
        [a[k] for k in shared],
        [b[k] for k in shared],
        runs.seed,
        "paired on the same questions",
        limits=metrics.limits(metric or runs.metrics(better.dataset)[0]),
    )


def standard(runs: Runs, variant: Variant) -> Measures:
    """Accuracy, compute cycles and theoretical speedup of a variant, and the speedup under our own
    accounting.
    """
    base = naive(runs, variant.dataset, variant.model)
    return {
        "accuracy": quality(runs, variant),
        "compute_cycles": cost(runs, variant),
        "theoretical_speedup": speedup(runs, base, variant),
        "critical_path_speedup": speedup(
            runs, base, variant, critical_path_cycles, critical_path_cycles
        ),
    }


def find(runs: Runs, dataset: str, model: str, method: str) -> list[Variant]:
    """The variants of a method there, by top_k (those without one first), then in the
    configuration's order.
    """
    variants = [v for v in runs.of(dataset, model) if v.method == method]
    return sorted(variants, key=lambda v: v.param("top_k") or 0)


def naive(runs: Runs, dataset: str, model: str) -> Variant | None:
    """The plain run of all documents in one prompt, if there is one."""
    return next(iter(find(runs, dataset, model, "naive")), None)
