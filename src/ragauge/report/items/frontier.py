"""All methods on one plane: quality against compute cycles and against seconds.

What this shows: the primary metric of every variant against its mean compute cycles on the critical
path as it ran here (with generated tokens, without what was prepared before the question), and
against its online latency. The probability of being on the frontier is over bootstrap resamples of
the questions that variants share, costs held at their measured values; the gold documents alone,
which are a reference, and variants of far fewer questions have none. `state` is what was read before
the question (docs/protocols.md): rows and panels compare variants in one state alone, and
`preparation_s` and `preparation_bytes` are what it took to be in it. Latency is the median of the
latency protocol where it timed the model on that data set, with responses as long as the answers
where these were timed, else the median of the answering run, which other work may have disturbed:
the axis says which.

Variants of a served model are hollow points on the panels of the models that ran here: their times
are another stack's, with its cache, and they are not part of the frontier. For them the table also
has the seconds of each further token, the cached part of the prompt, and the price of 1,000
questions where the configuration states prices.

Limits: the preparation is not part of the cost. Filled points of one panel come from one machine; two panels may
not.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ragauge.config.reads import Reads, every
from ragauge.report.figures import Axis, Figure, Lines, Panel, Point, lines, style
from ragauge.report.items._frontier import (
    LIKELY,
    by_state,
    latencies,
    on_frontier,
    served,
    staircase,
)
from ragauge.results import timing
from ragauge.results.cells import Cell, CellSource, Table, frame, noted, row_cells
from ragauge.results.measures import REFERENCES, metric_name, quality
from ragauge.results.runs import ELSEWHERE, Runs
from ragauge.results.states import online_cost, preparation
from ragauge.results.times import STATE_WORDS, State

KEYS = ("model", "dataset", "state", "method", "variant", "top_k", "metric")
COSTS = {"online_cycles": "compute cycles (online MACs)", "online_latency_s": "online latency (s)"}

READS = Reads(answers=(every(),), latency="any")


def table(runs: Runs) -> Table:
    return frame(KEYS, by_state(runs, _group))


def draw(table: Table) -> Figure:
    """A row of panels a model and data set that were timed, a panel a state; then those that were
    not, against compute cycles.
    """
    groups, guests = _apart(table)
    rows: dict[tuple[str, str], list[Panel]] = {}
    for (model, dataset, state), part in groups:
        others = [guest for of, guest in guests if of == (dataset, state)]
        title = f"{model}\n{dataset}\n{STATE_WORDS[state]}"
        timed = part[part["source"] == CellSource.LATENCY]
        quantity = "online_latency_s" if others or _is_measured(timed) else "online_cycles"
        rows.setdefault((model, dataset), []).append(_panel(title, part, quantity, others))
    panels = [panel for row in sorted(rows.values(), key=len, reverse=True) for panel in row]
    columns = max([2, *map(len, rows.values())])
    nothing = "No records of this run yet: the frontier needs at least one answered variant."
    return lines.draw(panels, columns=columns, height_in=2.35, nothing=nothing)


def _group(runs: Runs, dataset: str, model: str, state: State) -> list[Cell]:
    timed = timing.find(runs, dataset, model)
    variants = [v for v in runs.of(dataset, model) if v.has_responses]
    prices = {
        "online_cycles": [online_cost(runs, v, state) for v in variants],
        "online_latency_s": latencies(runs, dataset, model, variants, "total_s", state),
    }
    metric = metric_name(runs, dataset)
    chances = {
        quantity: on_frontier(runs, variants, measures) for quantity, measures in prices.items()
    }
    cells = []
    for index, variant in enumerate(variants):
        note = f"quality is {metric}", (variant.stack and variant.engine) or ""
        measures = {"quality": noted(quality(runs, variant), *note)} | (
            served(runs, variant) if variant.stack else {}
        )
        for quantity, price in prices.items():
            chance = chances[quantity].get(variant.name)
            measures |= {quantity: price[index]} | ({_chance(quantity): chance} if chance else {})
        measures |= preparation(variant, timed, state)
        cells += row_cells(variant.keys | {"state": state, "metric": metric}, measures)
    return cells


def _apart(table: Table) -> tuple[list[tuple[Any, Table]], list[tuple[Any, Table]]]:
    """The groups that have a row of panels, and those of served models that stand on others'
    panels, by data set and state.
    """
    groups: list[tuple[Any, Table]] = list(table.groupby(["model", "dataset", "state"], sort=False))
    served = {key for key, part in groups if part["note"].astype(str).str.contains(ELSEWHERE).any()}
    here = {key[1:] for key, _ in groups if key not in served}
    guests = {key for key in served if key[1:] in here}
    return [g for g in groups if g[0] not in guests], [
        (key[1:], part) for key, part in groups if key in guests
    ]


def _is_measured(timed: Table) -> bool:
    return bool(timed.loc[timed["quantity"] == "online_latency_s", "measured"].notna().any())


def _chance(quantity: str) -> str:
    """The quantity that is the probability of being on the frontier over a cost."""
    return f"frontier_probability_{quantity.removeprefix('online_').removesuffix('_s')}"


def _panel(title: str, part: Table, quantity: str, guests: Sequence[Table]) -> Panel:
    """The variants of a group, and those of served models as hollow points."""
    seconds = part[part["quantity"] == "online_latency_s"]
    run_only = (seconds["source"] == CellSource.RECORDS).any()
    note = ", answering run" if run_only else ", hollow: answering run" if guests else ""
    note = note if quantity == "online_latency_s" else ""
    axes = Axis(COSTS[quantity] + note, "log"), Axis(str(part["metric"].iloc[0]), from_zero=True)
    plot = Lines(quantity, axes[0], "quality", axes[1])
    own = [_placed(point, _chance(quantity)) for point in plot.points(part)]
    others = []
    for point in (point for guest in guests for point in plot.points(guest)):
        label = f"{point.row.keys['variant'].replace('_', ' ')} · {point.row.keys['model']}, another stack"
        others.append(replace(point, fill="hollow", label=label))
    stairs = staircase(own, _chance(quantity))
    return Panel(title, *axes, own + others, join="none", stairs=stairs)


def _placed(point: Point, chance: str) -> Point:
    """The point, labelled where it is likely to be on the frontier; one of the others where not,
    the plain prompt and references apart.
    """
    probability = point.row.number(chance)
    name = point.row.keys["variant"].replace("_", " ")
    if probability >= LIKELY:
        return replace(point, label=f"{name} {probability:.2f}")
    bare = replace(point, y_interval=lines.NO_INTERVAL, x_interval=lines.NO_INTERVAL)
    if point.look in ("naive", *REFERENCES):
        return replace(bare, label=name)
    return replace(bare, look="others", line=style.method_label("others"))
