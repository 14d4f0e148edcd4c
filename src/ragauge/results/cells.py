"""The cells of every table: measured beside published, with interval, count and the reason where there is none."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ragauge import registry
from ragauge.errors import UserError
from ragauge.results.runs import Runs, Variant, critical_path_cycles, identities, paper_cycles

if TYPE_CHECKING:
    import pandas as pd

VALUES = ("published", "measured", "low", "high", "n", "p", "ratio", "note")
TIMED = "measured_speedup"  # seconds of one machine: beside the paper's, never divided by them
OTHER_MODEL = "published for another model"
PREDICTED = "predicted from the model's shape"
CYCLES = ("compute_cycles", "theoretical_speedup", "critical_path_speedup")  # what a shape alone can tell
RESAMPLES = 10_000


@dataclass(frozen=True)
class Measure:
    """A measured number, its bootstrap 95% interval and how many questions or trials it rests on."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0
    p: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """One number of a table. `keys` are its row's; `paper_model` is set where the paper measured this very model."""

    keys: Mapping[str, Any]
    quantity: str
    measure: Measure = field(default_factory=Measure)
    published: float | None = None
    paper_model: str | None = None


def frame(keys: Sequence[str], cells: Iterable[Cell]) -> pd.DataFrame:
    """One line a cell: keys, quantity, then VALUES. The ratio is measured / published."""
    import pandas as pd

    rows = [[cell.keys.get(k, "") for k in keys] + [cell.quantity, *_values(cell)] for cell in cells]
    made = pd.DataFrame(rows, columns=[*keys, "quantity", *VALUES])
    return made.astype({name: float for name in VALUES if name not in ("n", "note")})


def merge(
    measured: Sequence[Cell], published: Sequence[Cell], on: Sequence[str], predicted: Sequence[Cell] = ()
) -> list[Cell]:
    """The measured cells, each with the paper's number where model and row are the paper's; then the other numbers.

    `on` are the keys that, beside model and quantity, tell the rows of the paper's table apart. A predicted cell stands
    in where nothing was measured.
    """
    printed = {_identity(cell, on): cell.published for cell in published}
    guesses = {_identity(cell, on): cell.measure for cell in predicted}
    beside = [replace(c, published=printed.get(_identity(c, on))) if c.paper_model else c for c in measured]
    used = {_identity(cell, on) for cell in measured if cell.paper_model}
    models = {cell.paper_model for cell in measured}
    order = list(dict.fromkeys(cell.paper_model for cell in (*published, *predicted)))
    rest = [_unmatched(cell, models) for cell in published if _identity(cell, on) not in used]
    rest += [cell for cell in predicted if _identity(cell, on) not in used | printed.keys()]
    merged = beside + sorted(rest, key=lambda cell: order.index(cell.paper_model))
    return [_stand_in(cell, guesses.get(_identity(cell, on))) for cell in merged]


def published(item: str, keys: Sequence[str], quantities: Mapping[str, str], dataset: str) -> list[Cell]:
    """The cells of a published table; `quantities` maps the CSV's columns to quantity names."""
    return [
        Cell(
            {"dataset": dataset, **{k: _value(row[k]) for k in keys}},
            quantity,
            published=float(row[column]),
            paper_model=row["model"],
        )
        for row in read_csv(item)
        for column, quantity in quantities.items()
    ]


def predicted(runs: Runs, item: str, keys: Sequence[str], dataset: str) -> list[Cell]:
    """What the shapes of the paper's models predict for a published table, as `ragauge predict` wrote it."""
    try:
        return [
            Cell(
                {"dataset": dataset, "model": row["model"]} | {k: _value(row["keys"][k]) for k in keys if k != "model"},
                quantity,
                Measure(float(row[quantity]), note=PREDICTED),
                paper_model=str(row["model"]),
            )
            for row in runs.predictions
            if row["item"] == item
            for quantity in CYCLES
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{runs.folder / 'predictions.json'}: a row that `ragauge predict` does not write: {error!r}"
        ) from error


def paper_model(variant: Variant, runs: Runs, item: str = "superposition_table_1") -> str | None:
    """The paper's name of the variant's model, if it measured that model on that data set (NQ-Open or MuSiQue)."""
    if runs.registered(variant.dataset) not in ("nq_open", "musique"):
        return None
    known = {row["model"].lower(): row["model"] for row in read_csv(item)}
    return next((known[name] for name in identities(variant) if name in known), None)


def quality(runs: Runs, variant: Variant, metric: str | None = None) -> Measure:
    """The mean of a metric over the questions; a failed question counts as wrong. Metric: the data set's primary."""
    from ragauge.results.stats import bootstrap_interval

    scores = scored(runs, variant, metric)
    if variant.records and len(variant.failed) == len(variant.records):
        return Measure(n=0, note=f"all {len(variant.failed)} questions failed: {next(iter(variant.failed.values()))}")
    if not scores:
        return Measure(note="no question has a score")
    values = list(scores.values())
    low, high = bootstrap_interval(values, seed=runs.seed)
    return Measure(sum(values) / len(values), low, high, len(values), note=_failures(variant))


def scored(runs: Runs, variant: Variant, metric: str | None = None) -> dict[str, float]:
    """The metric's score of each question; 0 where the question failed, absent where the metric does not apply."""
    name = metric or runs.metrics(variant.dataset)[0]
    score = registry.module("metric", name).score
    given = {k: 0.0 if k in variant.failed else score(r) for k, r in variant.records.items()}
    return {k: float(s) for k, s in given.items() if s is not None and math.isfinite(s)}


def difference(runs: Runs, better: Variant, worse: Variant, metric: str | None = None) -> Measure:
    """Mean difference of a metric (the primary one) over the questions that both were asked, with a paired test."""
    from ragauge.results.stats import paired_test

    a, b = scored(runs, better, metric), scored(runs, worse, metric)
    shared = [k for k in a if k in b]
    if not shared:
        return Measure(note="no question in common")
    test = paired_test([a[k] for k in shared], [b[k] for k in shared], seed=runs.seed)
    return Measure(
        test["difference"], test["low"], test["high"], len(shared), test["p"], "paired on the same questions"
    )


def cost(runs: Runs, variant: Variant, fold: Callable[[Variant, str], float] = paper_cycles) -> Measure:
    """Mean compute cycles of a question under a fold of its trace."""
    from ragauge.results.stats import bootstrap_interval

    values = list(costs(variant, fold).values())
    if not values:
        return Measure(note=_no_cost(variant))
    low, high = bootstrap_interval(values, seed=runs.seed)
    return Measure(sum(values) / len(values), low, high, len(values))


def costs(variant: Variant, fold: Callable[[Variant, str], float] = paper_cycles) -> dict[str, float]:
    """Compute cycles of each question that has a trace."""
    given = {key: fold(variant, key) for key in variant.traces}
    return {k: v for k, v in given.items() if math.isfinite(v)}


def speedup(
    runs: Runs,
    naive: Variant | None,
    variant: Variant,
    fold: Callable[[Variant, str], float] = paper_cycles,
    naive_fold: Callable[[Variant, str], float] = paper_cycles,
) -> Measure:
    """Naive compute cycles over the variant's: the ratio of their means over the questions that both answered."""
    if naive is None:
        return Measure(note="no naive run to compare with")
    base, mine = costs(naive, naive_fold), costs(variant, fold)
    shared = [k for k in mine if k in base]
    if not shared:
        return Measure(note=_no_cost(variant) if not mine else "no question in common with naive")
    a, b = [base[k] for k in shared], [mine[k] for k in shared]
    return Measure(sum(a) / sum(b), *ratio_interval(a, b, runs.seed), len(shared))


def standard(runs: Runs, variant: Variant) -> dict[str, Measure]:
    """Accuracy, compute cycles and theoretical speedup of a variant, and the speedup under our own accounting."""
    base = naive(runs, variant.dataset, variant.model)
    return {
        "accuracy": quality(runs, variant),
        "compute_cycles": cost(runs, variant),
        "theoretical_speedup": speedup(runs, base, variant),
        "critical_path_speedup": speedup(runs, base, variant, critical_path_cycles, critical_path_cycles),
    }


def ratio_interval(a: Sequence[float], b: Sequence[float], seed: int, level: float = 0.95) -> tuple[float, float]:
    """Percentile bootstrap interval of mean(a) / mean(b), resampling questions in pairs."""
    import numpy as np

    pairs = np.column_stack([np.asarray(a, float), np.asarray(b, float)])
    draws = np.random.default_rng(seed).integers(len(pairs), size=(RESAMPLES, len(pairs)))
    sums = pairs[draws].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def find(runs: Runs, dataset: str, model: str, method: str) -> list[Variant]:
    """The variants of a method there, by top_k (those without one first), then in the configuration's order."""
    found = [v for v in runs.of(dataset, model) if v.method == method]
    return sorted(found, key=lambda v: v.param("top_k") or 0)


def naive(runs: Runs, dataset: str, model: str) -> Variant | None:
    """The plain run of all documents in one prompt, if there is one."""
    return next(iter(find(runs, dataset, model, "naive")), None)


def join(*notes: str) -> str:
    """Notes in one line, empty ones and repetitions left out."""
    return "; ".join(dict.fromkeys(note for note in notes if note))


def noted(measure: Measure, *notes: str) -> Measure:
    """The measure with further notes."""
    return replace(measure, note=join(measure.note, *notes))


def _values(cell: Cell) -> list[Any]:
    m, printed = cell.measure, cell.published
    comparable = m.value is not None and printed and not cell.quantity.startswith(TIMED)
    ratio = m.value / printed if comparable else None  # type: ignore[operator]
    return [printed, m.value, m.low, m.high, m.n, m.p, ratio, m.note]


def _identity(cell: Cell, on: Sequence[str]) -> tuple[Any, ...]:
    return (cell.paper_model, cell.quantity, *(cell.keys.get(k, "") for k in on))


def _unmatched(cell: Cell, measured_models: set[str | None]) -> Cell:
    note = "published; this row was not run" if cell.paper_model in measured_models else OTHER_MODEL
    return replace(cell, measure=Measure(note=join(cell.measure.note, note)))


def _stand_in(cell: Cell, guess: Measure | None) -> Cell:
    """The cell with what was predicted of it, where it was not measured; a reason that it was not stays."""
    if guess is None or cell.measure.value is not None or not cell.paper_model:
        return cell
    reason = "" if cell.measure.note == OTHER_MODEL else cell.measure.note
    return replace(cell, measure=replace(guess, note=join(guess.note, reason)))


def _failures(variant: Variant) -> str:
    count = len(variant.failed)
    return f"{count} of {len(variant.records)} questions failed, counted as wrong" if count else ""


def _no_cost(variant: Variant) -> str:
    if variant.traces and variant.shape is None:
        return f"the shape of {variant.model} is not known, so its cycles cannot be counted"
    return "no traces" if not variant.failed else f"no traces: {next(iter(variant.failed.values()))}"


@cache
def read_csv(item: str) -> tuple[dict[str, str], ...]:
    """The lines of a published CSV, as text."""
    text = (files("ragauge.results") / "published" / f"{item}.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def _value(text: str) -> Any:
    """A key of a CSV as Python writes it, so that it equals the measured rows' keys."""
    if text in ("True", "False"):
        return text == "True"
    return int(text) if text.isdigit() else text
