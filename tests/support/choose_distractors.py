"""Chooses the hard distractors of our own questions: the nearest passages that do not hold the
answer.

Embedding all passages takes minutes, and another machine's rounding could choose other passages. So
the choice is made once and stored beside the questions, as numbers of passages, with a digest of
questions and passages:

    PYTHONPATH=src python tests/support/choose_distractors.py
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest

import numpy as np

from ragauge.assets import resolver
from ragauge.datasets._wiki import (
    DOCUMENTS,
    QUESTIONS,
    SAMPLE,
    digest,
    gold_passages,
    read_questions,
)
from ragauge.datasets.base import wikipedia
from ragauge.methods.rankers.bm25 import CorpusBM25
from ragauge.methods.rankers.dense import load_encoder
from ragauge.metrics.base import normalise

ENCODER = "minilm"  # its name in the catalog of assets
Encode = Callable[[Sequence[str]], np.ndarray]  # texts -> (text, dim) float32, of length 1


def choose(questions, passages, embeddings, encode):
    """Choose for each question's id the neighbours of the question and, for two hops, of the
    bridge.

    Passages are ordered nearest first, by BM25 where a word agrees, and by the cosine of their
    `embeddings` (passage, dim) float32, of length 1. Ties keep the order of the text; cosines are
    rounded, for one order whatever library sums the products.
    """
    lexical = CorpusBM25([f"{passage.title} {passage.text}" for passage in passages])
    texts = [normalise(passage.text) for passage in passages]
    chosen = {}
    for question in questions:
        gold = gold_passages(question, passages)
        queries = [question.question, *question.bridge[:1]]
        orders = []
        for scores, embedding in zip(lexical.scores(queries), encode(queries), strict=True):
            cosines = np.round(embeddings @ embedding, 4)
            orders += [_descending(scores)[: np.count_nonzero(scores)], _descending(cosines)]
        answers = [normalise(answer) for answer in question.answers]
        excluded = {
            i for i, text in enumerate(texts) if any(answer in text for answer in answers)
        } | set(gold)
        chosen[question.id] = in_turns(orders, excluded, DOCUMENTS - len(gold))
    return chosen


def in_turns(orders, excluded, count):
    """The first `count` different passages of the orders, taken in turns, that are not excluded."""
    turns = (
        i for turn in zip_longest(*orders) for i in turn if i is not None and i not in excluded
    )
    return list(dict.fromkeys(turns))[:count]


def _descending(scores):
    return np.argsort(-scores, kind="stable").tolist()


def main():
    """Choose the distractors of all questions of the package and store them in it."""
    passages = wikipedia.read_passages(resolver.resolve(SAMPLE))
    encode = load_encoder(ENCODER).encode
    embeddings = encode([f"{passage.title}\n{passage.text}" for passage in passages])
    for path in sorted(QUESTIONS.glob("*.jsonl")):
        questions = read_questions(path)
        rows = [
            f'    "{key}": {rows}'
            for key, rows in choose(questions, passages, embeddings, encode).items()
        ]
        made_from = digest(questions, passages)
        lines = [
            "{",
            f'  "made_from": "{made_from}",',
            '  "distractors": {',
            ",\n".join(rows),
            "  }",
            "}",
        ]
        path.with_suffix(".distractors.json").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
