"""The state of reproduction: what became of every number that the three papers print.

    python reports/reproduction.py [FOLDER]   # writes reproduction.md and directions.csv, here or there

It reads the committed tables, `configs/papers/paper.yaml` for what is planned, and
`configs/papers/claims.yaml` for the orderings that the papers claim. Numbers that follow from sizes
or from other published numbers are recomputed here: neither a model nor its data is run.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

from directions import NOT_ON_PAGE, contrasts, directions
from ragauge import registry
from ragauge.config import loading
from ragauge.cost import tokens
from ragauge.cost.cycles import kv_bytes
from ragauge.cost.overlap import OverlapWindow
from ragauge.measure.predictions import predict
from ragauge.measure.timing import shape_of
from ragauge.pipelines.retrieval import sizes
from ragauge.pipelines.retrieval.settings import DatabaseSettings
from ragauge.results.cells import VALUES, CellSource
from ragauge.results.publications import GENERATORS, LONGBENCH, ON_SHAPE, PREDICTED, read_csv
from ragauge.results.runs import Runs, known_names

ROOT = Path(__file__).resolve().parents[1]
REPORTS = ROOT / "reports"
PAPERS_CONFIG = Path("configs/papers/paper.yaml")
CLAIMS = Path("configs/papers/claims.yaml")
CONTRASTS = Path("configs/reference/contrasts.yaml")
PAPERS = ("superposition", "cfic", "piperag")
KEYS = (
    "model",
    "generator",
    "dataset",
    "method",
    "variant",
    "setting",
    "system",
    "chunking",
    "judge",
    "item",
    "unit",
    "top_k",
    "k",
    "iterations",
    "positions",
    "saliency",
    "pruning",
    "caching",
    "parallelism",
    "stale_tokens",
)  # columns of published tables that identify a row; the others hold numbers
SCALES = (1, 0.01, 0.001)  # items have shares for per cent and seconds for milliseconds
NOWHERE = "no item shows it"
NOT_COMMITTED = ("default", "smoke", "miniature")  # runs whose reports git ignores
# of the papers, where its tables name none
OWN_MODELS = {"retro", "msmarco-bert-base-dot-v5", *GENERATORS}
Row = Mapping[str, Any]


class State(StrEnum):
    """The fate of a published number, the best first."""

    MEASURED = "measured"
    ON_SHAPE = "measured on its shape"
    RECOMPUTED = "recomputed"
    PREDICTED = "predicted from shapes"
    OPEN = "open"


@dataclass(frozen=True)
class Shown:
    table: str  # name of the published CSV
    keys: Mapping[str, str]
    quantity: str
    published: float
    state: State = State.OPEN
    why: str = NOWHERE
    ratio: float | None = None  # what was measured, recomputed or predicted over what was published

    @property
    def row(self) -> str:
        return ", ".join(self.keys.values())


def page(
    cells: Sequence[Shown],
    directions: Sequence[Row],
    contrasts: Sequence[Row],
    figure_5: Sequence[Row],
    figure_7: Iterable[Row],
) -> str:
    """The state as a Markdown page."""
    groups = {table: list(part) for table, part in groupby(cells, attrgetter("table"))}
    kinds = dict.fromkeys(row["about"] for row in directions)
    shown = [name for name in directions[0] if name not in NOT_ON_PAGE]
    template = (REPORTS / "reproduction.txt").read_text(encoding="utf-8")
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(template).render(
        State=State,
        cells=cells,
        groups=groups,
        count=lambda cells: Counter(cell.state for cell in cells),
        errors=errors,
        directions=[[row[name] for name in shown] for row in directions],
        claims=len({row["claim"] for row in directions}),
        verdicts={
            about: Counter(
                of[said]
                for of in directions
                if of["about"] == about
                for said in ("verdict", "printed_effect", "conditions")
            )
            for about in kinds
        },
        tests=sum(bool(row["p"]) for row in directions),
        shown=shown,
        contrasts=contrasts,
        figure_5=figure_5,
        figure_7=figure_7,
    )


def planned(folder: Path) -> Runs:
    """The papers' configuration without records, as the items read it, with what `ragauge cost
    --published` writes.
    """
    (folder / "predictions.json").write_text(json.dumps(predict()), encoding="utf-8")
    return Runs(folder, loading.load(ROOT / PAPERS_CONFIG))


def errors(cells: Iterable[Shown]) -> tuple[str, str]:
    """The median and the largest error of the predicted numbers in per cent; empty where none is
    predicted.
    """
    known = [abs(c.ratio - 1) for c in cells if c.state is State.PREDICTED and c.ratio is not None]
    return (f"{median(known):.1%}", f"{max(known):.1%}") if known else ("", "")


def states(runs: Runs, reports: Path) -> list[Shown]:
    """Return the fate of each published number."""
    tables = {
        item: registry.module("item", item).table(runs).to_dict("records")
        for item in registry.names("item")
        if item.split("_")[0] in PAPERS
    }
    committed = {item: _committed(reports, item) for item in tables}
    known_values = recomputed()
    cells = []
    for cell in published():
        of_paper = [item for item in tables if item.startswith(cell.table.split("_")[0])]
        items = [cell.table] if cell.table in tables else of_paper
        # comparable is a line of a model of the paper's, or of none: PipeRAG's own stands in no
        # column of its tables
        named = bool(cell.keys.keys() & {"model", "generator"})
        lines = [
            row
            for item in items
            for row in committed[item]
            if named or row.get("model", "") in {"", *OWN_MODELS}
        ]
        if measured := _of(lines, cell, runs):
            ratio = float(measured[0]["ratio"]) if measured[0]["ratio"] else None
            on_shape = measured[0].get("status", "").startswith(ON_SHAPE)
            state = State.ON_SHAPE if on_shape else State.MEASURED
            why = f"in {measured[0]['report']}"
            cells.append(replace(cell, state=state, why=why, ratio=ratio))
        elif known := known_values.get((cell.table, cell.row, cell.quantity)):
            cells.append(
                replace(cell, state=State.RECOMPUTED, why=known[1], ratio=known[0] / cell.published)
            )
        else:
            alike = _of([row for item in items for row in tables[item]], cell, runs)
            cells.append(_unmeasured(cell, alike))
    return cells


def _unmeasured(cell: Shown, rows: Sequence[Row]) -> Shown:
    """The state of a number by the lines of the items that show it."""
    predicted = [row for row in rows if row["source"] == CellSource.SHAPE]
    if predicted:
        return replace(cell, state=State.PREDICTED, why="", ratio=predicted[0]["ratio"])
    return replace(cell, why=rows[0]["note"]) if rows else cell


def published() -> Iterator[Shown]:
    """The numbers of the papers' tables and statements, in the order of the published CSVs."""
    names = sorted(
        path.name.removesuffix(".csv")
        for path in (files("ragauge.results") / "published").iterdir()
    )
    for paper in PAPERS:
        for name in names:
            if name.startswith(paper) and not name.endswith("_from_logs"):
                for row in read_csv(name):
                    keys = {k: v for k, v in row.items() if k in KEYS and v}
                    numbers = {k: v for k, v in row.items() if k not in KEYS and v}
                    yield from (
                        Shown(name, keys, column, float(text)) for column, text in numbers.items()
                    )


def _committed(reports: Path, item: str) -> list[Row]:
    """The lines of the committed tables of an item that have a measured and a published number."""
    paths = sorted(reports.glob(f"*/{item}.csv"))
    return [
        {**row, "published": float(row["published"]), "report": path.parent.name}
        for path in paths
        if path.parent.name not in NOT_COMMITTED
        for row in pd.read_csv(path, dtype=str, keep_default_na=False).to_dict("records")
        if row["published"] and row["measured"] and not row["note"].startswith(PREDICTED)
    ]


def _of(rows: Iterable[Row], cell: Shown, runs: Runs) -> list[Row]:
    """The lines that show a number: those of its value and model that have most of its keys."""
    values = [cell.published * scale for scale in SCALES]
    alike = [
        row
        for row in rows
        if any(abs(row["published"] - v) <= 1e-6 * abs(v) + 1e-12 for v in values)
    ]
    wanted = {cell.keys[name].casefold() for name in ("model", "generator") if name in cell.keys}
    keys = [text for name, text in cell.keys.items() if name not in ("model", "generator")]
    scored = []
    for row in alike:
        label = str(row.get("model", ""))
        dataset = runs.registered(str(row.get("dataset", "")))
        known = known_names(runs.source(label))
        names = [label, *known, *(GENERATORS.get(name, "") for name in known)]
        if wanted <= {name.casefold() for name in names}:
            texts = {str(row[name]) for name in row if name not in VALUES}
            texts.add(dataset.removeprefix(LONGBENCH))
            scored.append((sum(text in texts for text in keys), row))
    most = max((score for score, _ in scored), default=0)
    return [row for score, row in scored if score == most]


# --- numbers that follow from others ---

Value = tuple[float, str]  # a number on the scale that it is printed on, and its calculation
WINDOWS = 16  # of 64 tokens in PipeRAG's sequences of 1,024
FASTER = (  # how many times generation and retrieval are in PipeRAG's Figure 7
    ("nothing", 1, 1),
    ("generation 4 times", 4, 1),
    ("generation 16 times", 16, 1),
    ("retrieval 4 times", 1, 4),
    ("retrieval 16 times", 1, 16),
)


def recomputed() -> dict[tuple[str, str, str], Value]:
    """By published table, row (its keys joined by commas) and column."""
    made: dict[tuple[str, str, str], Value] = {}
    by_item = _superposition() | _cfic() | _piperag()
    for paper in PAPERS:
        for row in read_csv(f"{paper}_statements"):
            if row["item"] in by_item:
                keys = ", ".join(text for column, text in row.items() if column != "value" and text)
                made[f"{paper}_statements", keys, "value"] = by_item[row["item"]]
    columns = {"latency_s": "latency_difference_s", "perplexity": "perplexity_difference"}
    for column, difference in columns.items():
        for dataset, of in _table_1(column).iterrows():  # the numbers in brackets
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
    for dataset, seconds in _table_1("latency_s").iterrows():
        generation = seconds["piperag_s3"] / WINDOWS
        retrieval = (seconds["retro"] - seconds["piperag_s3"]) / WINDOWS
        for faster, g, r in FASTER:
            window = OverlapWindow(retrieval / r, generation / g, hidden=False)
            overlapped = window.seconds + (WINDOWS - 1) * replace(window, hidden=True).seconds
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
    cells = pd.DataFrame(read_csv("superposition_table_1")).astype({"accuracy": float})
    accuracy = 100 * cells.pivot(index="model", columns="method", values="accuracy")
    best = accuracy.pop("superposition")
    gains = best - accuracy["naive"]
    leads = best - accuracy.max(axis="columns")
    own = (cells["model"] == "mpt-7b-instruct") & (cells["method"] == "superposition")
    reduction = float(cells.loc[own, "theoretical_speedup"].item())
    kilobytes = kv_bytes(shape_of("bloomz-7b1"), 1, "bfloat16") / 1000
    points = "Table 1, points: superposition -"
    return {
        "naive_sequence_length": (rest + count * document, f"{count} times the {around}"),
        "superposition_longest_path": (rest + document, f"the {around}"),
        "kv_cache_per_token_bloom_7b1": (kilobytes, "from the model's shape, 2 bytes a value"),
        "accuracy_gain_over_naive_min": (gains.min(), f"{points} naive, the minimum"),
        "accuracy_gain_over_naive_max": (gains.max(), f"{points} naive, the maximum"),
        "accuracy_gain_over_next_best_max": (leads.max(), f"{points} the next best, the maximum"),
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
    seconds = _table_1("latency_s")
    perplexities = _table_1("perplexity")
    slower = 100 * (seconds["piperag_s3"] / seconds["no_retrieval"] - 1)
    better = perplexities["no_retrieval"] - perplexities["piperag_s3"]
    made: dict[str, Value] = {}
    for name, of in (("s3_latency_overhead", slower), ("s3_perplexity_reduction", better)):
        for end, value in (("min", of.min()), ("max", of.max())):
            made[f"{name}_{end}"] = (value, f"Table 1: S3 against no retrieval, the {end}imum")
    settings = DatabaseSettings(corpus="c4-en")
    chunks = sizes.size(settings).chunks
    made["database_chunks"] = (chunks, "C4's documents and their mean bytes (docs/retrieval.md)")
    made["database_tokens"] = (
        chunks * settings.chunk_tokens,
        f"these chunks of {settings.chunk_tokens} tokens",
    )
    return made


def _table_1(column: str) -> pd.DataFrame:
    """A column of PipeRAG's Table 1, by data set and system."""
    cells = pd.DataFrame(read_csv("piperag_table_1")).astype({column: float})
    return cells.pivot(index="dataset", columns="system", values=column)


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else REPORTS
    with TemporaryDirectory() as folder:
        runs = planned(Path(folder))
        cells = states(runs, REPORTS)
        predictions = runs.predictions
    rows = directions(ROOT / CLAIMS, REPORTS)
    figure_5 = [row for row in predictions if row["item"] == "superposition_figure_5"]
    planned_contrasts = contrasts(ROOT / CONTRASTS, REPORTS)
    text = page(cells, rows, planned_contrasts, figure_5, figure_7())
    (out / "reproduction.md").write_text(text, encoding="utf-8")
    pd.DataFrame(rows).to_csv(out / "directions.csv", index=False)


if __name__ == "__main__":
    main()
