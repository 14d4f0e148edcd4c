"""Checks of the Qwen run, from its committed records: what a document's length alone finds, and
seconds by what was read before the question.

    python reports/qwen_checks.py    # writes reports/reference-qwen/checks.csv

`gold is shortest`: no document of the question has fewer tokens than the gold one. `seconds_25`
adds 20 further tokens to the 5 that were timed.
"""

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from ragauge.results.stats import SHARE, paired_test

RUN = Path(__file__).parent / "reference-qwen"
COLUMNS = ["model", "variant", "quantity", "part", "measured", "low", "high", "p", "n"]
FIRST_QUESTIONS = {
    "qwen2.5-coder-1.5b-instruct": "nq_open",
    "qwen2.5-coder-0.5b-instruct": "nq_open_150",
}
HELD_BACK = "nq_open_held_back"
ATTENTION = "superposition_attention"
BAYESIAN = "superposition_k1"
SUMMED = "attention, summed"
SCORED = (ATTENTION, BAYESIAN, "superposition_k8", "naive", "dense_k1", "dense_k4")
PAIRS = (
    (BAYESIAN, "naive"),
    (ATTENTION, "naive"),
    (ATTENTION, BAYESIAN),
    ("dense_k1", BAYESIAN),
    ("dense_k4", "naive"),
    (BAYESIAN, "superposition_k8"),
)
TIMED = (BAYESIAN, "naive", "dense_k1", "prompt_cache", "parallel_experts")
Record = dict[str, Any]


def records(model: str, dataset: str, variant: str) -> list[Record]:
    """Read the records of a variant."""
    path = RUN / "answers" / dataset / model / f"{variant}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def questions(model: str) -> pd.DataFrame:
    """Each question with its part of the run, its scores, and what two rankers did."""
    scores = pd.read_csv(RUN / "scores.csv")
    scores = scores[scores["model"] == model].set_index("question")[list(SCORED)]
    rows = []
    for dataset, part in ((FIRST_QUESTIONS[model], "first"), (HELD_BACK, "held back")):
        ranked = (records(model, dataset, variant) for variant in (ATTENTION, BAYESIAN))
        for by_attention, by_bayes in zip(*ranked, strict=True):
            lengths = np.array(by_attention["tokens"]["documents"])
            saliency = np.array(by_attention["saliency"])
            gold = by_attention["gold"][0]
            rows.append(
                {
                    "question": by_attention["key"],
                    "part": part,
                    "is_shortest": lengths[gold] == lengths.min(),
                    f"{ATTENTION} finds": gold in by_attention["kept"],
                    f"{BAYESIAN} finds": gold in by_bayes["kept"],
                    f"{SUMMED} finds": (saliency * lengths)[gold] == (saliency * lengths).max(),
                    "correlation": spearmanr(saliency, lengths).statistic,
                }
            )
    return pd.DataFrame(rows).set_index("question").join(scores)


def accuracy_rows(model: str) -> Iterator[Record]:
    """Who is right and who finds the gold document, for each part of the questions."""
    everything = questions(model)
    yield row("", "gold_is_shortest", everything["is_shortest"])
    yield row(ATTENTION, "correlation_with_length", everything["correlation"])
    parts = {
        "all": everything,
        "first": everything[everything["part"] == "first"],
        "held back": everything[everything["part"] == "held back"],
        "gold is shortest": everything[everything["is_shortest"]],
        "gold is not shortest": everything[~everything["is_shortest"]],
    }
    for part, members in parts.items():
        for variant in (ATTENTION, BAYESIAN, SUMMED):
            yield row(variant, "gold_found", members[f"{variant} finds"], part)
        for variant in SCORED:
            yield row(variant, "accuracy", members[variant], part)
        for a, b in PAIRS:
            test = paired_test(members[a], members[b], limits=SHARE)
            difference = {"variant": f"{a} − {b}", "quantity": "accuracy_difference", "part": part}
            yield {**difference, "measured": test["difference"], **test}


def time_rows(model: str) -> Iterator[Record]:
    """Seconds of the question, of the documents before it, and the size of what was stored."""
    dataset = FIRST_QUESTIONS[model]
    latency = json.loads(gzip.decompress((RUN / f"latency/{dataset}/{model}.json.gz").read_bytes()))
    summaries = next(iter(latency["states"].values()))["summary"]
    for variant in TIMED:
        summary = summaries[variant]
        total = summary["total_s"]["median"]
        yield {"variant": variant, "quantity": "seconds_5", "measured": total}
        later = total + 20 * summary["per_token_s"]["median"]
        yield {"variant": variant, "quantity": "seconds_25", "measured": later}
        answers = records(model, dataset, variant)
        medians = {
            "preparation_s": [
                sum(call["seconds"] for call in answer["trace"] if call.get("offline"))
                for answer in answers
            ],
            "cache_mb": [answer["cache_bytes"] / 1e6 for answer in answers],
            "response_tokens": [answer["tokens"]["generated"] for answer in answers],
        }
        for quantity, values in medians.items():
            yield row(variant, quantity, values, statistic="median")
    trials = [trial for trial in latency["rows"] if trial["variant"] == "context_pilot"]
    if trials:  # the full prompt in two parts: its documents, and the question behind them
        documents = [trial["stages"]["documents"] for trial in trials]
        yield row("naive", "documents_s", documents, statistic="median")
        question = median(trial["stages"]["prompt"] + trial["stages"]["decode"] for trial in trials)
        yield {"variant": "naive", "quantity": "cached_seconds_5", "measured": question}
        later = question + 20 * median(trial["per_token_s"] for trial in trials)
        yield {"variant": "naive", "quantity": "cached_seconds_25", "measured": later}


def row(
    variant: str, quantity: str, values: Any, part: str = "all", statistic: str = "mean"
) -> Record:
    numbers = pd.Series(values, dtype=float)
    names = {"variant": variant, "quantity": quantity, "part": part}
    return {**names, "measured": float(numbers.agg(statistic)), "n": len(numbers)}


def table() -> list[dict[str, str]]:
    """The rows as they are written."""
    rows = [
        {"model": model, **found}
        for model in FIRST_QUESTIONS
        for found in (*accuracy_rows(model), *time_rows(model))
    ]
    return [{name: shown(found.get(name, "")) for name in COLUMNS} for found in rows]


def shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    with (RUN / "checks.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table())
