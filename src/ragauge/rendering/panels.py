"""Drawings that several items share: points with intervals (dot plots, grids), and speedup or top_k against quality."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragauge.rendering import style
from ragauge.rendering.style import Axes, Figure
from ragauge.results.cells import Status, Table
from ragauge.results.publications import LONGBENCH

ROW_IN = 0.165  # height of one row of a dot plot
NOTHING = "Nothing to draw yet: no records of this run, and no published numbers for this item."


@dataclass(frozen=True)
class Axis:
    """How one quantity is drawn along x."""

    label: str
    log: bool = False
    log_if_wide: bool = False  # logarithmic where the values span more than a factor of four
    base2: bool = False  # logarithmic with a tick at each value
    zero: bool = False  # a line at zero: the quantity is a difference


@dataclass(frozen=True)
class Block:
    """One panel of rows: what was measured for one model on one data set, or what the paper's models have."""

    title: str
    table: Table
    published: bool


def dots(table: Table, styles: Iterable[str], axes: Mapping[str, Axis], names: Sequence[str] | None = None) -> Figure:
    """A column of panels a quantity, a row of panels a block; one line a name, measured points with intervals.

    Args:
        table: a frame of `results.cells.frame`.
        styles: for each of its lines the method, or another word, whose colour and marker it has.
        axes: the quantities drawn, left to right.
        names: for each line the text that names its row; by default the method's label.
    """
    styles = list(styles)
    texts = list(names) if names is not None else [method_label(s) for s in styles]
    shown = blocks(table.assign(label=texts, style=styles)[table["quantity"].isin(list(axes))])
    if not shown:
        return style.empty(NOTHING)
    with style.theme():
        rows = [len(_labels(block)) for block in shown]
        figure = style.figure(style.TEXT_IN, ROW_IN * sum(rows) + 0.42 * len(shown) + 0.6)
        grid = figure.subplots(len(shown), len(axes), sharex="col", squeeze=False, height_ratios=rows)
        for block, line in zip(shown, grid, strict=True):
            for place, (quantity, ax) in enumerate(zip(axes, line, strict=True)):
                panel = block if place == 0 else replace(block, title="")
                _dot_panel(ax, panel, quantity, axes[quantity], _labels(block), named=place == 0)
        for ax, axis in zip(grid[-1], axes.values(), strict=True):
            ax.set_xlabel(axis.label)
            ax.tick_params(axis="x", which="both", labelbottom=True)
        style.legend(figure, _dot_handles(shown), columns=7)
        return figure


def grid(table: Table, quantity: str, axis: Axis, styles: Iterable[str], names: Iterable[str]) -> Figure:
    """One quantity of several data sets: a column a data set, a row of panels a model, the paper's models last.

    Args:
        table: a frame of `results.cells.frame`.
        quantity: the one drawn.
        styles, names: for each line of the table, whose colour and marker it has and what its row is called.
    """
    shown = table.assign(label=list(names), style=list(styles))[table["quantity"] == quantity]
    rows = _by_model(shown)
    if not rows:
        return style.empty(NOTHING)
    columns = max(block.table["dataset"].nunique() for block in rows)
    with style.theme():
        heights = [len(_labels(block)) for block in rows]
        figure = style.figure(style.TEXT_IN, ROW_IN * sum(heights) + 0.5 * len(rows) + 0.55)
        axes = figure.subplots(len(rows), columns, sharex=True, squeeze=False, height_ratios=heights)
        for block, line in zip(rows, axes, strict=True):
            for place, ax in enumerate(line):
                ax.set_visible(place < block.table["dataset"].nunique())
            for place, (dataset, part) in enumerate(block.table.groupby("dataset", sort=False)):
                title = f"{block.title if place == 0 else ''}\n{str(dataset).removeprefix(LONGBENCH)}"
                panel = Block(title, part, block.published)
                _dot_panel(line[place], panel, quantity, axis, _labels(block), named=place == 0)
        for ax in axes[-1]:
            ax.set_xlabel(axis.label)
        style.legend(figure, _dot_handles(rows), columns=4)
        return figure


def points(table: Table, keys: Sequence[str], x: str, y: str) -> Table:
    """The points of a plane: one line a (row, source) that has both coordinates.

    Args:
        table: a frame of `results.cells.frame`.
        keys: its key columns; the one named "method" or "series" tells the lines apart.
        x, y: quantities, or for x a key column.

    Returns: columns model, dataset, published (bool), line, order (top_k), x, y, low, high.
    """
    import pandas as pd

    line = next(k for k in ("method", "series") if k in keys)
    rows = []
    for _, part in table.groupby(list(keys), sort=False, dropna=False):
        cells = {c["quantity"]: c for c in part.to_dict("records")}
        for source in ("measured", "published"):
            across = cells[y].get(x) if y in cells and x in keys else cells.get(x, {}).get(source)
            up = cells.get(y, {}).get(source)
            if _number(across) is None or not _is_number(up):
                continue
            first, mine = part.iloc[0], source == "measured"
            low, high = (cells[y]["low"], cells[y]["high"]) if mine else (math.nan, math.nan)
            order = _number(first.get("top_k")) or 0.0
            group = (first["model"], first["dataset"], not mine, first[line], order)
            rows.append((*group, _number(across), up, low, high))
    return pd.DataFrame(rows, columns=["model", "dataset", "published", "line", "order", "x", "y", "low", "high"])


def planes(dots: Table, x: Axis, y: Axis) -> Figure:
    """Small multiples, one a model and data set: lines over `order` (or x), measured first, published shaded."""
    if dots.empty:
        return style.empty(NOTHING)
    panels = list(dots.sort_values("published", kind="stable").groupby(["published", "model", "dataset"], sort=False))
    columns = min(3, len(panels))
    rows = math.ceil(len(panels) / columns)
    width = style.COLUMN_IN if columns == 1 else style.TEXT_IN
    styles = line_styles(dots["line"])
    with style.theme():
        figure = style.figure(width, 2.05 * rows + 0.45)
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flatten()
        for ax, (key, part) in zip(grid, panels, strict=False):
            plane(ax, part, styles, x)
            ax.set_title(_title(*key), loc="left", color=style.MUTED, pad=3)
        for place, ax in enumerate(grid):
            ax.set_ylabel(y.label if place % columns == 0 else "")
            ax.set_visible(place < len(panels))
        for ax in grid[max(0, len(panels) - columns) : len(panels)]:
            ax.set_xlabel(x.label)
            ax.tick_params(axis="x", labelbottom=True)
        _scale(grid[0], dots, x)
        handles = [handle(*look, line=True) for look in styles.values()]
        style.legend(figure, handles, columns=4 if columns == 1 else 7)
        return figure


def plane(ax: Axes, part: Table, styles: Mapping[str, tuple[str, str, str]], x: Axis) -> None:
    """One panel: each line's points in order, with their intervals."""
    ax.grid(axis="both")
    for name, line in part.groupby("line", sort=False):
        _, colour, marker = styles[str(name)]
        size, line = style.marker_size(marker), line.sort_values(["order", "x"])
        faded = 0.75 if bool(line["published"].iloc[0]) else 1.0
        ax.plot(line["x"], line["y"], marker=marker, color=colour, alpha=faded, ms=size, mew=0, zorder=3)
        for dot in line.to_dict("records"):
            interval(ax, dot["x"], dot["y"], dot["low"], dot["high"], colour, vertical=True)
    if bool(part["published"].iloc[0]):
        style.as_published(ax)
    top = max([float(v) for v in [*part["y"], *part["high"]] if _is_number(v)], default=1.0)
    ax.set_ylim(min(0.0, -0.03 * top), max(ax.get_ylim()[1], top * 1.06 or 1.0))


def line_styles(lines: Iterable[str]) -> dict[str, tuple[str, str, str]]:
    """(label, colour, marker) of each line: a method's own, else that of its place."""
    names = list(dict.fromkeys(lines))
    ordered = sorted(names, key=lambda n: style.method_order(n))
    if all(style.is_method(n) for n in names):
        return {n: style.method_style(n) for n in ordered}
    return {n: (n, *style.series_style(i)) for i, n in enumerate(names)}


def _title(published: Any, model: Any, dataset: Any) -> str:
    return f"{'published: ' if published else ''}{model}\n{dataset}"


def _scale(ax: Axes, dots: Table, x: Axis) -> None:
    if x.base2:
        base2_axis(ax, list(dots["x"]))
    elif x.log:
        log_axis(ax, list(dots["x"]))


def _number(value: Any) -> float | None:
    """The value as a finite float, None if it is not one (keys are text or numbers)."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def blocks(table: Table) -> list[Block]:
    """The measured (model, data set) pairs in the table's order, then all other published models as one block.

    Predictions of published numbers are drawn beside them.
    """
    others = table["status"].isin([Status.PUBLISHED_ONLY, Status.PREDICTED]) & table["published"].notna()
    mine = table[~others]
    pairs = mine.groupby(["model", "dataset"], sort=False)
    found = [Block(f"measured: {model} · {dataset}", part, False) for (model, dataset), part in pairs]
    if others.any():
        datasets = ", ".join(dict.fromkeys(table[others]["dataset"]))
        found.append(Block(" · ".join(filter(None, ["published (the paper's models)", datasets])), table[others], True))
    return found


def interval(ax: Axes, x: float, y: float, low: float, high: float, colour: str, vertical: bool = False) -> None:
    """An error bar without caps, below the points."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return
    if vertical:
        ax.plot([x, x], [low, high], color=colour, lw=0.9, alpha=0.55, solid_capstyle="round", zorder=2)
    else:
        ax.plot([low, high], [y, y], color=colour, lw=1.6, alpha=0.45, solid_capstyle="round", zorder=2)


def method_label(method: str) -> str:
    """The method's name in tables and legends."""
    return style.method_style(method)[0]


def method_handles(methods: Iterable[str]) -> list[Any]:
    """Legend entries of methods, each once."""
    names = sorted(dict.fromkeys(methods), key=style.method_order)
    return [handle(*style.method_style(m)) for m in names]


def log_axis(ax: Axes, values: Sequence[float], which: str = "x") -> None:
    """A logarithmic axis labelled with plain numbers: round ones, 1, 2, 5 or powers of ten, depending on its span."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    finite = [v for v in values if v and math.isfinite(v) and v > 0]
    span = math.log10(max(finite) / min(finite)) if finite else 1.0
    getattr(ax, f"set_{which}scale")("log")
    axis = getattr(ax, f"{which}axis")
    if span < 0.5:  # of 1, 2 and 5 it may have one
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    else:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if span < 1.6 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    axis.set_minor_formatter(NullFormatter())


def base2_axis(ax: Axes, values: Sequence[float]) -> None:
    """A base-2 logarithmic x axis with a tick at each value that occurs."""
    from matplotlib.ticker import NullFormatter, NullLocator

    ticks = sorted({float(v) for v in values if v and math.isfinite(float(v))})
    ax.set_xscale("log", base=2)
    ax.set_xticks(ticks, [_plain(t) for t in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_minor_formatter(NullFormatter())
    if ticks:
        ax.set_xlim(ticks[0] / 1.25, ticks[-1] * 1.25)


def _plain(value: float) -> str:
    if value >= 1e5 or (0 < value < 1e-3):
        exponent = math.floor(math.log10(value) + 1e-9)
        lead = value / 10**exponent
        return f"$10^{{{exponent}}}$" if abs(lead - 1) < 1e-6 else f"{lead:g}e{exponent}"
    return f"{value:g}"


def _by_model(shown: Table) -> list[Block]:
    """A block for each model of ours, then one of the paper's models, in the order of our data sets."""
    others = (shown["status"] == Status.PUBLISHED_ONLY) & shown["published"].notna()
    mine, printed = shown[~others], shown[others]
    known = list(dict.fromkeys(mine["dataset"]))
    order = [known.index(name) if name in known else len(known) for name in printed["dataset"]]
    printed = printed.iloc[sorted(range(len(printed)), key=order.__getitem__)]
    found = [Block(f"measured: {model}", part, False) for model, part in mine.groupby("model", sort=False)]
    return [*found, Block("published", printed, True)] if len(printed) else found


def _labels(block: Block) -> list[str]:
    """The names of a block's rows, from the top."""
    return list(dict.fromkeys(block.table["label"]))


def _dot_panel(ax: Axes, block: Block, quantity: str, axis: Axis, rows: Sequence[str], named: bool) -> None:
    part = block.table[block.table["quantity"] == quantity]
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), rows if named else [""] * len(rows))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    ax.spines["left"].set_visible(False)
    if block.title:
        ax.set_title(block.title, loc="left", color=style.MUTED, pad=3)
    if block.published:
        style.as_published(ax)
    models = list(dict.fromkeys(block.table["model"]))
    for line in part.to_dict("records"):
        _dot(ax, line, rows.index(line["label"]), models if block.published else None)
    if axis.zero:
        ax.axvline(0, color=style.MUTED, lw=0.7, zorder=1)
    if axis.log:
        log_axis(ax, [*part["measured"], *part["published"]])
    elif not axis.zero:
        _room(ax, [*part["high"], *part["measured"], *part["published"]])


def _dot(ax: Axes, line: Mapping[Any, Any], y: int, models: list[str] | None) -> None:
    """One row's points: filled where measured, hollow where published, the reason where there is neither."""
    _, colour, marker = style.method_style(str(line["style"]))
    if models is not None:
        place = models.index(line["model"])
        offset = 0.11 * (place - (len(models) - 1) / 2)
        shape = style.MODEL_MARKERS[place % len(style.MODEL_MARKERS)]
        ax.plot(line["published"], y + offset, shape, mfc="white", mec=colour, mew=0.9, ms=3.6, zorder=3)
        if _is_number(line["measured"]):  # a prediction
            ax.plot(line["measured"], y + offset, ".", color=style.INK, ms=1.8, mew=0, zorder=4)
        return
    if _is_number(line["published"]):
        ax.plot(line["published"], y + 0.22, "d", mfc="white", mec=colour, mew=0.9, ms=3.8, zorder=3)
    if _is_number(line["measured"]):
        interval(ax, line["measured"], y, line["low"], line["high"], colour)
        ax.plot(line["measured"], y, marker, color=colour, ms=style.marker_size(marker), mew=0, zorder=4)
    else:
        ax.text(0.01, y, "no number", transform=ax.get_yaxis_transform(), va="center", color=style.MUTED, fontsize=5.6)


def _dot_handles(shown: Sequence[Block]) -> list[Any]:
    handles = []
    mine = [b for b in shown if not b.published]
    if mine:
        handles.append(handle("measured, 95% interval", style.INK, "o", line=True))
    if any(_is_number(v) for b in mine for v in b.table["published"]):
        handles.append(handle("published, same model", style.INK, "d", hollow=True))
    for block in (b for b in shown if b.published):
        for place, model in enumerate(dict.fromkeys(block.table["model"])):
            handles.append(handle(str(model), style.INK, style.MODEL_MARKERS[place % 6], hollow=True))
        if any(_is_number(v) for v in block.table["measured"]):
            handles.append(handle("predicted", style.INK, "."))
    return handles


def handle(label: str, colour: str, marker: str, line: bool = False, hollow: bool = False) -> Any:
    """A legend entry."""
    from matplotlib.lines import Line2D

    size = style.marker_size(marker)
    face = "white" if hollow else colour
    return Line2D([], [], color=colour, marker=marker, mfc=face, ms=size, lw=1.1 if line else 0, label=label)


def _room(ax: Axes, values: Sequence[float]) -> None:
    """An axis from zero with room for its largest interval, and for those of the panels that share it."""
    finite = [float(v) for v in values if _is_number(v)]
    if not finite:
        return
    shared = ax.get_xlim()[1] if ax.has_data() and ax.get_xlim()[0] <= 0 else 0.0
    top = max(shared, 1.04 * max(finite))
    ax.set_xlim(min([0.0, *finite]) - 0.02 * top, top if top > 0 else 1.0)


def _is_number(value: Any) -> bool:
    return value is not None and isinstance(value, (int, float)) and math.isfinite(value)
