"""The data set and the configuration of a study."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragauge.datasets import study
from ragauge.io.jsonl import JsonObject
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion
from ragauge.text import clean

REFERENCES = ("closed_book", "naive", "top_k1")  # what the others are compared with
METHODS: dict[str, JsonObject] = {
    "closed_book": {},
    "naive": {},
    **{f"top_k{k}": {"method": "top", "top_k": k} for k in (1, 2, 3, 5)},
    "context_pilot": {},
    "sentence_pruning": {},
    "prompt_cache": {},
    **{f"superposition_k{k}": {"method": "superposition", "top_k": k} for k in (1, 2)},
}
UNTIMED = ("closed_book",)  # it reads no documents, so that its time is of another kind
LATENCY = {"trials": 5, "warmup": 1}
CONFIG = "config.yaml"
DATA = "questions.jsonl"
PASSAGES = "passages.jsonl"  # that retrieval searches
EMBEDDINGS = "embeddings"  # folder of those of the passages
RETRIEVAL = study.RETRIEVAL  # files of a study's folder
DATASET = "questions"  # the label of its data set
NEW_TOKENS = 32  # of an answer


def records(
    questions: Sequence[StudyQuestion],
    passages: Sequence[Passage],
    nearest: Sequence[Sequence[int]],
    gold: Sequence[Sequence[int]],
) -> Iterator[JsonObject]:
    """Make the lines of the data set `study`. `nearest`: (question, any) passages that retrieval
    found, the best first; `gold`: those that answer the question.
    """
    for question, numbers, answering in zip(questions, nearest, gold, strict=True):
        documents = [
            {
                "title": p.document,
                "text": p.text,
                "is_gold": i in answering,
                "near_duplicate": p.near_duplicate,
            }
            for i, p in ((i, passages[i]) for i in numbers)
        ]
        yield {
            "id": question.key,
            "question": clean(question.question),
            "answers": list(map(clean, question.answers)),
            "documents": documents,
        }


def configuration(
    name: str,
    model: Mapping[str, Any],
    data: Path,
    *,
    methods: Sequence[str] = tuple(METHODS),
    retrieval: bool = True,
    seed: int = 0,
    judge: str | None = None,
    target_first_token_s: float | None = None,
) -> JsonObject:
    """Configure the experiment: every method on the study's questions, timed, as an item and a
    page. `model` is its entry of the configuration, with `source`, and `methods` those that its
    engine runs. With `retrieval` some question has a gold passage. `judge` is a local model, or
    `endpoint`.
    """
    source = str(model["source"])
    entry = dict(model)
    settings = {
        "run": name,
        "seed": seed,
        "models": {label(re.split(r"[/:]", source.rstrip("/"))[-1]): entry},
        "datasets": {
            DATASET: {"dataset": "study", "data": str(data), "max_new_tokens": NEW_TOKENS}
        },
        "methods": {method: dict(METHODS[method]) for method in methods},
    }
    if source.startswith("openai:"):
        entry["served"] = {**model.get("served", {}), "own_cache": True}
    else:  # of a decoder here, not of a server
        timed = [method for method in methods if method not in UNTIMED]
        settings["latency"] = {"methods": timed, "dataset": DATASET, **LATENCY}
    if target_first_token_s:
        settings["target_first_token_s"] = target_first_token_s
    if judge:
        settings["judge"] = {"of": "answers", "methods": list(methods), "model": judge}
    items = ["frontier", "study_answers"]
    if retrieval:
        items.append("study_retrieval")
    return {**settings, "items": items}


def label(name: str) -> str:
    """Turn a name into one that configurations accept."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-") or "study"
