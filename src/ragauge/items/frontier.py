"""All methods on one plane: quality against compute cycles and against seconds.

What this shows: the primary metric of every variant against its mean compute cycles on the critical path as it ran here
(with generated tokens, without what was prepared before the question), and against its online latency. The probability
of being on the frontier is over bootstrap resamples of the questions that all variants share; the gold documents alone
are a reference and excluded. Latency is the median of the latency protocol where it timed the model on that data set,
else the median of the answering run, which other work may have disturbed: the axis says which.

Variants of a served model are hollow points on the panels of the models that ran here: their times are another stack's,
with its cache, and they are not part of the frontier. For them the table also has the seconds of each further token,
the cached part of the prompt, and the price of 1,000 questions where the configuration states prices.

Limits: no offline cost, no memory. Filled points of one panel come from one machine; two panels may not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ragauge.config.reads import Reads, every
from ragauge.items._frontier import LIKELY, latencies, metric_name, on_frontier
from ragauge.rendering import Axis, Figure, Lines, Panel, Point, lines
from ragauge.results import Cell, CellSource, Measure, Runs, Table, Variant, frame, noted, quality
from ragauge.results.costs import cost, costs, online_cycles
from ragauge.results.measures import REFERENCES
from ragauge.results.runs import ELSEWHERE
from ragauge.results.served import served

KEYS = ("model", "dataset", "method", "variant", "top_k", "metric")
COSTS = {"online_cycles": "compute cycles (online MACs)", "online_latency_s": "online latency (s)"}

READS = Reads(answers=(every(),), latency="any")


def table(runs: Runs) -> Table:
    """One line for each (variant, quantity): quality, both costs, and the probability of being on each frontier."""
    return frame(KEYS, [cell for group in runs.groups() for cell in _group(runs, *group)])


def draw(table: Table) -> Figure:
    """A row of panels a (model, data set): quality against cycles, and against latency."""
    groups, guests = _apart(table)
    panels = [
        _panel(
            f"{model} · {dataset}" if first else "", part, quantity, [guest for of, guest in guests if of == dataset]
        )
        for (model, dataset), part in groups
        for first, quantity in zip((True, False), COSTS, strict=True)
    ]
    nothing = "No records of this run yet: the frontier needs at least one answered variant."
    return lines.draw(panels, columns=len(COSTS), height_in=2.35, nothing=nothing)


def _group(runs: Runs, dataset: str, model: str) -> list[Cell]:
    variants = [v for v in runs.of(dataset, model) if len(v.failed) < len(v.records)]
    prices = {
        "online_cycles": [cost(runs, v, online_cycles) for v in variants],
        "online_latency_s": latencies(runs, dataset, model, variants, "total_s"),
    }
    metric = metric_name(runs, dataset)
    cells = [
        _cell(runs, v, "quality", noted(quality(runs, v), f"quality is {metric}", (v.stack and v.engine) or ""))
        for v in variants
    ]
    cells += [_cell(runs, v, quantity, m) for v in variants if v.stack for quantity, m in served(runs, v).items()]
    for quantity, measures in prices.items():
        cells += [_cell(runs, v, quantity, m) for v, m in zip(variants, measures, strict=True)]
        own = {v.name: costs(v, online_cycles) for v in variants} if quantity == "online_cycles" else None
        chances = on_frontier(runs, variants, measures, own)
        cells += [_cell(runs, v, _chance(quantity), chances[v.name]) for v in variants if v.name in chances]
    return sorted(cells, key=lambda c: [v.name for v in variants].index(c.keys["variant"]))


def _apart(table: Table) -> tuple[list[tuple[Any, Table]], list[tuple[str, Table]]]:
    """The groups that have a row of panels, and those of served models that stand on others' panels, by data set."""
    groups: list[tuple[Any, Table]] = list(table.groupby(["model", "dataset"], sort=False))
    here = {key[1] for key, part in groups if not _is_served(part)}
    guests = [(key[1], part) for key, part in groups if _is_served(part) and key[1] in here]
    return [(key, part) for key, part in groups if not (_is_served(part) and key[1] in here)], guests


def _is_served(part: Table) -> bool:
    return bool(part["note"].astype(str).str.contains(ELSEWHERE).any())


def _cell(runs: Runs, variant: Variant, quantity: str, measure: Measure) -> Cell:
    return Cell(variant.keys | {"metric": metric_name(runs, variant.dataset)}, quantity, measure)


def _chance(quantity: str) -> str:
    """The quantity that is the probability of being on the frontier over a cost."""
    return f"frontier_probability_{quantity.removeprefix('online_').removesuffix('_s')}"


def _panel(title: str, part: Table, quantity: str, guests: Sequence[Table]) -> Panel:
    """The variants of a group, and those of served models as hollow points."""
    run_only = ((part["quantity"] == quantity) & (part["source"] == CellSource.RECORDS)).any()
    note = ", answering run" if run_only else ", hollow: answering run" if guests else ""
    axes = Axis(COSTS[quantity] + note, "log"), Axis(str(part["metric"].iloc[0]), from_zero=True)
    plot = Lines(quantity, axes[0], "quality", axes[1])
    own = [_placed(point, _chance(quantity)) for point in plot.points(part)]
    others = [_of_server(point) for guest in guests for point in plot.points(guest)]
    stairs = lines.steps((point.x, point.y) for point in own if point.look not in REFERENCES)
    return Panel(title, *axes, own + others, join="none", stairs=stairs)


def _placed(point: Point, chance: str) -> Point:
    """The point, pale where it is unlikely to be on the frontier, labelled where it is likely."""
    probability = point.row.number(chance)
    if probability >= LIKELY:
        return replace(point, label=f"{point.row.keys['variant'].replace('_', ' ')} {probability:.2f}")
    return replace(point, fill="pale", y_interval=lines.NO_INTERVAL)


def _of_server(point: Point) -> Point:
    keys = point.row.keys
    return replace(point, fill="hollow", label=f"{keys['variant'].replace('_', ' ')} · {keys['model']}, another stack")
