"""Chooses the hard distractors of our own questions: the nearest passages that do not hold the answer.

Embedding all passages takes minutes, and another machine's rounding could choose other passages. So the choice is
made once and stored beside the questions, as numbers of passages, with a digest of questions and passages:

    PYTHONPATH=src python tests/support/choose_distractors.py
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest

import numpy as np

from ragauge import assets
from ragauge.datasets._wiki import DOCUMENTS, QUESTIONS, SAMPLE, WikiCorpus, WikiQuestion, digest, read_questions
from ragauge.io import wikipedia
from ragauge.metrics import normalise
from ragauge.rankers.bm25 import CorpusBM25
from ragauge.rankers.dense import load_encoder

ENCODER = "minilm"  # its name in the catalog of assets
Encode = Callable[[Sequence[str]], np.ndarray]  # texts -> (text, dim) float32, of length 1


class NearPassages:
    """Passages near to a query, by words and by meaning."""

    def __init__(self, corpus: WikiCorpus, embeddings: np.ndarray) -> None:
        """Take the passages and their embeddings (passage, dim) float32, of length 1."""
        self.bm25 = CorpusBM25([f"{passage.title} {passage.text}" for passage in corpus.passages])
        self.embeddings = embeddings

    def orders(self, query: str, embedding: np.ndarray) -> Iterator[list[int]]:
        """Order passages nearest first, by BM25 where a word agrees, and by the encoder's cosine.

        Ties keep the order of the text; cosines are rounded, for one order whatever library sums the products.
        """
        [lexical] = self.bm25.scores([query])
        yield _descending(lexical)[: np.count_nonzero(lexical)]
        yield _descending(np.round(self.embeddings @ embedding, 4))


def choose(
    questions: Sequence[WikiQuestion], corpus: WikiCorpus, near: NearPassages, encode: Encode
) -> dict[str, list[int]]:
    """Choose for each question's id the neighbours of the question and, for two hops, of the bridge."""
    queries = [[q.question, *q.bridge[:1]] for q in questions]
    embeddings = iter(encode([query for group in queries for query in group]))
    texts, chosen = [normalise(passage.text) for passage in corpus.passages], {}
    for question, group in zip(questions, queries, strict=True):
        gold = corpus.gold(question)
        orders = [order for query in group for order in near.orders(query, next(embeddings))]
        answers = [normalise(answer) for answer in question.answers]
        excluded = {i for i, text in enumerate(texts) if any(answer in text for answer in answers)} | set(gold)
        chosen[question.id] = in_turns(orders, excluded, DOCUMENTS - len(gold))
    return chosen


def in_turns(orders: Iterable[Sequence[int]], excluded: set[int], count: int) -> list[int]:
    """The first `count` different passages of the orders, taken in turns, that are not excluded."""
    turns = (i for turn in zip_longest(*orders) for i in turn if i is not None and i not in excluded)
    return list(dict.fromkeys(turns))[:count]


def _descending(scores: np.ndarray) -> list[int]:
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


def main() -> None:
    """Choose the distractors of all questions of the package and store them in it."""
    corpus, encode = WikiCorpus(wikipedia.read_passages(assets.resolve(SAMPLE))), load_encoder(ENCODER).encode
    near = NearPassages(corpus, encode([f"{passage.title}\n{passage.text}" for passage in corpus.passages]))
    for path in sorted(QUESTIONS.glob("*.jsonl")):
        questions = read_questions(path)
        rows = [f'    "{key}": {rows}' for key, rows in choose(questions, corpus, near, encode).items()]
        made_from = digest(questions, corpus.passages)
        lines = ["{", f'  "made_from": "{made_from}",', '  "distractors": {', ",\n".join(rows), "  }", "}"]
        path.with_suffix(".distractors.json").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
