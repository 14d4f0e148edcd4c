"""The state of reproduction: what became of every number that the three papers print."""

from __future__ import annotations

import csv
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined

from ragauge import registry
from ragauge.io.specifications import AnswerSpecification, EngineFacts, FinderFacts
from ragauge.results.cells import VALUES, CellSource, Status
from ragauge.results.directions import ON_PAGE
from ragauge.results.publications import GENERATORS, LONGBENCH, PREDICTED, read_csv
from ragauge.results.runs import Runs, Variant, known_names

if TYPE_CHECKING:
    from ragauge.config.experiment import Config

PAPERS = ("superposition", "cfic", "piperag")
KEYS = (
    *(
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
    ),
    *(
        "top_k",
        "k",
        "iterations",
        "positions",
        "saliency",
        "pruning",
        "caching",
        "parallelism",
        "stale_tokens",
    ),
)  # columns of published tables that identify a row; the others hold numbers
SCALES = (1, 0.01, 0.001)  # items have shares for per cent and seconds for milliseconds
NOWHERE = "no item shows it"
OTHER_MACHINE = "a time, or what follows from times, of another machine has no ratio"
TIMES = re.compile(r"(_s|_ms)$|speedup_|_latency")  # quantities that depend on the machine
QUALITIES = ("f1", "perplexity", "cosine_similarity")
# of the papers, where its tables name none
OWN_MODELS = {"retro", "msmarco-bert-base-dot-v5", *GENERATORS}
Row = Mapping[str, Any]


class State(StrEnum):
    """What became of a published number, the best first."""

    MEASURED = "measured"
    RECOMPUTED = "recomputed"
    PREDICTED = "predicted from shapes"
    PLANNED = "planned"
    NO_RATIO = "planned without a ratio"
    INPUT = "needs an input"
    CANNOT = "cannot be"


@dataclass(frozen=True)
class Shown:
    table: str  # name of the published CSV
    keys: Mapping[str, str]
    quantity: str
    published: float
    state: State = State.CANNOT
    why: str = NOWHERE
    ratio: float | None = None  # what was measured, recomputed or predicted over what was published

    @property
    def row(self) -> str:
        return ", ".join(self.keys.values())


def page(
    cells: Sequence[Shown],
    directions: Sequence[Row],
    figure_5: Sequence[Row],
    figure_7: Iterable[Row],
) -> str:
    """The state as a Markdown page, of cells and directions, and the rows of `measure.predictions`
    and of `measure.recomputed`.
    """
    groups: dict[str, list[Shown]] = {}
    for cell in cells:
        groups.setdefault(cell.table, []).append(cell)
    kinds = dict.fromkeys(row["about"] for row in directions)
    template = (files("ragauge.report.page") / "reproduction.txt").read_text(encoding="utf-8")
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(template).render(
        State=State,
        cells=cells,
        groups=groups,
        count=lambda cells: Counter(cell.state for cell in cells),
        errors=errors,
        directions=[[row[name] for name in ON_PAGE] for row in directions],
        claims=len({row["claim"] for row in directions}),
        verdicts={
            about: Counter(of["verdict"] for of in directions if of["about"] == about)
            for about in kinds
        },
        tests=sum(bool(row["p"]) for row in directions),
        shown=ON_PAGE,
        figure_5=figure_5,
        figure_7=figure_7,
    )


def planned(config: Config, predictions: list[dict[str, Any]]) -> Runs:
    """The runs of a configuration without records, as the items read them, with the rows of
    `ragauge cost --published`.
    """
    made = Runs(Path("results") / config.run / "planned", config)
    latencies = []
    for protocol in config.protocols:
        rows = [{"variant": name} for name in protocol.methods]  # without trials
        for label, model in config.models.items():
            if model.datasets is None or protocol.dataset in model.datasets:
                labels = {"model": label, "dataset": protocol.dataset}
                latencies.append({**labels, "protocol": {"device": model.device}, "rows": rows})
    variants = tuple(_planned_variant(config, variant) for variant in made.variants)
    vars(made).update(variants=variants, latencies=tuple(latencies), predictions=tuple(predictions))
    return made


def _planned_variant(config: Config, variant: Variant) -> Variant:
    model = config.models[variant.model]
    specification = AnswerSpecification(
        method=variant.method,
        options=dict(variant.options),
        dataset=config.datasets[variant.dataset].dataset,
        model=model.source,
        finder=FinderFacts(model=config.models[model.finder].source) if model.finder else None,
        engine=EngineFacts(device=model.device),
    )
    made = replace(variant, missing=None, specification=specification)
    vars(made)["records"] = {}
    return made


def errors(cells: Iterable[Shown]) -> tuple[str, str]:
    """The median and the largest error of the predicted numbers in per cent; empty where none is
    predicted.
    """
    known = [abs(c.ratio - 1) for c in cells if c.state is State.PREDICTED and c.ratio is not None]
    return (f"{median(known):.1%}", f"{max(known):.1%}") if known else ("", "")


def states(
    runs: Runs, reports: Path, recomputed: Mapping[tuple[str, str, str], tuple[float, str]]
) -> list[Shown]:
    tables = {
        item: _rows(runs, item) for item in registry.names("item") if item.split("_")[0] in PAPERS
    }
    committed = {item: _committed(reports, item) for item in tables}
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
            cells.append(
                replace(cell, state=State.MEASURED, why=f"in {measured[0]['report']}", ratio=ratio)
            )
        elif known := recomputed.get((cell.table, cell.row, cell.quantity)):
            cells.append(
                replace(cell, state=State.RECOMPUTED, why=known[1], ratio=known[0] / cell.published)
            )
        else:
            alike = _of(
                [{**row, "item": item} for item in items for row in tables[item]], cell, runs
            )
            # CFIC prints numbers in two tables, and a run may fill the line of either
            others = [row for item in of_paper for row in tables[item] if "generator" in cell.keys]
            cells.append(_planned(runs, cell, alike, _of(others, cell, runs)))
    return cells


def _planned(runs: Runs, cell: Shown, rows: Sequence[Row], twins: Sequence[Row]) -> Shown:
    """The state of a number that nothing has measured, from the lines of the configuration's tables
    that show it.
    """
    if not rows:
        return cell
    quantity = rows[0]["quantity"]
    why = rows[0]["note"]
    if guesses := [row for row in rows if row["source"] == CellSource.SHAPE]:
        return replace(cell, state=State.PREDICTED, why="", ratio=guesses[0]["ratio"])
    is_filled = any(row["status"] != Status.PUBLISHED_ONLY for row in (*rows, *twins))
    if TIMES.search(quantity) and (is_filled or _is_measured_apart(runs, rows[0])):
        return replace(cell, state=State.NO_RATIO, why=OTHER_MACHINE if is_filled else why)
    if is_filled or (
        quantity in QUALITIES and _is_run_on_its_model(runs, cell, rows[0]["item"], quantity)
    ):
        return replace(cell, state=State.PLANNED, why="")
    if cell.keys.get("judge") == "human" and not runs.config.human_judgements:
        return replace(
            cell, state=State.INPUT, why="the configuration has no file of people's judgements"
        )
    is_apart = any(_is_measured_apart(runs, row) for row in rows)
    return replace(cell, state=State.NO_RATIO if is_apart else State.CANNOT, why=why)


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


@cache
def _rows(runs: Runs, item: str) -> list[Row]:
    """The lines of an item's table, which no folder of reports changes."""
    return list(registry.module("item", item).table(runs).to_dict("records"))


def _committed(reports: Path, item: str) -> list[Row]:
    """The lines of the committed tables of an item that have a measured and a published number."""
    lines: list[Row] = []
    for path in (
        path for path in sorted(reports.glob(f"*/{item}.csv")) if not _is_ignored(path.parent)
    ):
        with open(path, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["published"] and row["measured"]]
        rows = [row for row in rows if not row["note"].startswith(PREDICTED)]
        lines += [
            {**row, "published": float(row["published"]), "report": path.parent.name}
            for row in rows
        ]
    return lines


@cache
def _is_ignored(folder: Path) -> bool:
    """Whether git ignores a folder, as those of the default, smoke and miniature runs; not where
    there is no git.
    """
    try:
        command = ["git", "-C", str(folder.parent), "check-ignore", "--quiet", folder.name]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


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
        names = [
            label,
            *(known := known_names(runs.source(label))),
            *(GENERATORS.get(name, "") for name in known),
        ]
        if wanted <= {name.casefold() for name in names}:
            texts = {str(row[name]) for name in row if name not in VALUES} | {
                dataset.removeprefix(LONGBENCH)
            }
            scored.append((sum(text in texts for text in keys), row))
    most = max((score for score, _ in scored), default=0)
    return [row for score, row in scored if score == most]


def _is_run_on_its_model(runs: Runs, cell: Shown, item: str, quantity: str) -> bool:
    """Whether the configuration measures the quantity, and at that k, on the paper's model in lines
    of their own.
    """
    lines = (
        row
        for row in _rows(runs, item)
        if row["quantity"] == quantity and row["status"] != Status.PUBLISHED_ONLY
    )
    at_k = (row for row in lines if "k" not in cell.keys or cell.keys["k"] == str(row.get("k")))
    return any(OWN_MODELS & {row["model"], *known_names(runs.source(row["model"]))} for row in at_k)


def _is_measured_apart(runs: Runs, row: Row) -> bool:
    """Whether the configuration measures what a line of an item shows, on lines of its own."""
    config = runs.config
    reads = registry.module("item", row["item"]).READS
    dataset = row.get("dataset")
    return bool(
        " " in str(dataset)  # of the paper's text, and of no one data set
        or (reads.judgements and config.judge)
        or ((reads.pipelines or reads.staleness) and dataset in config.evaluation_texts())
        or (reads.latency and dataset in {timed for timed, _ in config.measured("latency")})
        or (not reads.latency and not reads.judgements and dataset in config.datasets)
    )
