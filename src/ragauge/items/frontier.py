"""All methods on one plane: quality against what an answer costs its user, in compute cycles and in seconds.

Shows every variant of the run: its primary metric against its mean compute cycles on the critical path as it ran here
(generated tokens included, what was prepared before the question counted as nothing), and against its online latency.
The probability of being on the frontier is over bootstrap resamples of the questions that all variants were asked;
the gold documents alone are a reference point and take no place on it. Latency is the median of the latency protocol
where the model was timed on prompts of that data set; elsewhere the median of the answering run, which other work on
the machine may have disturbed: the axis says which.

A served model's variants are hollow points on the panels of the models that ran here: their times are another stack's,
its own cache included, and they take no place on the other models' frontier. Of them the table also has the seconds of
each further token, the part of the prompt that the server found in its cache, and what 1,000 questions cost where the
configuration has prices.

Does not show: offline cost and memory. Filled points of one panel were measured on one machine; two panels need not be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.items._frontier import (
    LIKELY,
    draw_steps,
    known,
    latencies,
    metric_name,
    name_points,
    on_frontier,
)
from ragauge.rendering import panels, style
from ragauge.rendering.style import Axes, Figure
from ragauge.results.cells import Cell, CellSource, Measure, Table, frame, noted
from ragauge.results.costs import cost, costs, online_cycles
from ragauge.results.measures import REFERENCES, quality
from ragauge.results.reads import Reads, every
from ragauge.results.runs import ELSEWHERE, Runs, Variant
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
    if not groups:
        return style.empty("No records of this run yet: the frontier needs at least one answered variant.")
    with style.theme():
        figure = style.figure(style.TEXT_IN, 2.35 * len(groups) + 0.45)
        grid = figure.subplots(len(groups), len(COSTS), sharey="row", squeeze=False)
        for line, ((model, dataset), part) in zip(grid, groups, strict=True):
            for place, (ax, quantity) in enumerate(zip(line, COSTS, strict=True)):
                _panel(ax, part, quantity, [guest for of, guest in guests if of == dataset])
                ax.set_title(f"{model} · {dataset}" if place == 0 else "", loc="left", color=style.MUTED, pad=3)
            line[0].set_ylabel(str(part["metric"].iloc[0]))
        style.legend(figure, panels.method_handles(table["method"]), columns=6)
        return figure


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


def _drawn(part: Table, quantity: str) -> list[tuple[str, Any, Any, float]]:
    """(variant, quality, cost, probability of being on the frontier) of each variant that has both numbers."""
    cells = {(c["variant"], c["quantity"]): c for c in part.to_dict("records")}
    name = _chance(quantity)
    return [
        (v, cells[v, "quality"], cells[v, quantity], cells.get((v, name), {}).get("measured", 0.0))
        for v in part["variant"].unique()
        if (v, "quality") in cells and (v, quantity) in cells and known(cells[v, "quality"], cells[v, quantity])
    ]


def _panel(ax: Axes, part: Table, quantity: str, guests: Sequence[Table] = ()) -> None:
    """The variants of a group, and those of served models as hollow points."""
    drawn = _drawn(part, quantity)
    placed = [one for guest in guests for one in _drawn(guest, quantity)]
    visiting = [(f"{v} · {up['model']}", up, across) for v, up, across, _ in placed]
    ax.grid(axis="both")
    run_only = any(c["source"] == CellSource.RECORDS for _, _, c, _ in drawn)
    mixed = ", hollow: answering run" if visiting and drawn and not run_only else ""
    ax.set_xlabel(COSTS[quantity] + (", answering run" if run_only else mixed))
    draw_steps(ax, [(c["measured"], q["measured"]) for _, q, c, _ in drawn if q["method"] not in REFERENCES])
    for _, up, across, probability in sorted(drawn, key=lambda d: d[3]):
        _point(ax, up, across, probability)
    for _, up, across in visiting:
        _, colour, marker = style.method_style(str(up["method"]))
        looks: dict[str, Any] = {"mfc": "none", "mec": colour, "mew": 0.9, "ms": style.marker_size(marker), "zorder": 4}
        ax.plot(across["measured"], up["measured"], marker, **looks)
        panels.interval(ax, across["measured"], up["measured"], up["low"], up["high"], colour, vertical=True)
    panels.log_axis(ax, [c["measured"] for *_, c, _ in drawn] + [c["measured"] for *_, c in visiting])
    ax.set_ylim(0, max(ax.get_ylim()[1], 0.05))
    names = [(f"{v} {p:.2f}", c["measured"], q["measured"]) for v, q, c, p in drawn if p >= LIKELY]
    name_points(ax, names + [(f"{v}, another stack", c["measured"], q["measured"]) for v, q, c in visiting])


def _point(ax: Axes, up: Mapping[Any, Any], across: Mapping[Any, Any], probability: float) -> None:
    """Filled, with its interval, where the variant is likely on the frontier, pale where not."""
    _, colour, marker = style.method_style(str(up["method"]))
    likely = probability >= LIKELY
    x, y, size = across["measured"], up["measured"], style.marker_size(marker)
    ax.plot(x, y, marker, color=colour, alpha=1.0 if likely else 0.4, ms=size, mew=0, zorder=4 if likely else 3)
    if likely:
        panels.interval(ax, x, y, up["low"], up["high"], colour, vertical=True)
