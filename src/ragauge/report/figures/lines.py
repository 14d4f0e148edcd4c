"""Line plots: a figure is a list of panels, a panel its axes and points."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, TypeVar

from ragauge.io.jsonl import JsonObject
from ragauge.report.figures import style
from ragauge.report.figures.axis import Axis
from ragauge.report.figures.style import Axes, Figure
from ragauge.results.cells import VALUES, Line, Table

NOTHING = "Nothing to draw yet: no records of this run, and no published numbers for this item."
Interval = tuple[float, float]
Item = TypeVar("Item")
Join = Literal["all", "best", "none"]
NO_INTERVAL = (math.nan, math.nan)
KEY_IN = 0.5
LETTER_IN = 0.058
KEY_LINE_IN = 0.17  # of a legend's entry: its marker, a letter, its height
LETTER = 0.027
LINE = 0.065  # size of small type in units of a panel
SMALL_TYPE: JsonObject = {
    "fontsize": style.SMALL_PT - 1.2,
    "color": style.INK,
    "va": "bottom",
    "zorder": 5,
}


@dataclass(frozen=True)
class TableRow:
    """A row of a table: its keys, and the line of each quantity."""

    keys: Mapping[str, Any]
    cells: Mapping[str, Line]

    def number(self, name: str, column: str = "measured") -> float:
        """The number of a quantity, or of a key of that name; NaN if there is none."""
        value = self.cells[name][column] if name in self.cells else self.keys.get(name)
        try:
            return float(value)  # type: ignore[arg-type]  # what is no number is caught
        except (TypeError, ValueError):
            return math.nan

    def interval(self, quantity: str) -> Interval:
        """The interval of a measured quantity; NaN if there is none."""
        bounds = (self.number(quantity, "low"), self.number(quantity, "high"))
        return bounds if quantity in self.cells else NO_INTERVAL


@dataclass(frozen=True)
class Point:
    panel: str  # title
    line: str  # text in the legend
    x: float
    y: float
    y_interval: Interval = NO_INTERVAL
    x_interval: Interval = NO_INTERVAL
    # the method or option whose colour and marker it has; empty: those of the line's place
    look: str = ""
    curve: str = ""  # the points that are joined; by default those of the line
    order: float = 0.0  # along the curve, before x
    published: bool = False
    label: str = ""  # written next to it
    hollow: bool = False
    row: TableRow = field(default=TableRow({}, {}), compare=False)  # of the table


@dataclass(frozen=True)
class Panel:
    """One coordinate system of a figure. `join` says which points of a curve a line joins: all,
    none, or the best ones, which no other point of the curve beats in both coordinates (lower is
    better).
    """

    title: str
    x: Axis
    y: Axis
    points: Sequence[Point]
    join: Join = "all"
    # corners of a dashed line through the best y at or below each x
    stairs: Sequence[tuple[float, float]] = ()


RowText = Callable[[TableRow], str]
Points = Iterable[Point]
Groups = dict[str, list[Point]]  # by a text that they share


def key_columns(table: Table) -> list[str]:
    return [name for name in table.columns if name not in (*VALUES, "quantity")]


def rows(table: Table) -> list[TableRow]:
    keys = key_columns(table)
    return [
        TableRow(
            dict(zip(keys, key, strict=True)),
            {line["quantity"]: line for line in part.to_dict("records")},
        )
        for key, part in table.groupby(keys, sort=False, dropna=False)
    ]


@dataclass(frozen=True)
class Lines:
    """A line plot of the rows of a table that have two numbers: a panel a model and data set,
    measured ones first.
    """

    x: str  # a quantity or a key
    x_axis: Axis
    y: str
    y_axis: Axis
    # a row's line in the legend; by default its method's name
    line: str | RowText | None = None
    # whose colour and marker a row has; empty: those of the line's place
    look: str | RowText = lambda row: row.keys.get("method", "")
    columns: Sequence[str] = ("measured", "published")
    join: Join = "all"
    share: bool = False
    across: int = 3  # panels of a line
    nothing: str = NOTHING

    def __call__(self, table: Table) -> Figure:
        return self.draw(self.points(table))

    def draw(self, points: Points) -> Figure:
        panels = self.panels(points)
        return draw(panels, columns=self.across, share=self.share, nothing=self.nothing)

    def panels(self, points: Points) -> list[Panel]:
        return [
            Panel(title, self.x_axis, self.y_axis, part, self.join)
            for title, part in by_panel(points).items()
        ]

    def points(self, table: Table) -> list[Point]:
        points = (self._point(row, column) for column in self.columns for row in rows(table))
        shown = [point for point in points if math.isfinite(point.x) and math.isfinite(point.y)]
        counts = {
            name: [p.row.number(self.y, "n") for p in panel]
            for name, panel in by_panel(shown).items()
        }
        return [
            replace(p, label=style.few(p.row.number(self.y, "n"), max(counts[p.panel])))
            for p in shown
        ]

    def _point(self, row: TableRow, column: str) -> Point:
        measured = column == "measured"
        title = f"{row.keys['model']}\n{row.keys['dataset']}".strip()
        look = self.look if isinstance(self.look, str) else self.look(row)
        line = self.line(row) if callable(self.line) else self.line
        return Point(
            title if measured else f"published: {title}",
            style.method_label(look) if line is None else line,
            row.number(self.x, column),
            row.number(self.y, column),
            y_interval=row.interval(self.y) if measured else NO_INTERVAL,
            x_interval=row.interval(self.x) if measured else NO_INTERVAL,
            look=look,
            order=row.number("top_k") if row.keys.get("top_k") else 0.0,
            published=not measured,
            row=row,
        )


def variant(row: TableRow) -> str:
    """The name of a row's variant, as a line of a legend."""
    return str(row.keys["variant"])


def by_panel(points: Points) -> Groups:
    """The points of each panel, by its title; panels of published numbers last."""
    return _grouped(sorted(points, key=attrgetter("published")), attrgetter("panel"))


def draw(
    panels: Sequence[Panel],
    *,
    columns: int = 3,
    height_in: float = 2.25,
    share: bool = False,
    nothing: str = NOTHING,
) -> Figure:
    """The panels from left to right, on one scale if they `share` it, and one legend."""
    everything = [point for panel in panels for point in panel.points]
    if not everything:
        return style.empty(nothing)
    looks = _looks(everything)
    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    width = style.COLUMN_IN * 1.15 if columns == 1 else style.TEXT_IN
    keys = max(1, int(width / (KEY_IN + LETTER_IN * max(map(len, looks)))))
    with style.theme():
        figure = style.figure(width, height_in * lines + 0.3 + KEY_LINE_IN * -(-len(looks) // keys))
        grid = figure.subplots(lines, columns, squeeze=False, sharex=share, sharey=share).flatten()
        for index, (ax, panel) in enumerate(zip(grid, panels, strict=False)):
            left = panels[index - 1].y.label if index % columns else ""
            ax.set_ylabel(panel.y.label if panel.y.label != left else "")
            _draw_panel(ax, panel, looks, everything if share else panel.points)
            ax.tick_params(axis="x", labelbottom=True)  # each is read by itself
        for ax in grid[len(panels) :]:
            ax.set_visible(False)
        handles = [style.handle(name, *look, line=True) for name, look in looks.items()]
        style.legend(figure, handles, columns=keys)
        return figure


def best(points: Sequence[Point]) -> list[Point]:
    """The points that no other one beats in both coordinates (lower is better), in order of x."""
    return _unbeaten(points, lambda p: (p.x, p.y))


def swept(points: Points) -> set[str]:
    """The lines that have points at several x."""
    return {
        name
        for name, line in _grouped(points, attrgetter("line")).items()
        if len({p.x for p in line}) > 1
    }


def steps(places: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of the staircase of the highest y at or below each x."""
    return _unbeaten(places, lambda place: (place[0], -place[1]))


def _unbeaten(items: Iterable[Item], costs: Callable[[Item], tuple[float, float]]) -> list[Item]:
    """The items that no other one beats in both costs, in order of the first."""
    left: list[Item] = []
    for item in sorted(items, key=costs):
        if not left or costs(item)[1] < costs(left[-1])[1]:
            left.append(item)
    return left


def _grouped(points: Points, key: Callable[[Point], str]) -> Groups:
    groups: Groups = {}
    for point in points:
        groups.setdefault(key(point), []).append(point)
    return groups


def _draw_panel(
    ax: Axes, panel: Panel, looks: Mapping[str, tuple[str, str]], scaled: Sequence[Point]
) -> None:
    """Draw the points of a panel, its axes scaled for those of all panels that share them."""
    ax.set_title(panel.title)
    ax.set_xlabel(panel.x.label)
    ax.grid(axis="both")
    ax.margins(0.12)
    if not panel.points:
        ax.text(
            0.5, 0.5, "nothing measured", transform=ax.transAxes, ha="center", color=style.MUTED
        )
        ax.set(xticks=[], yticks=[])
        return
    if panel.points[0].published:
        ax.set_facecolor(style.PUBLISHED_FACE)
    if panel.stairs:
        corners = zip(*panel.stairs, strict=True)
        ax.step(*corners, where="post", color=style.MUTED, lw=0.8, ls=(0, (3, 2)), zorder=1)
    for curve in _grouped(panel.points, lambda p: p.curve or p.line).values():
        _draw_curve(ax, panel, curve, *looks[curve[0].line])
    panel.x.apply(ax, "x", [p.x for p in scaled])
    panel.y.apply(ax, "y", [v for p in scaled for v in (p.y, p.y_interval[1])])
    labelled = panel.points
    if panel.join == "best":
        by_line = _grouped(panel.points, attrgetter("line")).values()
        labelled = list(chain.from_iterable(map(best, by_line)))
    _write_labels(ax, labelled)


def _draw_curve(ax: Axes, panel: Panel, curve: Sequence[Point], colour: str, marker: str) -> None:
    joined = best(curve) if panel.join == "best" else sorted(curve, key=lambda p: (p.order, p.x))
    if panel.join != "none":
        ax.plot(
            [p.x for p in joined], [p.y for p in joined], color=colour, lw=1.0, alpha=0.7, zorder=2
        )
    for point in curve:
        alpha = 1.0 if point in joined else 0.45
        face, edge = ("white", 0.9) if point.hollow else (colour, 0)
        size = style.marker_size(marker)
        ax.plot(
            point.x,
            point.y,
            marker,
            color=colour,
            mfc=face,
            alpha=alpha,
            ms=size,
            mew=edge,
            zorder=4,
        )
        if point in joined:
            style.interval(ax, point.x, *point.y_interval, colour, vertical=True)
            style.interval(ax, point.y, *point.x_interval, colour)


def _write_labels(ax: Axes, points: Sequence[Point]) -> None:
    """Labels next to points, each in the first of four places that is free; left out where none is."""
    from matplotlib.transforms import Bbox

    ax.get_xlim(), ax.get_ylim()  # settles the limits that the transformation reads
    to_axes = ax.transData + ax.transAxes.inverted()
    places = to_axes.transform([(point.x, point.y) for point in points])
    taken = [Bbox([place, place]) for place in places]
    behind = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.3}
    for point, (across, up) in zip(points, places, strict=True):
        width = LETTER * len(point.label)
        boxes = (
            Bbox.from_bounds(left, bottom, width, LINE)
            for left in (across + 0.02, across - 0.02 - width)
            for bottom in (up + 0.015, up - 0.015 - LINE)
        )
        free = (b for b in boxes if b.x0 >= 0 and b.x1 <= 1 and not b.count_overlaps(taken))
        if point.label and (box := next(free, None)):
            taken.append(box)
            text = ax.text(*box.min, point.label, transform=ax.transAxes, bbox=behind, **SMALL_TYPE)
            text.set_in_layout(False)


def _looks(points: Sequence[Point]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each line: its method's, paler and with another marker for each further
    line of a method.
    """
    first = {name: line[0].look for name, line in _grouped(points, attrgetter("line")).items()}
    if all(map(style.is_method, first.values())):
        first = dict(sorted(first.items(), key=lambda entry: style.method_order(entry[1])))
    methods = list(first.values())
    looks = {}
    for index, (name, method) in enumerate(first.items()):
        if not style.is_method(method):
            looks[name] = style.series_style(index)
            continue
        before = methods[:index].count(method)
        shades = methods.count(method)
        _, colour, marker = style.method_style(method)
        marker = marker if shades == 1 else style.series_style(before)[1]
        looks[name] = (style.paler(colour, 0.5 * before / max(1, shades - 1)), marker)
    return looks
