"""Shortcuts of data sets: how often rules that read nothing, or count common words alone, find the
gold document; and what the questions of a data set have in common.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import compress, pairwise

import numpy as np

from ragauge.datasets.base.dataset import Example
from ragauge.metrics.base import normalise
from ragauge.results.cells import Measures, Table, mean
from ragauge.results.materials import examples
from ragauge.results.measures import scored
from ragauge.results.runs import Runs, Variant
from ragauge.results.stats import SHARE
from ragauge.text import terms

NEAR = 0.8  # Jaccard similarity of the words of two questions from which they are near-duplicates
CHANCE = "gold_at_random"
BLIND = ("gold_is_shortest", "gold_is_longest", "gold_is_first", "gold_is_last")  # read nothing
# of the question's words, and of its pairs of words that follow one another
OF_WORDS = ("gold_has_most_title_words", "gold_has_most_words", "gold_has_most_word_pairs")
RULES = (*BLIND, *OF_WORDS)
Features = dict[str, float]  # of a question


def features(questions: Sequence[Example]) -> list[Features]:
    """Return what is known of each question's gold documents.

    By rule the share of gold in its choice: 1, 0, or between them where it cannot tell documents
    apart; absent where no document, or every one, is gold. Lengths are in words, titles included.
    `answer_elsewhere`: an answer stands in another document, as whole words. `near_duplicate`:
    another question has about the same words. `shared_gold`: another one has the same gold
    document, or stretch of it where those are known. `place_of_gold`: of the middle of the stretches
    in their document, from 0 at its beginning to 1.
    """
    golden = [
        {example.documents[s.document].text[s.start : s.stop] for s in example.gold_stretches}
        or {example.documents[i].text for i in example.gold}
        for example in questions
    ]
    uses = Counter(text for texts in golden for text in texts)
    asked = [terms(example.question) for example in questions]
    words = [*map(set, asked)]
    known = []
    for example, texts, question, own in zip(questions, golden, asked, words, strict=True):
        documents = example.documents
        found: Features = {
            "near_duplicate": sum(len(own & w) >= NEAR * len(own | w) for w in words) > 1,
            "shared_gold": any(uses[text] > 1 for text in texts),
        }
        for s in example.gold_stretches:
            found["place_of_gold"] = (s.start + s.stop) / 2 / len(documents[s.document].text)
        place = np.arange(len(documents))
        gold = np.isin(place, example.gold)
        if gold.any() and not gold.all():
            titles = [terms(document.title) for document in documents]
            whole = [terms(f"{document.title} {document.text}") for document in documents]
            shared = [np.array([len(own & {*w}) for w in some]) for some in (titles, whole)]
            pairs = {*pairwise(question)}
            shared.append(np.array([len(pairs & {*pairwise(w)}) for w in whole]))
            sizes = np.array([*map(len, whole)])
            scores = (0 * place, -sizes, sizes, -place, place, *shared)
            for rule, score in zip((CHANCE, *RULES), scores, strict=True):
                found[rule] = gold[score == score.max()].mean()
            found["length_of_gold"] = sizes[gold].mean()
            found["length_of_others"] = sizes[~gold].mean()
            others = "".join(f" {normalise(d.text)} |" for d in compress(documents, ~gold))
            found["answer_elsewhere"] = any(f" {normalise(a)} " in others for a in example.answers)
        known.append(found)
    return known


def summary(known: Sequence[Features], seed: int) -> Measures:
    """Return the mean of each feature over the questions that have it."""
    import pandas as pd

    return {
        str(name): mean([*map(float, of.dropna())], seed, limits=None if name == CHANCE else SHARE)
        for name, of in pd.DataFrame(known).items()
    }


def above_chance(found: Measures) -> list[str]:
    """Return the rules whose interval is above the share of a random choice, the best first."""
    above = [r for r in RULES if r in found and (found[r].low or 0) > (found[CHANCE].value or 0)]
    return sorted(above, key=lambda rule: found[rule].value or 0, reverse=True)


@cache
def of_run(runs: Runs, dataset: str) -> tuple[dict[str, Features], Measures]:
    """Return the features of each question, and their means; none without the
    questions' file, which may hold more.
    """
    entry = runs.config.datasets.get(dataset)
    questions = examples(runs, dataset)[: entry.limit if entry else None]
    known = features(questions)
    return dict(zip([question.key for question in questions], known, strict=True)), summary(
        known, runs.seed
    )


def small_print(runs: Runs, table: Table) -> str:
    """Name the shortcuts of the data sets that a table has measured numbers of."""
    text = ""
    for dataset in dict.fromkeys(table[table["measured"].notna()].get("dataset", ())):
        _, found = of_run(runs, dataset)
        rules = [f"{r.replace('_', ' ')} {found[r].value:.0%}" for r in above_chance(found)]
        if rules and runs.registered(dataset) != "study":  # whose order is that of retrieval
            chance = f"at random {found[CHANCE].value:.0%}"
            text += f" Shortcuts of {dataset}: {', '.join(rules)} ({chance})."
    return text


def split(variant: Variant) -> Measures:
    """Return accuracy and kept gold documents where the best rule that reads nothing finds a gold
    document, and elsewhere; nothing where no such rule is above chance.
    """
    known, found = of_run(variant.runs, variant.dataset)
    measures = {}
    for rule in [rule for rule in above_chance(found) if rule in BLIND][:1]:
        right = {key for key in known if known[key].get(rule)}
        for name, metric in (("accuracy", None), ("gold_kept", "kept_gold_recall")):
            scores = scored(variant, metric).items()
            for part, keys in ((f"where_{rule}", right), ("elsewhere", known.keys() - right)):
                values = [score for key, score in scores if key in keys]
                nothing = "no record holds it" if keys else "no question of this part"
                measures[f"{name}_{part}"] = mean(
                    values, variant.runs.seed, nothing=nothing, limits=SHARE
                )
    return measures
