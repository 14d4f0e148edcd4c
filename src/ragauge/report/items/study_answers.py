"""A study's answers: labels, agreement with the full prompt, words in the passages, a judge.

What this shows: for each variant the share of right answers where answers are known; `agreement`,
the F1 of an answer's words and those of the full prompt's answer; `groundedness`, the share of an
answer's words in the selected passages; and `judged_correct`, the share of answers that a language
model calls correct by the passages. Where a question has a label and a judgement, the reliability
of the judge: the share of answers on which the two agree, and Cohen's kappa, which subtracts
agreement by chance (0: the judge is worthless).

Limits: the full prompt's answer may be wrong, and naive agrees with it by definition; words may
appear in the passages in another sense.
"""

from collections.abc import Sequence

import numpy as np

from ragauge.config.reads import Reads, every
from ragauge.report.figures import Axis, Dots, Figure
from ragauge.results import materials
from ragauge.results.cells import (
    Cell,
    Cells,
    Measure,
    Measures,
    Table,
    frame,
    mean,
    noted,
    row_cells,
    with_interval_note,
)
from ragauge.results.measures import scored
from ragauge.results.runs import Group, Runs, Variant
from ragauge.results.stats import SHARE, percentile_interval, resampled_means

KEYS = ("model", "dataset", "method", "variant")
LABELLED = "contains_answer"
AXES = {
    LABELLED: Axis("right, by labels"),
    "agreement": Axis("agrees with full prompt"),
    "groundedness": Axis("words in passages"),
    "judged_correct": Axis("right, by the judge"),
}
NOTHING = {
    LABELLED: "no question has a known answer",
    "agreement": "no answer of a full prompt (naive) to compare with",
    "groundedness": "no passage was kept, or no answer has words of its own",
    "judged_correct": "not judged: `judge: {of: answers}` of the configuration names a judge",
}
ALL = "all variants"

READS = Reads(answers=(every(),), judgements=True)


def table(runs: Runs) -> Table:
    return frame(KEYS, runs.by_group(_group))


def draw(table: Table) -> Figure:
    known = set(table[table["measured"].notna()]["quantity"])
    dots = Dots(
        {q: axis for q, axis in AXES.items() if q in known}, name=lambda line: line["variant"]
    )
    return dots(table[table["variant"] != ALL])


def _group(group: Group) -> Cells:
    variants = group.variants
    for variant in variants:
        for quantity, nothing in NOTHING.items():
            values = list(scored(variant, quantity).values())
            note = ""
            if quantity == "judged_correct":
                judges = {str(line.get("judge")) for line in materials.judgements(variant).values()}
                note = f"judged by {', '.join(sorted(judges))}" if judges else ""
            measure = mean(values, group.runs.seed, note, limits=SHARE)
            yield Cell(variant.keys, quantity, measure if values else Measure(reason=nothing))
    keys = group.keys | {"method": "judge", "variant": ALL}
    yield from row_cells(keys, _worth(variants, group.runs.seed))


def _worth(variants: Sequence[Variant], seed: int) -> Measures:
    """How far the judge and the labels agree, over all answers that have both."""
    pairs = []
    is_judged = False  # (label, judgement) of each answer that has both, 1 for right
    for variant in variants:
        labels = scored(variant, LABELLED)
        judged = scored(variant, "judged_correct")
        pairs += [
            (labels[key], judged[key])
            for key in judged
            if key in labels and key not in variant.failed
        ]
        is_judged |= bool(judged)
    if not is_judged:
        return {}
    if not pairs:
        reason = Measure(
            reason="no answer has a label and a judgement: nothing says what the judge is worth"
        )
        return {"judge_agreement": reason, "judge_kappa": reason}
    alike = [label == judged for label, judged in pairs]
    yes = sum(judged for _, judged in pairs) / len(pairs)
    right = sum(label for label, _ in pairs) / len(pairs)
    note = f"the judge calls {yes:.0%} correct, the labels {right:.0%}; always one word would agree on "
    note += f"{max(right, 1 - right):.0%}"
    agreement = mean(alike, seed, note, limits=SHARE)
    return {"judge_agreement": agreement, "judge_kappa": noted(_kappa(pairs, seed), note)}


def _kappa(pairs: Sequence[tuple[float, float]], seed: int) -> Measure:
    """Cohen's kappa (1960) with its bootstrap interval; none where one of the two has but one word."""
    label, judged = np.array(pairs).T
    value = _kappa_of(label.mean(), judged.mean(), (label == judged).mean())
    if not np.isfinite(value):
        return Measure(reason="the labels and the judge have one word between them")
    means = resampled_means([label, judged, (label == judged).astype(float)], seed)
    kappas = _kappa_of(*means)
    low, high = percentile_interval(kappas[np.isfinite(kappas)])
    return with_interval_note(Measure(float(value), low, high, len(pairs)))


def _kappa_of(right: np.ndarray, yes: np.ndarray, alike: np.ndarray) -> np.ndarray:
    """Agreement beyond that of chance: (observed - chance) / (1 - chance)."""
    chance = right * yes + (1 - right) * (1 - yes)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((alike - chance) / (1 - chance))
