"""The papers' numbers from `published/`, and the predictions of them from the shapes of the models."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject
from ragauge.results.cells import Cell, CellSource, Keys, Measure
from ragauge.results.runs import Runs, Variant, identities

PREDICTED = "predicted from the model's shape"
# of times at the sizes that a paper names; the GPUs follow
ON_SHAPE = "measured on the paper's model shape, random weights"
LONGBENCH = "longbench_"  # what our names of LongBench's data sets have before its own
GENERATORS = {  # CFIC's names of the models that answer
    "llama-2-7b-chat-hf": "Llama2-7B-chat-4k",
    "llama-2-7b-chat": "Llama2-7B-chat-4k",
    "vicuna-7b-16k": "Vicuna-v1.5-7B-16k",
    "vicuna-7b-v1.5-16k": "Vicuna-v1.5-7B-16k",
}
# of a data set, with the paper's documents and their order
TABLES: dict[str, tuple[str, JsonObject]] = {
    "nq_open": (
        "superposition_table_1",
        {"documents": None, "joined": 1, "gold_position": None, "shuffle": True},
    ),
    # in random order, shuffled or not
    "musique": ("superposition_table_2", {"documents": None, "joined": 1}),
}
# what a shape alone can tell
CYCLES = ("compute_cycles", "theoretical_speedup", "critical_path_speedup")

Printed = Mapping[str, str]  # a line of a published table
# columns of published tables that have another name here
NAMES = {"cuda_speedup": "measured_speedup_cuda"}


@cache
def read_csv(item: str) -> tuple[Printed, ...]:
    text = (files("ragauge.results") / "published" / f"{item}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def published(
    item: str, keys: Sequence[str], quantities: Mapping[str, str], dataset: str
) -> list[Cell]:
    """The cells of a published table; `quantities` maps the CSV's columns to quantity names."""
    cells = []
    for row in read_csv(item):
        row_keys = {"dataset": dataset, **{k: _value(row[k]) for k in keys}}
        model = row["model"]
        cells += [
            Cell(row_keys, q, Measure(), float(row[column]), model)
            for column, q in quantities.items()
        ]
    return cells


def statement(paper: str, item: str) -> float:
    """A number of a paper's text."""
    lines = read_csv(f"{paper}_statements")
    return next(float(line["value"]) for line in lines if line["item"] == item)


def printed(
    item: str,
    keys: Callable[[Printed], Keys],
    columns: Iterable[str],
    note: str,
    names: Mapping[str, str] = NAMES,
) -> list[Cell]:
    """The cells of a published table that nothing is compared with. A quantity has its column's
    name, or that in `names`; what is in per cent becomes a share.
    """
    cells = []
    for line in read_csv(item):
        for column in columns:
            if line[column]:
                value = float(line[column])
                is_percent = column == "f1" or column.endswith("_pct")
                quantity = names.get(column, column.removesuffix("_pct"))
                value = round(value / 100, 4) if is_percent else value
                cells.append(Cell(keys(line), quantity, Measure(note=note), value))
    return cells


def predicted(runs: Runs, item: str, keys: Sequence[str], dataset: str) -> list[Cell]:
    """Predictions of a published table from the shapes of the paper's models, as `ragauge cost
    --published` wrote it.
    """
    try:
        cells = []
        for row in (row for row in runs.predictions if row["item"] == item):
            row_keys = {"dataset": dataset, "model": row["model"]}
            row_keys |= {k: _value(row["keys"][k]) for k in keys if k != "model"}
            for quantity in CYCLES:
                measure = Measure(float(row[quantity]), note=PREDICTED, source=CellSource.SHAPE)
                cells.append(Cell(row_keys, quantity, measure, paper_model=str(row["model"])))
        return cells
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        path = runs.folder / "predictions.json"
        raise UserError(f"{path}: not a row of `ragauge cost --published`: {error!r}") from error


def paper_table(dataset: str, runs: Runs) -> str | None:
    """The paper's table of a data set, NQ-Open or MuSiQue; None where the documents are not those
    of the paper.
    """
    item, arrangement = TABLES.get(runs.registered(dataset), (None, {}))
    options = runs.dataset_options(dataset)
    # options that are not stated are those of the paper
    return item if {**arrangement, **options} == {**options, **arrangement} else None


def paper_model(variant: Variant) -> str | None:
    """The paper's name of the variant's model, if it measured that model on that data set and these
    documents.
    """
    item = paper_table(variant.dataset, variant.runs)
    return named_model(identities(variant), item) if item else None


def named_model(names: Sequence[str], item: str) -> str | None:
    """The model of a published table that bears one of these names, in lower case; None if there is
    none.
    """
    known = {row["model"].lower(): row["model"] for row in read_csv(item)}
    return next((known[name] for name in names if name in known), None)


def _value(text: str) -> Any:
    """A key of a CSV as Python writes it, so that it equals the measured rows' keys."""
    if text in ("True", "False"):
        return text == "True"
    return int(text) if text.isdigit() else text
