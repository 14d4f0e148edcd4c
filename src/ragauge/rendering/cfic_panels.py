"""A grid of dot plots that CFIC's items share: a column a data set, a row of panels a model, published ones last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragauge.rendering import panels, style
from ragauge.results.publications import LONGBENCH

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def grid(table: pd.DataFrame, quantity: str, label: str, styles: Sequence[str], names: Sequence[str]) -> Figure:
    """One panel a (model, data set): points with intervals, a line a name; the paper's models share their panels.

    Args:
        table: a frame of `_cells.frame`.
        quantity: the one drawn; `label` names it on the axis.
        styles, names: for each line of the table, whose looks it has and what its row is called.
    """
    shown = table.assign(style=list(styles), label=list(names))[table["quantity"] == quantity]
    rows = _blocks(shown)
    if not rows:
        return style.empty(panels.NOTHING)
    lines = [list(dict.fromkeys(part["label"])) for _, part, _ in rows]
    columns = max(part["dataset"].nunique() for _, part, _ in rows)
    with style.theme():
        heights = [max(1, len(named)) for named in lines]
        figure = style.figure(style.TEXT_IN, panels.ROW_IN * sum(heights) + 0.5 * len(rows) + 0.55)
        axes = figure.subplots(len(rows), columns, sharex=True, squeeze=False, height_ratios=heights)
        for (title, part, published), named, line in zip(rows, lines, axes, strict=True):
            _row(line, title, part, named, published)
        top = max((v for _, part, _ in rows for v in _values(part)), default=1.0) or 1.0
        axes[0][0].set_xlim(-0.04 * top, 1.08 * top)
        for ax in axes[-1]:
            ax.set_xlabel(label)
        style.legend(figure, _handles(rows), columns=4)
        return figure


def _row(line: Sequence[Axes], title: str, part: pd.DataFrame, names: Sequence[str], published: bool) -> None:
    """The panels of one model, or of the paper's: one a data set."""
    datasets = list(dict.fromkeys(part["dataset"]))
    for place, ax in enumerate(line):
        ax.set_visible(place < len(datasets))
        if place < len(datasets):
            _panel(ax, part[part["dataset"] == datasets[place]], names, place == 0, published)
            above = title if place == 0 else ""
            short = datasets[place].removeprefix(LONGBENCH)
            ax.set_title(f"{above}\n{short}", loc="left", color=style.MUTED, pad=3)


def _blocks(shown: pd.DataFrame) -> list[tuple[str, pd.DataFrame, bool]]:
    """(title, lines, whether published) of each row of panels: every model of ours, then the paper's together."""
    others = shown["measured"].isna() & shown["published"].notna()
    mine, printed = shown[~others], shown[others]
    known = list(dict.fromkeys(mine["dataset"]))  # whose columns the paper's numbers stand below
    order = [known.index(name) if name in known else len(known) for name in printed["dataset"]]
    printed = printed.iloc[sorted(range(len(printed)), key=order.__getitem__)]
    found = [(f"measured: {model}", part, False) for model, part in mine.groupby("model", sort=False)]
    return found + ([("published", printed, True)] if len(printed) else [])


def _panel(ax: Axes, part: pd.DataFrame, names: Sequence[str], named: bool, published: bool) -> None:
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.set_yticks(range(len(names)), names if named else [""] * len(names))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    ax.spines["left"].set_visible(False)
    if published:
        style.as_published(ax)
    models = list(dict.fromkeys(part["model"])) if published else []
    for line in part.to_dict("records"):
        _point(ax, line, names.index(line["label"]), models)
    if part.empty:
        ax.text(
            0.5, 0.5, "not there", transform=ax.transAxes, ha="center", va="center", color=style.MUTED, fontsize=5.6
        )


def _point(ax: Axes, line: Mapping[Any, Any], y: int, models: Sequence[str]) -> None:
    """Filled where measured, hollow where published, the reason where there is neither."""
    _, colour, marker = style.method_style(str(line["style"]))
    if models:
        place = models.index(line["model"])
        shape = style.MODEL_MARKERS[place % len(style.MODEL_MARKERS)]
        offset = 0.16 * (place - (len(models) - 1) / 2)
        ax.plot(line["published"], y + offset, shape, mfc="white", mec=colour, mew=0.9, ms=3.4, zorder=3)
    elif math.isfinite(line["measured"]):
        panels.interval(ax, line["measured"], y, line["low"], line["high"], colour)
        ax.plot(line["measured"], y, marker, color=colour, ms=style.marker_size(marker), mew=0, zorder=4)
        if math.isfinite(line["published"]):
            ax.plot(line["published"], y + 0.22, "d", mfc="white", mec=colour, mew=0.9, ms=3.8, zorder=3)
    else:
        ax.text(0.02, y, "no number", transform=ax.get_yaxis_transform(), va="center", color=style.MUTED, fontsize=5.6)


def _values(part: pd.DataFrame) -> list[float]:
    return [v for column in ("measured", "high", "published") for v in part[column] if math.isfinite(v)]


def _handles(rows: Sequence[tuple[str, pd.DataFrame, bool]]) -> list[Any]:
    handles = []
    if any(not published for _, _, published in rows):
        handles.append(panels.handle("measured, 95% interval", style.INK, "o", line=True))
    printed = [part for _, part, published in rows if published]
    for place, model in enumerate(dict.fromkeys(m for part in printed for m in part["model"])):
        handles.append(panels.handle(f"published: {model}", style.INK, style.MODEL_MARKERS[place], hollow=True))
    return handles
