"""The compute cycles of Superposition Prompting, predicted from the shapes of the paper's models
alone.

Every row of Tables 1, 2, 5 and 6 and every point of Figure 5 is run by its method on a decoder
without weights (`costing.project`), with the token counts of the model's tokenizer (`cost.tokens`),
under two accountings: `published`, the paper's as far as its columns show it, and `critical_path`
(`cost.cycles`).
"""

from collections.abc import Iterator, Mapping

from ragauge.io.jsonl import JsonObject
from ragauge.measure import costing
from ragauge.methods.base import making
from ragauge.results.publications import read_csv

# table -> token counts of its prompts
COUNTS = {1: "nq_open", 2: "musique", 5: "nq_open", 6: "nq_open"}
# columns that distinguish a model's rows
KEYS = ("method", "iterations", "top_k", "pruning", "caching", "parallelism")
SWITCHES = {
    "path_pruning": "pruning",
    "path_caching": "caching",
    "path_parallelization": "parallelism",
}
FACTORS = (1, 2, 4, 10, 20)  # of Figure 5
# rows named differently from their method; Table 6 has only superposition
METHODS = {"contriever": "dense"}

# The paper does not print top_k of Table 1's rankers. A row that equals one of Table 5 has its;
# OpenELM's, which Table 5 lacks, are those whose cycles fit: one document, and two for Contriever.
OPENELM_TOP_K = {"bm25": 1, "tfidf": 1, "contriever": 2}

PublishedRow = Mapping[str, str]


def predict() -> JsonObject:
    """All rows: {"rows": [{"item", "model", "keys", quantity: value, ...}]}, `keys` as the
    published CSV has them.
    """
    return {"rows": [*(row for number in COUNTS for row in table(number)), *figure_5()]}


def table(number: int) -> Iterator[JsonObject]:
    item = f"superposition_table_{number}"
    for row in read_csv(item):
        keys = {key: row[key] for key in KEYS if key in row}
        printed = row.get("method", "superposition")
        name = METHODS.get(printed, printed)
        yield _row(item, row["model"], keys, name, options(number, row), COUNTS[number])


def figure_5() -> Iterator[JsonObject]:
    """The points of Figure 5, whose speedups are those without path caching: with it all factors
    have the same.
    """
    for model in dict.fromkeys(row["model"] for row in read_csv("superposition_table_1")):
        for factor in FACTORS:
            keys = {"series": "predicted from shapes, no path caching", "factor": str(factor)}
            params = {"factor": factor, "path_caching": False}
            yield _row("superposition_figure_5", model, keys, "superposition", params, "nq_open")


def _row(
    item: str, model: str, keys: PublishedRow, name: str, params: JsonObject, counts: str
) -> JsonObject:
    method = making.make(name, **params)
    critical, published = (
        costing.project(name, method, model.lower(), counts, 1, accounting, "bfloat16")
        for accounting in ("critical_path", "published")
    )
    return {
        "item": item,
        "model": model,
        "keys": dict(keys),
        "compute_cycles": published["compute_cycles"],
        "theoretical_speedup": published["theoretical_speedup"],
        "critical_path_cycles": critical["compute_cycles"],
        "critical_path_speedup": critical["theoretical_speedup"],
    }


def options(number: int, row: PublishedRow) -> JsonObject:
    if number == 6:
        return {option: row[column] == "True" for option, column in SWITCHES.items()}
    params: JsonObject = {key: int(row[key]) for key in ("top_k", "iterations") if row.get(key)}
    if row["method"] in OPENELM_TOP_K and "top_k" not in params:
        keys = ("model", "method", "compute_cycles")
        same = [
            int(r["top_k"])
            for r in read_csv("superposition_table_5")
            if all(r[k] == row[k] for k in keys)
        ]
        params["top_k"] = same[0] if same else OPENELM_TOP_K[row["method"]]
    if params.get("iterations", 1) > 1:
        params["hops"] = "one"
    return params | ({"encoder": "contriever"} if row["method"] == "contriever" else {})
