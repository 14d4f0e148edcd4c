"""Hard distractors for our own questions: the passages nearest to a question that do not hold its answer.

Embedding all passages takes minutes, and another machine's rounding could choose other passages. So the choice is
made once and kept beside the questions, as numbers of passages, with a digest of what it was made from:

    python -m ragauge.datasets._distractors

Where the questions or passages at hand have another digest, the distractors are chosen anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.datasets._wiki_corpus import DOCUMENTS, QUESTIONS, SAMPLE, WikiCorpus, WikiQuestion, read_questions
from ragauge.io import wikipedia
from ragauge.io.progress import bar
from ragauge.io.wikipedia import ArticlePassage

ENCODER = "minilm"  # its name in the catalog of assets
EMBEDDED_AT_ONCE = 256  # passages between two updates of the progress bar
Encode = Callable[[Sequence[str]], np.ndarray]  # texts -> (text, dim) float32, of length 1


def of(path: Path, questions: Sequence[WikiQuestion], corpus: WikiCorpus) -> Mapping[str, Sequence[int]]:
    """The distractors of each question's id, the hardest first: the kept ones where they fit, else chosen anew.

    Args:
        path: the file of the questions.
        questions: what it holds.
        corpus: the passages, which the numbers count.
    """
    file = kept(path)
    if file.is_file():
        found = json.loads(file.read_bytes())
        if found["made_from"] == digest(questions, corpus.passages):
            chosen: dict[str, list[int]] = found["distractors"]
            return chosen
    return choose_embedded(questions, corpus)


def kept(path: Path) -> Path:
    """Where the distractors of a file of questions are kept."""
    return path.with_suffix(".distractors.json")


def choose_embedded(questions: Sequence[WikiQuestion], corpus: WikiCorpus) -> dict[str, list[int]]:
    """`choose` with the encoder of this module, from the embeddings of all passages."""
    from ragauge.rankers.dense import load_encoder

    return choose(
        questions, corpus, NearPassages(corpus.passages, _embedded(corpus.passages)), load_encoder(ENCODER).encode
    )


def choose(
    questions: Sequence[WikiQuestion], corpus: WikiCorpus, near: NearPassages, encode: Encode
) -> dict[str, list[int]]:
    """For each question's id the neighbours of the question and, for two hops, of the bridge; none holds an answer."""
    queries = [[q.question, *q.bridge[:1]] for q in questions]
    embeddings = iter(encode([query for group in queries for query in group]))
    chosen = {}
    for question, group in zip(questions, queries, strict=True):
        gold = corpus.gold(question)
        orders = [order for query in group for order in near.orders(query, next(embeddings))]
        barred = corpus.holding(question.answers) | set(gold)
        chosen[question.id] = in_turns(orders, barred, DOCUMENTS - len(gold))
    return chosen


def in_turns(orders: Iterable[Sequence[int]], barred: set[int], count: int) -> list[int]:
    """The first `count` different passages of the orders, taken in turns, that are not barred."""
    turns = (i for turn in zip_longest(*orders) for i in turn if i is not None and i not in barred)
    return list(dict.fromkeys(turns))[:count]


def digest(questions: Sequence[WikiQuestion], passages: Sequence[ArticlePassage]) -> str:
    """Hex digest of all that a choice depends on but the code: questions and passages, in order."""
    parts = [json.dumps(asdict(question)) for question in questions] + _texts(passages)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class NearPassages:
    """Passages near to a query, by words and by meaning."""

    def __init__(self, passages: Sequence[ArticlePassage], embeddings: np.ndarray) -> None:
        """Take the passages and their embeddings (passage, dim) float32, of length 1."""
        self.passages, self.embeddings = passages, embeddings

    def orders(self, query: str, embedding: np.ndarray) -> Iterator[list[int]]:
        """Two orders of passages, nearest first: by BM25 where a word agrees, and by the encoder's cosine.

        Ties keep the order of the text; cosines are rounded, for one order whatever library sums the products.
        """
        lexical = self._bm25.get_scores(_words([query])[0])
        yield _descending(lexical)[: np.count_nonzero(lexical)]
        yield _descending(np.round(self.embeddings @ embedding, 4))

    @cached_property
    def _bm25(self) -> Any:
        import bm25s

        index = bm25s.BM25(k1=1.5, b=0.75)
        index.index(_words([f"{p.title} {p.text}" for p in self.passages]), show_progress=False)
        return index


def _descending(scores: np.ndarray) -> list[int]:
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


def _words(texts: list[str]) -> list[list[str]]:
    """Words without stop words: among thousands of passages those only say that a query is a question."""
    import bm25s

    words: list[list[str]] = bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)
    return words


def _texts(passages: Sequence[ArticlePassage]) -> list[str]:
    return [f"{passage.title}\n{passage.text}" for passage in passages]


def _embedded(passages: Sequence[ArticlePassage]) -> np.ndarray:
    """Embeddings of all passages (passage, dim), made once and shared by the data sets."""
    from ragauge.assets import store

    texts = _texts(passages)
    home = store.Store(store.home())
    folder = home.build(home.folder("datasets", "wiki_embeddings", ENCODER, *texts), lambda f: _embed(f, texts))
    embeddings: np.ndarray = np.load(folder / "embeddings.npy", allow_pickle=False)
    return embeddings


def _embed(folder: Path, texts: Sequence[str]) -> dict[str, Any]:
    from ragauge.rankers.dense import load_encoder

    encoder = load_encoder(ENCODER)
    parts = []
    with bar("embedding the Wikipedia sample", "passage", len(texts)) as progress:
        for start in range(0, len(texts), EMBEDDED_AT_ONCE):
            parts.append(encoder.encode(texts[start : start + EMBEDDED_AT_ONCE]))
            progress.update(len(parts[-1]))
    np.save(folder / "embeddings.npy", np.concatenate(parts))
    return {"source": ENCODER, "passages": len(texts)}


def _write_kept() -> None:
    """Choose the distractors of all questions of the package and keep them in it."""
    from ragauge import assets

    corpus = WikiCorpus(wikipedia.read_passages(assets.resolve(SAMPLE)))
    for path in sorted(QUESTIONS.glob("*.jsonl")):
        questions = read_questions(path)
        rows = [f'    "{key}": {rows}' for key, rows in choose_embedded(questions, corpus).items()]
        made_from = digest(questions, corpus.passages)
        lines = ["{", f'  "made_from": "{made_from}",', '  "distractors": {', ",\n".join(rows), "  }", "}"]
        kept(path).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    _write_kept()
