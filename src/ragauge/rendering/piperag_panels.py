"""Drawings of PipeRAG's items: perplexity against latency, and lines over nprobe, interval or database size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragauge.rendering import panels, style
from ragauge.rendering.style import Axes, Figure
from ragauge.results.cells import Table
from ragauge.results.sequences import AGAINST_NONE
from ragauge.results.systems import KEYS, S3

PAPER = "the paper's RETRO"  # the model of the paper's rows
PERPLEXITY = panels.Axis("perplexity")
SECONDS = panels.Axis("latency of a sequence (s)", log_if_wide=True)
NONE = (math.nan, math.nan)
KEY_IN, LETTER_IN, KEY_LINE_IN = 0.5, 0.058, 0.17  # of an entry of the legend: its marker, a letter, its height
LETTER, LINE = 0.027, 0.065  # of small type in the units of a panel, where a name keeps clear of others


@dataclass(frozen=True)
class PanelPoint:
    """A point of a panel, with an interval for each coordinate; NaN if there is none."""

    panel: str
    line: str  # the text of the legend
    kind: str  # whose colour and marker it has
    x: float
    y: float
    x_interval: tuple[float, float] = NONE
    y_interval: tuple[float, float] = NONE
    published: bool = False
    text: str = ""  # written beside it


def rows(table: Table) -> list[dict[str, Any]]:
    """The rows of a table: their keys, and the line of each quantity by its name."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in table.to_dict("records"):
        keys = {str(k): line[k] for k in KEYS}
        found.setdefault(tuple(keys.values()), keys)[line["quantity"]] = line
    return list(found.values())


def value(row: Mapping[str, Any], quantity: str, which: str = "measured") -> float:
    """A number of a row; NaN if there is none."""
    number = row.get(quantity, {}).get(which)
    return float(number) if isinstance(number, (int, float)) else math.nan


def bounds(row: Mapping[str, Any], quantity: str) -> tuple[float, float]:
    """The interval of a row's number; NaN if there is none.

    Perplexities differ far more between texts than between systems, which all read the same texts. A perplexity is
    therefore drawn with the interval of its paired difference from no retrieval, where the table has one.
    """
    if quantity != "perplexity":
        return value(row, quantity, "low"), value(row, quantity, "high")
    nats = value(row, AGAINST_NONE)
    low, high = (value(row, AGAINST_NONE, which) - nats for which in ("low", "high"))
    return value(row, quantity) * math.exp(low), value(row, quantity) * math.exp(high)


def panel(row: Mapping[str, Any], published: bool) -> str:
    """The title of the panel that a row is drawn in; a filled index is named in it."""
    filled = row["index"].filled if row["index"] else None
    told = f"\nindex filled to {filled:,}" if filled else ""
    return f"{'published: ' if published else ''}{row['model']}\n{row['dataset']}{told}"


def panels_of(row: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> list[str]:
    """The panels of a measured row: its own, or those of all indexes for a system that asks none."""
    beside = [o for o in others if o["index"] and (o["model"], o["dataset"]) == (row["model"], row["dataset"])]
    if row["index"] or not beside:
        return [panel(row, False)]
    return list(dict.fromkeys(panel(other, False) for other in beside))


def plane_points(
    table: Table, x: str, y: str, label: Callable[[Mapping[str, Any]], str], sources: Iterable[str]
) -> list[PanelPoint]:
    """The rows that have both quantities, measured or published."""
    found = []
    for source in sources:
        mine = source == "measured"
        both = [r for r in rows(table) if math.isfinite(value(r, x, source)) and math.isfinite(value(r, y, source))]
        for row in both:
            intervals = (bounds(row, x), bounds(row, y)) if mine else (NONE, NONE)
            at, line = (value(row, x, source), value(row, y, source)), (label(row), str(row["method"]))
            titles = panels_of(row, both) if mine else [panel(row, True)]
            found += [PanelPoint(t, *line, *at, *intervals, published=not mine, text=_named(row)) for t in titles]
    return found


def draw(
    points: Sequence[PanelPoint], x: panels.Axis, y: panels.Axis, *, frontiers: bool = False, nothing: str = ""
) -> Figure:
    """Small multiples, measured first, published shaded; each panel has scales of its own.

    Args:
        frontiers: connect and name the points of a line that no other point of it beats in both coordinates, instead of
            connecting all.
        nothing: what is said where there is no point.
    """
    if not points:
        return style.empty(nothing or panels.NOTHING)
    members: dict[str, list[PanelPoint]] = {}
    for point in sorted(points, key=lambda p: p.published):
        members.setdefault(point.panel, []).append(point)
    looks = _looks(points)
    columns = min(3, len(members))
    lines = -(-len(members) // columns)
    width = style.COLUMN_IN * 1.15 if columns == 1 else style.TEXT_IN
    keys = max(1, int(width / (KEY_IN + LETTER_IN * max(map(len, looks)))))
    with style.theme():
        figure = style.figure(width, 2.25 * lines + 0.3 + KEY_LINE_IN * -(-len(looks) // keys))
        grid = figure.subplots(lines, columns, squeeze=False).flatten()
        for place, ax in enumerate(grid):
            ax.set_visible(place < len(members))
            ax.set_ylabel("" if place % columns else y.label)
            ax.set_xlabel(x.label)
        for ax, (title, part) in zip(grid, members.items(), strict=False):
            ax.set_title(title, loc="left", color=style.MUTED, pad=3)
            _panel(ax, part, looks, frontiers)
            _scale(ax, x, y, part)
            if frontiers:
                _name(ax, [p for line in by_line(part).values() for p in frontier(line)])
        handles = [panels.handle(name, *look, line=True) for name, look in looks.items()]
        style.legend(figure, handles, columns=keys)
        return figure


def by_line(points: Iterable[PanelPoint]) -> dict[str, list[PanelPoint]]:
    """The points of each line."""
    lines: dict[str, list[PanelPoint]] = {}
    for point in points:
        lines.setdefault(point.line, []).append(point)
    return lines


def swept(points: Iterable[PanelPoint]) -> set[str]:
    """The lines that have points at several x."""
    return {name for name, line in by_line(points).items() if len({p.x for p in line}) > 1}


def frontier(points: Sequence[PanelPoint]) -> list[PanelPoint]:
    """The points that no other one dominates (lower is better in both coordinates), in order of x."""
    best, kept = math.inf, []
    for point in sorted(points, key=lambda p: (p.x, p.y)):
        if point.y < best:
            kept.append(point)
            best = point.y
    return kept


def method(row: Mapping[str, Any]) -> str:
    """A row's line in a plane: its schedule, with its options."""
    label = panels.method_label(str(row["method"]))
    return f"{label}, {row['options']}" if row["options"] else label


def with_interval(row: Mapping[str, Any]) -> str:
    """A row's line over nprobe: its schedule and interval; of the paper's logs the database too."""
    told = [method(row)]
    if row["method"] in ("retro_plus", "piperag", "random") and row["interval"]:
        told.append(f"m = {row['interval']}")
    if row["model"] == PAPER and row["index"]:
        told.append(str(row["index"]).replace("_", " "))
    return ", ".join(told)


def with_interval_and_lists(row: Mapping[str, Any]) -> str:
    """A row's line over database sizes: its schedule, interval and nprobe."""
    return with_interval(row) + (f", {lists(row)}" if row["nprobe"] else "")


def lists(row: Mapping[str, Any]) -> str:
    """What a row's searches scan; empty if nothing is searched."""
    return S3 if row["nprobe"] == S3 else f"nprobe {row['nprobe']}" if row["nprobe"] else ""


def _panel(ax: Axes, points: Sequence[PanelPoint], looks: Mapping[str, tuple[str, str]], frontiers: bool) -> None:
    ax.grid(axis="both")
    if points[0].published:
        style.as_published(ax)
    for name, members in by_line(points).items():
        colour, marker = looks[name]
        path = frontier(members) if frontiers else sorted(members, key=lambda p: p.x)
        ax.plot([p.x for p in path], [p.y for p in path], color=colour, lw=1.0, alpha=0.7, zorder=2)
        for point in members:
            faded = 1.0 if point in path else 0.45
            size = style.marker_size(marker)
            ax.plot(point.x, point.y, marker, color=colour, alpha=faded, ms=size, mew=0, zorder=4)
            panels.interval(ax, point.x, 0.0, *point.y_interval, colour, vertical=True)
            panels.interval(ax, 0.0, point.y, *point.x_interval, colour)


def _scale(ax: Axes, x: panels.Axis, y: panels.Axis, points: Sequence[PanelPoint]) -> None:
    """The scales that the axes ask for."""
    ax.margins(0.12)
    across, up = [p.x for p in points], [p.y for p in points]
    if x.base2:
        panels.base2_axis(ax, across)
    elif x.log or _is_wide(x, across):
        panels.log_axis(ax, across)
    if _is_wide(y, up):
        panels.log_axis(ax, up, "y")


def _is_wide(axis: panels.Axis, values: Sequence[float]) -> bool:
    return axis.log_if_wide and min(values) > 0 and max(values) / min(values) > 4


def _name(ax: Axes, points: Sequence[PanelPoint]) -> None:
    """Names beside points, each in the first of four places that is free; left out where none is."""
    ax.get_xlim(), ax.get_ylim()  # settles the limits that the transformation reads
    to_axes = ax.transData + ax.transAxes.inverted()
    taken = [(*to_axes.transform((p.x, p.y)), 0.0, 0.0) for p in points]  # left, bottom, width, height
    for point in (p for p in points if p.text):
        across, up = (float(c) for c in to_axes.transform((point.x, point.y)))
        size = (LETTER * len(point.text), LINE)
        for right, above in ((True, True), (True, False), (False, True), (False, False)):
            left = across + 0.02 if right else across - 0.02 - size[0]
            box = (left, up + 0.015 if above else up - 0.015 - LINE, *size)
            if box[0] >= 0 and box[0] + box[2] <= 1 and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                _write(ax, left, box[1], point.text)
                break


def _write(ax: Axes, left: float, bottom: float, text: str) -> None:
    behind = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.3}
    size, at = style.SMALL_PT - 1.2, ax.transAxes
    made = ax.text(left, bottom, text, transform=at, bbox=behind, fontsize=size, color=style.INK, va="bottom", zorder=5)
    made.set_in_layout(False)


def _overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    return all(a[i] < b[i] + b[i + 2] and b[i] < a[i] + a[i + 2] for i in (0, 1))


def _looks(points: Sequence[PanelPoint]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each line: those of its schedule, paler and with another marker for each further line."""
    names: dict[str, str] = {}
    for point in points:
        names.setdefault(point.line, point.kind)
    kinds = list(names.values())
    found: dict[str, tuple[str, str]] = {}
    for place, (name, kind) in enumerate(names.items()):
        if not style.is_method(kind):
            found[name] = style.series_style(place)
            continue
        before = kinds[:place].count(kind)
        _, colour, marker = style.method_style(kind)
        shades = kinds.count(kind)
        marker = marker if shades == 1 else style.series_style(before)[1]
        found[name] = (_paler(colour, 0.5 * before / max(1, shades - 1)), marker)
    return found


def _paler(colour: str, share: float) -> str:
    """A colour mixed with white."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = (c + (1 - c) * share for c in to_rgb(colour))
    return str(to_hex((red, green, blue)))


def _named(row: Mapping[str, Any]) -> str:
    """What distinguishes a point from others of its line: interval and nprobe."""
    told = []
    if row["interval"] and row["method"] in ("retro_plus", "piperag"):
        told.append(f"m{row['interval']}")
    if row["nprobe"]:
        told.append(S3 if row["nprobe"] == S3 else f"n{row['nprobe']}")
    return " ".join(told)
