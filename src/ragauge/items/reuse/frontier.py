"""Ours: methods that reuse keys and values, each as a curve over the option that trades quality for time.

Shows, for each variant on the data sets on which some method was run at several values of that option (`knob`): the
primary metric with its interval, the median seconds to the first token, and the probability that no other variant is at
least as good and as soon, over bootstrap resamples of the questions that all were asked. A curve connects variants
that differ in the knob alone; a point is labelled with its value. The dashed staircase is the frontier of the means,
and a filled point is on it with a probability of one half or more. The gold documents alone are a reference and take
no place. `stored` says whether a store can serve what is prepared: not where a compressor knows the question.

Does not show: what was prepared before the question, which `reuse_table` has. Where the plain prompt is hardly ever
right nothing can be told, and the note and the panel say so. A point that is best on these questions looks better than
it will be: choose the knob on other questions (docs/reuse.md).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ragauge.items._frontier import (
    LIKELY,
    draw_steps,
    known,
    latencies,
    metric_name,
    on_frontier,
)
from ragauge.items.reuse._family import AT_FLOOR, KNOBS, RANKERS, answers, belongs, curve, floor, knob
from ragauge.rendering import panels, style
from ragauge.rendering.style import Axes, Figure
from ragauge.results.cells import Cell, CellSource, Table, frame, noted
from ragauge.results.measures import REFERENCES, naive, quality
from ragauge.results.reads import Reads
from ragauge.results.reuse import servable
from ragauge.results.runs import Runs, Variant

KEYS = ("model", "dataset", "method", "variant", "curve", "knob", "value", "stored", "metric")
CHANCE, FIRST = "frontier_probability", "first_token_s"

READS = Reads(answers=answers(*REFERENCES, *RANKERS), latency="any")


def table(runs: Runs) -> Table:
    """One line for each (variant, quantity) of the data sets with a curve."""
    return frame(KEYS, [cell for group in runs.groups() for cell in _group(runs, *group)])


def draw(table: Table) -> Figure:
    """A panel a (model, data set): quality against the time to the first token."""
    groups = list(table.groupby(["model", "dataset"], sort=False))
    if not groups:
        return style.empty("Nothing to draw yet: no method was run at several values of its option.")
    with style.theme():
        rows = -(-len(groups) // 2)
        figure = style.figure(style.TEXT_IN, 2.9 * rows + 0.5)
        grid = figure.subplots(rows, 2, squeeze=False).flatten()
        for ax, (key, part) in zip(grid, groups, strict=False):
            _panel(ax, part)
            told = AT_FLOOR if part["note"].str.contains(AT_FLOOR).any() else ""
            ax.set_title(
                "\n".join(filter(None, [" · ".join(map(str, key)), told])), loc="left", color=style.MUTED, pad=3
            )
        for ax in grid[len(groups) :]:
            ax.set_visible(False)
        style.legend(figure, panels.method_handles(table["method"]), columns=6)
        return figure


def _group(runs: Runs, dataset: str, model: str) -> list[Cell]:
    asked = [v for v in runs.of(dataset, model) if belongs(v, *REFERENCES, *RANKERS)]
    variants = [v for v in asked if len(v.failed) < len(v.records)]
    values: dict[str, set[str]] = defaultdict(set)
    for variant in variants:
        values[curve(variant)].add(str(knob(variant)))
    if max(map(len, values.values()), default=0) < 2:
        return []
    told = floor(runs, naive(runs, dataset, model))
    prices = latencies(runs, dataset, model, variants, FIRST)
    chances = on_frontier(runs, variants, prices, None)
    cells = []
    for variant, price in zip(variants, prices, strict=True):
        keys = _keys(runs, variant)
        cells += [Cell(keys, "quality", noted(quality(runs, variant), told)), Cell(keys, FIRST, price)]
        cells += [Cell(keys, CHANCE, noted(chances[variant.name], told))] if variant.name in chances else []
    return cells


def _keys(runs: Runs, variant: Variant) -> dict[str, Any]:
    value = knob(variant)
    return variant.keys | {
        "curve": curve(variant),
        "knob": KNOBS.get(variant.method, ""),
        "value": "" if value is None else value,
        "stored": "yes" if servable(variant) else "no",
        "metric": metric_name(runs, variant.dataset),
    }


def _panel(ax: Axes, part: Table) -> None:
    cells = {(c["variant"], c["quantity"]): c for c in part.to_dict("records")}
    both = [(cells[v, "quality"], cells[v, FIRST]) for v in part["variant"].unique() if (v, FIRST) in cells]
    drawn = [(up, across) for up, across in both if known(up, across)]
    lines: dict[str, list[tuple[Any, Any]]] = defaultdict(list)
    for up, across in drawn:
        lines[up["curve"]].append((up, across))
    ax.grid(axis="both")
    draw_steps(ax, [(across["measured"], up["measured"]) for up, across in drawn if up["method"] not in REFERENCES])
    likely = {v: c["measured"] for (v, quantity), c in cells.items() if quantity == CHANCE}
    for points in lines.values():
        _curve(ax, points, likely)
    panels.log_axis(ax, [across["measured"] for _, across in drawn])
    own = (part["source"] == CellSource.RECORDS) & (part["quantity"] == FIRST)
    ax.set_xlabel("first token (s), " + ("answering run" if own.any() else "latency protocol"))
    ax.set_ylabel(str(part["metric"].iloc[0]))
    ax.set_ylim(0, max(ax.get_ylim()[1], 0.05))


def _curve(ax: Axes, points: list[tuple[Any, Any]], likely: dict[str, float]) -> None:
    """The variants that differ in the knob alone, by its value."""
    points = sorted(points, key=lambda point: float(point[0]["value"] or 0))
    _, colour, marker = style.method_style(str(points[0][0]["method"]))
    places = [(across["measured"], up["measured"]) for up, across in points]
    ax.plot(*zip(*places, strict=True), color=colour, lw=0.8, alpha=0.7, zorder=2)
    for (up, _), (x, y) in zip(points, places, strict=True):
        on = likely.get(up["variant"], 0.0) >= LIKELY
        size = style.marker_size(marker)
        ax.plot(x, y, marker, color=colour, mfc=colour if on else "white", ms=size, mew=0.8, zorder=4)
        if up["value"] != "":
            text = _label(up, first=up is points[0][0])
            ax.annotate(text, (x, y), (2.5, 2.5), textcoords="offset points", fontsize=5, color=colour, zorder=5)
        if on:
            panels.interval(ax, x, y, up["low"], up["high"], colour, vertical=True)


def _label(point: Any, first: bool) -> str:
    """The knob's value; beside a curve's first point also what tells it from the method's others."""
    _, _, others = str(point["curve"]).partition(", ")
    value = f"{point['value']:g}"
    return f"{others.partition(',')[0].replace('_', ' ')} {value}".strip() if first else value
