"""The data set and the configuration of a study."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragauge.errors import UserError
from ragauge.metrics import best_subspan_em
from ragauge.study.passages import Passage
from ragauge.study.questions import Question

METHODS: dict[str, dict[str, Any]] = {
    "closed_book": {},
    "naive": {},
    "prompt_cache": {},
    "bm25_k1": {"method": "bm25", "top_k": 1},
    "bm25_k2": {"method": "bm25", "top_k": 2},
    "dense_k1": {"method": "dense", "top_k": 1},
    "dense_k2": {"method": "dense", "top_k": 2},
    "superposition_k1": {"method": "superposition", "top_k": 1},
    "superposition_k2": {"method": "superposition", "top_k": 2},
}
UNTIMED = ("closed_book",)  # it reads no documents, so that its time is of another kind
LATENCY = {"trials": 5, "warmup": 1}
DATA = "questions.jsonl"  # of a study's folder
NEW_TOKENS = 32  # of an answer


def retrieved(questions: Sequence[Question], passages: Sequence[Passage], count: int) -> Iterator[list[int]]:
    """The passages nearest to each question by BM25 over the whole corpus, the best first."""
    import bm25s

    index = bm25s.BM25(k1=1.5, b=0.75)
    index.index(_words([f"{p.document} {p.text}" for p in passages]), show_progress=False)
    for question in questions:
        scores = index.get_scores(_words([question.question])[0])
        yield np.argsort(-scores, kind="stable")[:count].tolist()


def _words(texts: list[str]) -> list[list[str]]:
    import bm25s

    words: list[list[str]] = bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)
    return words


def records(
    questions: Sequence[Question], passages: Sequence[Passage], found: Sequence[Sequence[int]]
) -> Iterator[dict[str, Any]]:
    """The lines of the data set `study`. Raises UserError if a question's gold document is not in the corpus."""
    titles = {passage.document for passage in passages}
    for question, places in zip(questions, found, strict=True):
        if question.gold is not None and question.gold not in titles:
            raise UserError(f"question {question.question!r}: gold {question.gold!r} is no document of the corpus")
        documents = [
            {"title": p.document, "text": p.text, "is_gold": _is_gold(question, p)}
            for p in (passages[i] for i in places)
        ]
        yield {
            "id": question.key,
            "question": question.question,
            "answers": list(question.answers),
            "documents": documents,
        }


def _is_gold(question: Question, passage: Passage) -> bool:
    """Whether a passage holds an answer, in the gold document where it is known."""
    text = " ".join(passage.text.split())
    holds = best_subspan_em.score({"prediction": text, "answers": question.answers}) == 1
    return holds and question.gold in (None, passage.document)


def configuration(name: str, model: str, data: Path) -> dict[str, Any]:
    """The experiment: every method on the study's questions, timed, as an item and a page."""
    timed = [method for method in METHODS if method not in UNTIMED]
    return {
        "run": name,
        "models": {label(re.split(r"[/:]", model.rstrip("/"))[-1]): {"source": model, "dtype": "auto"}},
        "datasets": {"questions": {"dataset": "study", "data": str(data), "max_new_tokens": NEW_TOKENS}},
        "methods": METHODS,
        "latency": {"methods": timed, "dataset": "questions", **LATENCY},
        "items": ["frontier"],
    }


def label(name: str) -> str:
    """A name as configurations take it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-") or "study"


def encoded(lines: Iterator[dict[str, Any]]) -> bytes:
    """Records as a file of JSON lines holds them."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
