"""The state of reproduction: what became of every number that the three papers print.

    python reports/reproduction.py [FOLDER]   # writes reproduction.md and directions.csv, here or there

It reads the committed tables, `configs/papers/paper.yaml` for what is planned, and
`configs/papers/claims.yaml` for the orderings that the papers claim. Numbers that follow from sizes
or from other published numbers are recomputed here: neither a model nor its data is run.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

from directions import NOT_ON_PAGE, contrasts, directions
from ragauge import registry
from ragauge.config import loading
from ragauge.cost import tokens
from ragauge.cost.cycles import kv_bytes
from ragauge.cost.overlap import OverlapWindow
from ragauge.io.specifications import AnswerSpecification, EngineFacts, FinderFacts
from ragauge.measure.predictions import predict
from ragauge.measure.timing import shape_of
from ragauge.pipelines.retrieval import sizes
from ragauge.pipelines.retrieval.settings import DatabaseSettings
from ragauge.results.cells import VALUES, CellSource, CellStatus
from ragauge.results.publications import GENERATORS, LONGBENCH, ON_SHAPE, PREDICTED, read_csv
from ragauge.results.runs import Runs, Variant, known_names
from ragauge.results.times import LatencyTimes, ProtocolFacts, Trial

if TYPE_CHECKING:
    from ragauge.config.experiment import Config
    from ragauge.io.records import Record

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
OTHER_MACHINE = "a time, or what follows from times, of another machine has no ratio"
TIMES = re.compile(r"(_s|_ms)$|speedup_|_latency")  # quantities that depend on the machine
QUALITIES = ("f1", "perplexity", "cosine_similarity")
# of the papers, where its tables name none
OWN_MODELS = {"retro", "msmarco-bert-base-dot-v5", *GENERATORS}
Row = Mapping[str, Any]


class State(StrEnum):
    """The fate of a published number, the best first."""

    MEASURED = "measured"
    ON_SHAPE = "measured on its shape"
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
    contrasts: Sequence[Row],
    figure_5: Sequence[Row],
    figure_7: Iterable[Row],
) -> str:
    """The state as a Markdown page."""
    groups: dict[str, list[Shown]] = {}
    for cell in cells:
        groups.setdefault(cell.table, []).append(cell)
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


@dataclass(frozen=True, eq=False)
class PlannedVariant(Variant):
    """A variant that has not run."""

    records: dict[str, Record] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class PlannedRuns(Runs):
    """The runs of a configuration without records, as the items read them."""

    latencies: tuple[LatencyTimes, ...] = ()
    predictions: tuple[Mapping[str, Any], ...] = ()

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        configured = Runs(self.folder, self.config).variants
        return tuple(_planned_variant(self, variant) for variant in configured)


def planned(config: Config, predictions: Sequence[Mapping[str, Any]]) -> PlannedRuns:
    """The runs of a configuration, with the rows of `ragauge cost --published`."""
    folder = Path("results") / config.run / "planned"
    return PlannedRuns(folder, config, tuple(_planned_times(config)), tuple(predictions))


def _planned_times(config: Config) -> Iterator[LatencyTimes]:
    """The latency files of a configuration, without trials that have times."""
    for protocol in config.protocols:
        rows = [Trial(variant=name) for name in protocol.methods]
        for label, model in config.models.items():
            if model.datasets is None or protocol.dataset in model.datasets:
                yield LatencyTimes(
                    model=label,
                    dataset=protocol.dataset,
                    protocol=ProtocolFacts(device=model.device),
                    rows=rows,
                )


def _planned_variant(runs: PlannedRuns, variant: Variant) -> PlannedVariant:
    config = runs.config
    model = config.models[variant.model]
    specification = AnswerSpecification(
        method=variant.method,
        options=dict(variant.options),
        dataset=config.datasets[variant.dataset].dataset,
        model=model.source,
        finder=FinderFacts(model=config.models[model.finder].source) if model.finder else None,
        engine=EngineFacts(device=model.device),
    )
    stated = {name.name: getattr(variant, name.name) for name in fields(variant)}
    return PlannedVariant(
        **stated | {"runs": runs, "missing": None, "specification": specification}
    )


def errors(cells: Iterable[Shown]) -> tuple[str, str]:
    """The median and the largest error of the predicted numbers in per cent; empty where none is
    predicted.
    """
    known = [abs(c.ratio - 1) for c in cells if c.state is State.PREDICTED and c.ratio is not None]
    return (f"{median(known):.1%}", f"{max(known):.1%}") if known else ("", "")


def states(runs: Runs, reports: Path) -> list[Shown]:
    """Return the fate of each published number."""
    tables = {
        item: _rows(runs, item) for item in registry.names("item") if item.split("_")[0] in PAPERS
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
    is_filled = any(row["status"] != CellStatus.PUBLISHED_ONLY for row in (*rows, *twins))
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
        if row["quantity"] == quantity and row["status"] != CellStatus.PUBLISHED_ONLY
    )
    at_k = (row for row in lines if "k" not in cell.keys or cell.keys["k"] == str(row.get("k")))
    return any(OWN_MODELS & {row["model"], *known_names(runs.source(row["model"]))} for row in at_k)


def _is_measured_apart(runs: Runs, row: Row) -> bool:
    """Whether the configuration measures what a line of an item shows, on lines of its own."""
    config = runs.config
    reads = registry.module("item", row["item"]).READS
    dataset = row.get("dataset")
    evaluated = [  # texts that databases hold out, and their evaluation sets
        *config.databases,
        *(name for database in config.databases.values() for name in database.evaluation_sets),
    ]
    return bool(
        " " in str(dataset)  # of the paper's text, and of no one data set
        or (reads.judgements and config.judge)
        or ((reads.pipelines or reads.staleness) and dataset in evaluated)
        or (reads.latency and dataset in {timed for timed, _ in config.measured("latency")})
        or (not reads.latency and not reads.judgements and dataset in config.datasets)
    )


# --- numbers that follow from others ---

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


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else REPORTS
    runs = planned(loading.load(ROOT / PAPERS_CONFIG), predict()["rows"])
    rows = directions(ROOT / CLAIMS, REPORTS)
    figure_5 = [row for row in runs.predictions if row["item"] == "superposition_figure_5"]
    planned_contrasts = contrasts(ROOT / CONTRASTS, REPORTS)
    text = page(states(runs, REPORTS), rows, planned_contrasts, figure_5, figure_7())
    (out / "reproduction.md").write_text(text, encoding="utf-8")
    pd.DataFrame(rows).to_csv(out / "directions.csv", index=False)


if __name__ == "__main__":
    main()
