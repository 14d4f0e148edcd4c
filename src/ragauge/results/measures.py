"""How good answers are: metrics of a run's records with their intervals, and paired differences
between variants.
"""

import math
from collections import defaultdict
from collections.abc import Mapping

from ragauge.metrics import base as metrics
from ragauge.results import materials
from ragauge.results.cells import Measure, Measures, Table, mean, on_common_keys, paired
from ragauge.results.costs import cost, critical_path_cycles, speedup
from ragauge.results.runs import Group, Runs, Variant
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


def metric_name(group: Group) -> str:
    """The name of a data set's primary metric, for readers."""
    metric = group.runs.metrics(group.dataset)[0]
    return NAMES.get(metric, metric.replace("_", " "))


def metric_limits(variant: Variant) -> Limits | None:
    """The least and the greatest score of the primary metric; None if it has none."""
    return metrics.limits(variant.primary_metric)


def quality(variant: Variant, metric: str | None = None) -> Measure:
    """The mean of a metric over the questions; a failed question counts as wrong. Metric: the data
    set's primary.
    """
    scores = scored(variant, metric)
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
        variant.runs.seed,
        note,
        nothing="no question has a score",
        limits=metrics.limits(metric or variant.primary_metric),
    )


def scored(variant: Variant, metric: str | None = None) -> dict[str, float]:
    """The metric's score of each question; 0 if the question failed, absent where the metric does
    not apply.
    """
    name = metric or variant.primary_metric
    compared = materials.compared_fields(variant, name)
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
    shared = on_common_keys(*able.values())
    return dict(zip(able, shared, strict=True)) if any(shared) else {}


FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # by which they begin


def by_question(runs: Runs) -> Table:
    """A row for each question of a data set and model, with each variant's score in the data set's
    primary metric. Spreadsheets compute a cell that begins like a formula: such a question's id
    gets an apostrophe in front.
    """
    import pandas as pd

    rows = defaultdict[tuple[str, ...], dict[str, float]](dict)
    for v in runs.run:
        for question, score in scored(v).items():
            shown = f"'{question}" if question.startswith(FORMULAS) else question
            rows[v.dataset, v.model, v.primary_metric, shown][v.name] = score
    keys = ("dataset", "model", "metric", "question")
    made = [dict(zip(keys, row, strict=True)) | scores for row, scores in rows.items()]
    return pd.DataFrame(made, columns=[*keys, *dict.fromkeys(v.name for v in runs.run)])


def evidence_quality(variant: Variant, metric: str) -> Measure:
    """The mean of a metric of evidence over the questions that have any; one that failed has none."""
    scores = [metrics.score(metric, variant.fields[key]) for key in variant.answered]
    counted = [score for score in scores if score is not None]
    without = len(variant.records) - len(counted)
    note = ""
    if without and counted:
        note = f"{without} of {len(variant.records)} questions without evidence are not counted"
    nothing = "no question has evidence that was compared"
    return mean(counted, variant.runs.seed, note, nothing=nothing, limits=metrics.limits(metric))


def difference(better: Variant, worse: Variant, metric: str | None = None) -> Measure:
    """Mean difference of a metric (the primary one) over the questions that both were asked, with a
    paired test.
    """
    a, b = on_common_keys(scored(better, metric), scored(worse, metric))
    if not a:
        return Measure(reason="no question in common")
    return paired(
        a,
        b,
        better.runs.seed,
        "paired on the same questions",
        limits=metrics.limits(metric or better.primary_metric),
    )


def standard(variant: Variant) -> Measures:
    """Accuracy, compute cycles and theoretical speedup of a variant, and the speedup under our own
    accounting.
    """
    return {
        "accuracy": quality(variant),
        "compute_cycles": cost(variant),
        "theoretical_speedup": speedup(variant),
        "critical_path_speedup": speedup(variant, critical_path_cycles, critical_path_cycles),
    }
