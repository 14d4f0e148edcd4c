"""Files of a run besides its records: documents, training data, judgements; and fields that metrics
compare records with.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ragauge.datasets.base.dataset import Document, Example
from ragauge.datasets.base.examples import read_examples
from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject, read_jsonl
from ragauge.methods.evidence.human_judgements import HumanJudgement, read_human_judgements
from ragauge.results.cells import Keys
from ragauge.results.runs import Runs, Variant

OF_ANSWERS = ("correct", "incorrect")  # labels of a judge of answers; others are of evidence


@cache
def examples(runs: Runs, dataset: str) -> list[Example]:
    """The questions of a data set; none if the run does not hold it."""
    path = runs.folder / "data" / f"{dataset}.jsonl"
    return read_examples(path) if path.is_file() else []


def documents(runs: Runs, dataset: str) -> dict[str, tuple[Document, ...]]:
    """The documents of each question, by its key; none if the run does not hold the data set."""
    return {one.key: one.documents for one in examples(runs, dataset)}


def training_spans(runs: Runs, training: str) -> list[tuple[int, str, str]] | None:
    """(spans with a question, text, corpus) of each stretch of an article that is trained on; None
    without data.
    """
    path = runs.folder / "training" / training / "data" / "train.jsonl"
    if not path.is_file():
        return None
    return [
        (len(line["spans"]), line["text"], line["key"].partition("/")[0])
        for _, line in read_jsonl(path)
    ]


def judgements(variant: Variant, aspect: str | None = None) -> dict[str, Keys]:
    """The judgements of a variant's evidence or answers by question, the last of each, of an aspect
    (`faithfulness`) or none. Truncated lines, which a kill may leave, are skipped; UserError if a
    line is JSON but not a judgement.
    """
    folder = variant.runs.folder
    path = folder / "judgements" / variant.dataset / variant.model / f"{variant.name}.jsonl"
    by_key: dict[str, Keys] = {}
    for line in path.read_bytes().split(b"\n") if path.is_file() else ():
        try:
            judgement = json.loads(line)
            if judgement.get("aspect") == aspect:
                by_key[judgement["key"]] = judgement
        except (ValueError, RecursionError):
            continue
        except (KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: a line is not a judgement: {error!r}") from error
    return by_key


def human_judgements(variant: Variant) -> dict[str, list[HumanJudgement]]:
    """People's judgements of a variant's evidence, by the questions that it answered; empty if
    there are none.
    """
    path = variant.runs.config.human_judgements
    by_key: dict[str, list[HumanJudgement]] = {}
    for one in read_human_judgements(Path(path)).values() if path else ():
        own = (one.dataset, one.model, one.variant) == (
            variant.dataset,
            variant.model,
            variant.name,
        )
        if own and one.key in variant.answered:
            by_key.setdefault(one.key, []).append(one)
    return by_key


def compared_fields(variant: Variant, metric: str) -> dict[str, JsonObject]:
    """The fields of a variant's records by question, with what a metric compares them with, where
    it is known.
    """
    if metric not in COMPARED:
        return variant.fields
    field, values_of = COMPARED[metric]
    values = values_of(variant)
    return {key: {**fields, field: values.get(key)} for key, fields in variant.fields.items()}


def _full_prompt_answers(variant: Variant) -> dict[str, str]:
    """The answers from all documents in one prompt."""
    plain = variant.group.naive
    records = plain.answered if plain else {}
    return {key: record.prediction for key, record in records.items()}


def _selected_texts(variant: Variant) -> dict[str, list[str]]:
    """The texts of the documents that each answer was generated from."""
    texts = documents(variant.runs, variant.dataset)
    return {
        key: [texts[key][i].text for i in record.kept if i < len(texts[key])]
        for key, record in variant.records.items()
        if key in texts
    }


def _labels(variant: Variant) -> dict[str, str]:
    """The judge's label of each answer; a failed question, which the judge skips, is incorrect."""
    judged = {key: line.get("label") for key, line in judgements(variant).items()}
    labels = {key: label for key, label in judged.items() if label in OF_ANSWERS}
    if labels:  # not of evidence
        labels |= dict.fromkeys(judged.keys() & variant.failed.keys(), "incorrect")
    return labels


# metric -> the field that it compares a record with, and the values of that field by question
COMPARED: dict[str, tuple[str, Callable[[Variant], Keys]]] = {
    "agreement": ("full_prompt", _full_prompt_answers),
    "groundedness": ("passages", _selected_texts),
    "judged_correct": ("judged", _labels),
}
