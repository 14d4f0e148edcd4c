"""The state of reproduction: what became of every number that the three papers print.

A cell is reproduced where a committed table measured it, predicted where the model's shape gives
it, planned where a run of the configuration fills it, planned without a ratio where that run measures the same of a
model, machine or sample that is not the paper's, and cannot be where the tables show it alone.
"""

import csv
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from ragauge import registry
from ragauge.results.cells import VALUES, CellSource, Status
from ragauge.results.publications import GENERATORS, LONGBENCH, PREDICTED, read_csv
from ragauge.results.runs import Runs, known_names

PAPERS = ("superposition", "cfic", "piperag")
KEYS = (
    *("model", "generator", "dataset", "method", "variant", "setting", "system", "chunking", "judge", "item", "unit"),
    *("top_k", "k", "iterations", "positions", "saliency", "pruning", "caching", "parallelism", "stale_tokens"),
)  # columns of published tables that tell rows apart; the others hold numbers
SCALES = (1, 0.01, 0.001)  # items have shares for per cent and seconds for milliseconds
NOWHERE = "no item shows it"
Row = Mapping[str, Any]


class State(StrEnum):
    """What became of a published number, the best first."""

    REPRODUCED = "reproduced"
    PREDICTED = "predicted from shapes"
    PLANNED = "planned"
    BESIDE = "planned without a ratio"
    CANNOT = "cannot be"


@dataclass(frozen=True)
class Shown:
    table: str  # name of the published CSV
    keys: Mapping[str, str]
    quantity: str
    published: float
    state: State = State.CANNOT
    why: str = NOWHERE


def page(runs: Runs, reports: Path) -> str:
    """The state as a Markdown page.

    Args:
        runs: a configuration's, as `results.planned.planned` has them.
        reports: the folder of committed reports, each a folder of rendered tables.
    """
    cells = states(runs, reports)
    source = "`src/ragauge/results/published`"
    head = [
        "# State of reproduction",
        "",
        f"The {len(cells)} numbers in the papers' tables and text ({source}), by `ragauge report reproduction`:",
        "reproduced where a table in this folder measured it, predicted where the model's shape",
        "gives it, planned where the configuration of the papers' experiments fills it (`make miniature` runs every",
        "kind of its cells), planned without a ratio where that measures the same of another model, machine or",
        "sample, and cannot be where the tables show it alone, with the reason.",
        "",
    ]
    groups: dict[str, list[Shown]] = {}
    for cell in cells:
        groups.setdefault(cell.table, []).append(cell)
    summary, parts = [], []
    for name, group in [*groups.items(), ("**all**", cells)]:
        counted = Counter(cell.state for cell in group)
        summary.append((name, len(group), *(counted[state] or "" for state in State)))
    for name, group in groups.items():
        rows = [(", ".join(c.keys.values()), c.quantity, f"{c.published:g}", c.state, c.why) for c in group]
        parts += ["", f"## {name}", "", *_markdown(("row", "quantity", "published", "state", "why"), rows)]
    return "\n".join([*head, *_markdown(("table", "numbers", *State), summary), *parts]) + "\n"


def states(runs: Runs, reports: Path) -> list[Shown]:
    tables = {item: _rows(runs, item) for item in registry.names("item") if item.split("_")[0] in PAPERS}
    committed = {item: _committed(reports, item) for item in tables}
    cells = []
    for cell in published():
        items = [cell.table] if cell.table in tables else [i for i in tables if i.startswith(cell.table.split("_")[0])]
        planned = _of([{**row, "item": item} for item in items for row in tables[item]], cell, runs)
        # comparable is a line of a model of the paper's, or of none: PipeRAG's own stands in no column of its tables
        named = bool(cell.keys.keys() & {"model", "generator"})
        lines = [row for item in items for row in committed[item] if named or not row.get("model")]
        measured = _of(lines, cell, runs)
        state, why = State.CANNOT, planned[0]["note"] if planned else NOWHERE
        if measured:
            state, why = State.REPRODUCED, f"in {measured[0]['report']}"
        elif any(row["source"] == CellSource.SHAPE for row in planned):
            state, why = State.PREDICTED, ""
        elif any(row["status"] != Status.PUBLISHED_ONLY for row in planned):
            state, why = State.PLANNED, ""
        elif any(_is_measured_apart(runs, row) for row in planned):
            state = State.BESIDE
        cells.append(replace(cell, state=state, why=why))
    return cells


def published() -> Iterator[Shown]:
    """The numbers of the papers' tables and statements, in the order of the published CSVs."""
    from importlib.resources import files

    names = sorted(path.name.removesuffix(".csv") for path in (files("ragauge.results") / "published").iterdir())
    for paper in PAPERS:
        for name in names:
            if name.startswith(paper) and not name.endswith("_from_logs"):
                for row in read_csv(name):
                    keys = {k: v for k, v in row.items() if k in KEYS and v}
                    numbers = {k: v for k, v in row.items() if k not in KEYS and v}
                    yield from (Shown(name, keys, column, float(text)) for column, text in numbers.items())


@cache
def _rows(runs: Runs, item: str) -> list[Row]:
    """The lines of an item's table, which no folder of reports changes."""
    return list(registry.module("item", item).table(runs).to_dict("records"))


def _committed(reports: Path, item: str) -> list[Row]:
    """The lines of the committed tables of an item that have a measured and a published number."""
    lines: list[Row] = []
    for path in (path for path in sorted(reports.glob(f"*/{item}.csv")) if not _is_ignored(path.parent)):
        with open(path, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["published"] and row["measured"]]
        rows = [row for row in rows if not row["note"].startswith(PREDICTED)]
        lines += [{**row, "published": float(row["published"]), "report": path.parent.name} for row in rows]
    return lines


@cache
def _is_ignored(folder: Path) -> bool:
    """Whether git ignores a folder, as those of the default, smoke and miniature runs; not where there is no git."""
    try:
        command = ["git", "-C", str(folder.parent), "check-ignore", "--quiet", folder.name]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _of(rows: Iterable[Row], cell: Shown, runs: Runs) -> list[Row]:
    """The lines that show a number: those of its value and model that have most of its keys."""
    values = [cell.published * scale for scale in SCALES]
    alike = [row for row in rows if any(abs(row["published"] - v) <= 1e-6 * abs(v) + 1e-12 for v in values)]
    wanted = {cell.keys[name].casefold() for name in ("model", "generator") if name in cell.keys}
    keys = [text for name, text in cell.keys.items() if name not in ("model", "generator")]
    scored = []
    for row in alike:
        label, dataset = str(row.get("model", "")), runs.registered(str(row.get("dataset", "")))
        names = [label, *(known := known_names(runs.source(label))), *(GENERATORS.get(name, "") for name in known)]
        if wanted <= {name.casefold() for name in names}:
            texts = {str(row[name]) for name in row if name not in VALUES} | {dataset.removeprefix(LONGBENCH)}
            scored.append((sum(text in texts for text in keys), row))
    most = max((score for score, _ in scored), default=0)
    return [row for score, row in scored if score == most]


def _is_measured_apart(runs: Runs, row: Row) -> bool:
    """Whether the configuration measures what a line of an item shows, on lines of its own."""
    config, reads, dataset = runs.config, registry.module("item", row["item"]).READS, row.get("dataset")
    return config is not None and bool(
        (reads.judgements and config.judge)
        or ((reads.pipelines or reads.staleness) and dataset in config.evaluation_texts())
        or (reads.latency and dataset in {timed for timed, _ in config.measured("latency")})
        or (not reads.latency and not reads.judgements and dataset in config.datasets)
    )


def _markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = [tuple(head), ("---",) * len(head), *rows]
    return [f"| {' | '.join(str(value).replace('|', '/') for value in line)} |" for line in lines]
