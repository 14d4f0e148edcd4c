"""Shortcuts of data sets: how often rules that read nothing, or count common words alone, find the
gold document; and what the questions of a data set have in common.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from ragauge.datasets.base.dataset import Document, Example
from ragauge.metrics.base import normalise
from ragauge.results.cells import Measure, Measures, Table, mean
from ragauge.results.materials import examples
from ragauge.results.measures import scored
from ragauge.results.runs import Runs, Variant
from ragauge.results.stats import SHARE
from ragauge.text import terms

PARTS = 10  # of one long text, among which rules choose as among documents
NEAR = 0.8  # Jaccard similarity of the words of two questions from which they are near-duplicates
CHANCE = "gold_at_random"
LENGTHS = ("gold_is_shortest", "gold_is_longest")
BLIND = (*LENGTHS, "gold_is_first", "gold_is_last")  # rules that read nothing
RULES = (*BLIND, "gold_has_most_title_words", "gold_has_most_words")  # of the question's words
Features = dict[str, float]  # of a question


def features(asked: Sequence[Example], lengths: Mapping[str, Sequence[int]]) -> list[Features]:
    """Return what is known of each question's gold documents.

    By rule the share of gold in its choice: 1, 0, or between them where it cannot tell documents
    apart; absent where no document, or every one, is gold. `answer_elsewhere`: an answer stands in
    another document, as whole words. `near_duplicate`: another question has about the same words.
    `shared_gold`: another one has the same gold document.

    Args:
        lengths: of each document in tokens, by the question's key; others are counted in words,
            titles included.
    """
    choices = [*map(_choices, asked)]
    uses = Counter(documents[i].text for documents, gold in choices for i in gold)
    words = [set(terms(example.question)) for example in asked]
    known = []
    for example, (documents, gold), own in zip(asked, choices, words, strict=True):
        found: Features = {
            "near_duplicate": sum(len(own & w) >= NEAR * len(own | w) for w in words) > 1,
            "shared_gold": any(uses[documents[i].text] > 1 for i in gold),
        }
        others = [i for i in range(len(documents)) if i not in gold]
        if gold and others:
            titles = [set(terms(document.title)) for document in documents]
            texts = [terms(f"{document.title} {document.text}") for document in documents]
            sizes = np.array(lengths.get(example.key) or [*map(len, texts)])
            places = np.arange(len(documents))
            scores = [0 * places, -sizes, sizes, -places, places]
            scores += [np.array([len(own & {*w}) for w in some]) for some in (titles, texts)]
            for rule, score in zip((CHANCE, *RULES), scores, strict=True):
                found[rule] = np.isin(np.flatnonzero(score == score.max()), gold).mean()
            found["length_of_gold"] = sizes[gold].mean()
            found["length_difference"] = sizes[gold].mean() - sizes[others].mean()
            text = " | ".join(normalise(documents[i].text) for i in others)
            answers = map(normalise, example.answers)
            found["answer_elsewhere"] = any(f" {answer} " in f" {text} " for answer in answers)
        known.append(found)
    return known


def summary(known: Sequence[Features], seed: int) -> Measures:
    """Return the mean of each feature over the questions that have it."""
    names = dict.fromkeys(name for found in known for name in found)
    values = {name: [float(found[name]) for found in known if name in found] for name in names}
    return {name: mean(of, seed, limits=SHARE) for name, of in values.items()}


def above_chance(found: Measures) -> list[str]:
    """Return the rules whose interval is above the share of a random choice, the best first."""
    chance = found.get(CHANCE, Measure()).value or 1
    above = [rule for rule in RULES if rule in found and (found[rule].low or 0) > chance]
    return sorted(above, key=lambda rule: -(found[rule].value or 0))


@cache
def of_run(runs: Runs, dataset: str) -> tuple[dict[str, Features], Measures]:
    """Return the features of each question in words, and their means; none without their file."""
    asked = examples(runs, dataset)
    known = features(asked, {})
    return dict(zip([one.key for one in asked], known, strict=True)), summary(known, runs.seed)


def small_print(runs: Runs, table: Table) -> str:
    """Name the shortcuts of the data sets that a table has measured numbers of."""
    lines = []
    for dataset in dict.fromkeys(table[table["measured"].notna()].get("dataset", ())):
        _, found = of_run(runs, dataset)
        rules = ", ".join(
            f"{rule.replace('_', ' ')} {shown(rule, found[rule])}" for rule in above_chance(found)
        )
        if rules:
            lines.append(f"Shortcuts of {dataset}: {rules}; at random {found[CHANCE].value:.0%}.")
    return " ".join(lines)


def shown(name: str, measure: Measure) -> str:
    """Write a measure with its interval, a share as per cent."""
    ends = (measure.value, measure.low, measure.high)
    value, low, high = (f"{end or 0:{'.1f' if 'length' in name else '.0%'}}" for end in ends)
    return f"{value} [{low}, {high}]"


def split(runs: Runs, variant: Variant) -> Measures:
    """Return accuracy and kept gold documents where the best rule that reads nothing finds a gold
    document, and elsewhere; nothing where no such rule is above chance.
    """
    known, found = of_run(runs, variant.dataset)
    measures = {}
    for rule in [rule for rule in above_chance(found) if rule in BLIND][:1]:
        for name, metric in (("accuracy", None), ("gold_kept", "kept_gold_recall")):
            scores = scored(runs, variant, metric).items()
            for part, is_found in ((f"where_{rule}", True), ("elsewhere", False)):
                keys = {key for key in known if (known[key].get(rule, 0) > 0) == is_found}
                values = [score for key, score in scores if key in keys]
                measures[f"{name}_{part}"] = mean(values, runs.seed, limits=SHARE)
    return measures


def _choices(example: Example) -> tuple[Sequence[Document], list[int]]:
    """Return what rules choose among, and which are gold: documents, or parts of a single text."""
    if len(example.documents) > 1:
        return example.documents, list(example.gold)
    text = example.documents[0].text
    size = -(-len(text) // PARTS)
    parts = [Document("", text[start : start + size]) for start in range(0, len(text), size)]
    gold = {i for s in example.gold_stretches for i in range(s.start // size, -(-s.stop // size))}
    return parts, sorted(gold)
