"""The data set and the configuration of a study."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ragauge.datasets.study import RETRIEVAL
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion

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
DATA, FOUND = "questions.jsonl", RETRIEVAL  # of a study's folder
NEW_TOKENS = 32  # of an answer


def records(
    questions: Sequence[StudyQuestion],
    passages: Sequence[Passage],
    found: Sequence[Sequence[int]],
    gold: Sequence[Sequence[int]],
) -> Iterator[dict[str, Any]]:
    """The lines of the data set `study`.

    Args:
        found, gold: (question, any) passages that retrieval found, the best first, and those that answer the question.
    """
    for question, places, answering in zip(questions, found, gold, strict=True):
        known = set(answering)
        documents = [
            {
                "title": passages[i].document,
                "text": passages[i].text,
                "is_gold": i in known,
                "near_duplicate": passages[i].near_duplicate,
            }
            for i in places
        ]
        yield {
            "id": question.key,
            "question": question.question,
            "answers": list(question.answers),
            "documents": documents,
        }


def configuration(
    name: str, model: str, data: Path, *, retrieval: bool = True, seed: int = 0, judge: str | None = None
) -> dict[str, Any]:
    """The experiment: every method on the study's questions, timed, as an item and a page.

    Args:
        retrieval: whether it is known what retrieval should have found.
        judge: a model here that judges the answers, or `endpoint`.
    """
    timed = [method for method in METHODS if method not in UNTIMED]
    return {
        "run": name,
        "seed": seed,
        "models": {label(re.split(r"[/:]", model.rstrip("/"))[-1]): {"source": model, "dtype": "auto"}},
        "datasets": {"questions": {"dataset": "study", "data": str(data), "max_new_tokens": NEW_TOKENS}},
        "methods": copy.deepcopy(METHODS),
        "latency": {"methods": timed, "dataset": "questions", **LATENCY},
        **({"judge": {"of": "answers", "methods": list(METHODS), "model": judge}} if judge else {}),
        "items": ["frontier", "study_answers", *(["study_retrieval"] if retrieval else [])],
    }


def label(name: str) -> str:
    """A name as configurations take it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-") or "study"


def encoded(lines: Iterator[dict[str, Any]]) -> bytes:
    """Records as a file of JSON lines holds them."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
