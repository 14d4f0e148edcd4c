"""Published numbers that follow from sizes or from other published numbers: neither a model nor its
data is run.

Also PipeRAG's Figure 7, whose numbers are only drawn, from the seconds that Table 1 prints.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ragauge.cost import tokens
from ragauge.cost.cycles import kv_bytes
from ragauge.cost.overlap import OverlapWindow
from ragauge.measure.timing import shape_of
from ragauge.pipelines.retrieval import sizes
from ragauge.pipelines.retrieval.settings import DatabaseSettings
from ragauge.results.publications import read_csv

Value = tuple[float, str]  # a number on the scale that it is printed on, and its calculation
WINDOWS = 16  # of 64 tokens in PipeRAG's sequences of 1,024


def recomputed() -> dict[tuple[str, str, str], Value]:
    """By published table, row (its keys joined by commas) and column."""
    made: dict[tuple[str, str, str], Value] = {}
    for paper, by_item in {
        "superposition": _superposition(),
        "cfic": _cfic(),
        "piperag": _piperag(),
    }.items():
        for row in (row for row in read_csv(f"{paper}_statements") if row["item"] in by_item):
            keys = ", ".join(text for column, text in row.items() if column != "value" and text)
            made[f"{paper}_statements", keys, "value"] = by_item[row["item"]]
    for column, difference in (
        ("latency_s", "latency_difference_s"),
        ("perplexity", "perplexity_difference"),
    ):
        for dataset, of in _table_1(column).items():  # the numbers in brackets
            for system in ("retro", "piperag_s3"):
                value = (
                    of[system] - of["no_retrieval"],
                    f"{of[system]:g} - {of['no_retrieval']:g}",
                )
                made["piperag_table_1", f"{dataset}, {system}", difference] = value
    same = (1.0, "the cosine of a chunk with itself")
    sets = [row["dataset"] for row in read_csv("piperag_table_2") if row["stale_tokens"] == "0"]
    return made | {
        ("piperag_table_2", f"{dataset}, 0", "cosine_similarity"): same for dataset in sets
    }


def figure_7() -> Iterator[dict[str, Any]]:
    """RETRO and PipeRAG with a faster part, by `cost.overlap`: {"dataset", "faster", "retro_s",
    "piperag_s"}. S3's seconds are generation, as its searches are hidden; RETRO's beyond them are
    searches, and PipeRAG's as long.
    """
    for dataset, seconds in _table_1("latency_s").items():
        generation = seconds["piperag_s3"] / WINDOWS
        retrieval = (seconds["retro"] - seconds["piperag_s3"]) / WINDOWS
        for g, r in ((1, 1), (4, 1), (16, 1), (1, 4), (1, 16)):
            window = OverlapWindow(retrieval / r, generation / g, hidden=False)
            overlapped = window.seconds + (WINDOWS - 1) * replace(window, hidden=True).seconds
            faster = (
                "nothing"
                if g == r
                else f"generation {g} times"
                if g > 1
                else f"retrieval {r} times"
            )
            yield {
                "dataset": dataset,
                "faster": faster,
                "retro_s": WINDOWS * window.seconds,
                "piperag_s": overlapped,
            }


def _superposition() -> dict[str, Value]:
    prompt = tokens.load("paper")
    rest = prompt.total - sum(prompt.documents)
    count = len(prompt.documents)
    statistics = read_csv("superposition_dataset_statistics")
    document = next(
        float(row["average_document_tokens"]) for row in statistics if row["dataset"] == "nq_open"
    )
    around = (
        f"mean document ({document:g}) and the latency protocol's preamble, query and task ({rest})"
    )
    gains = []
    leads = []
    rows = {(row["model"], row["method"]): row for row in read_csv("superposition_table_1")}
    for model in dict.fromkeys(model for model, _ in rows):
        accuracy = {
            method: 100 * float(row["accuracy"])
            for (of, method), row in rows.items()
            if of == model
        }
        best = accuracy.pop("superposition")
        gains.append(best - accuracy["naive"])
        leads.append(best - max(accuracy.values()))
    reduction = float(rows["mpt-7b-instruct", "superposition"]["theoretical_speedup"])
    kilobytes = kv_bytes(shape_of("bloomz-7b1"), 1, "bfloat16") / 1000
    points = "Table 1, points: superposition -"
    return {
        "naive_sequence_length": (rest + count * document, f"{count} times the {around}"),
        "superposition_longest_path": (rest + document, f"the {around}"),
        "kv_cache_per_token_bloom_7b1": (kilobytes, "from the model's shape, 2 bytes a value"),
        "accuracy_gain_over_naive_min": (min(gains), f"{points} naive, the minimum"),
        "accuracy_gain_over_naive_max": (max(gains), f"{points} naive, the maximum"),
        "accuracy_gain_over_next_best_max": (max(leads), f"{points} the next best, the maximum"),
        "compute_reduction_mpt_7b": (
            reduction,
            "Table 1: the theoretical speedup of mpt-7b-instruct",
        ),
    }


def _cfic() -> dict[str, Value]:
    seconds = {
        (row["dataset"], row["system"]): float(row["decoding_latency_ms"])
        for row in read_csv("cfic_table_6")
    }
    a, b = (
        seconds[d, "without_decoding_strategies"] / seconds[d, "cfic"]
        for d in ("musique", "qasper")
    )
    how = f"Table 6: {a:.2f} on MuSiQue, {b:.2f} on Qasper; their mean"
    return {"decoding_strategies_speedup": ((a + b) / 2, how)}


def _piperag() -> dict[str, Value]:
    slower = [
        100 * (row["piperag_s3"] / row["no_retrieval"] - 1)
        for row in _table_1("latency_s").values()
    ]
    better = [row["no_retrieval"] - row["piperag_s3"] for row in _table_1("perplexity").values()]
    made: dict[str, Value] = {}
    for name, of in (("s3_latency_overhead", slower), ("s3_perplexity_reduction", better)):
        for end, value in (("min", min(of)), ("max", max(of))):
            made[f"{name}_{end}"] = (value, f"Table 1: S3 against no retrieval, the {end}imum")
    settings = DatabaseSettings(corpus="c4-en")
    chunks = size.chunks if (size := sizes.size(settings)) else float("nan")
    made["database_chunks"] = (chunks, "C4's documents and their mean bytes (docs/retrieval.md)")
    made["database_tokens"] = (
        chunks * settings.chunk_tokens,
        f"these chunks of {settings.chunk_tokens} tokens",
    )
    return made


def _table_1(column: str) -> dict[str, dict[str, float]]:
    """PipeRAG's Table 1: by data set and system."""
    made: dict[str, dict[str, float]] = {}
    for row in read_csv("piperag_table_1"):
        made.setdefault(row["dataset"], {})[row["system"]] = float(row[column])
    return made
