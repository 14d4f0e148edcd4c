"""Dot plots: a line a row of a table, with measured points, their intervals and published numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragauge.io.jsonl import JsonObject
from ragauge.report.figures import style
from ragauge.report.figures.axis import Axis, is_number
from ragauge.report.figures.lines import NOTHING
from ragauge.report.figures.style import Axes, Figure
from ragauge.results.cells import CellStatus, Line, Table
from ragauge.results.publications import LONGBENCH
from ragauge.results.times import STATE_WORDS

ROW_IN = 0.165  # height of one row
SMALL_TYPE: JsonObject = {"va": "center", "color": style.MUTED, "fontsize": 5.6}
LineText = Callable[[Line], str]
_Panel = tuple[str, Table, str, Axis]  # subtitle, rows, the quantity drawn of them, its axis


@dataclass(frozen=True)
class Block:
    """Rows of one model on one data set, or those of the paper's models."""

    title: str
    table: Table
    published: bool

    @property
    def labels(self) -> list[str]:  # of the rows, from the top
        return list(dict.fromkeys(self.table["label"]))


@dataclass(frozen=True)
class Dots:
    """A dot plot: a column of panels a quantity, a row a model and data set, the paper's other
    models last. Of a single quantity `by_dataset` has a column a data set and a row a model. Lines
    without any number are left out; the table has them, with the reason.
    """

    axes: Mapping[str, Axis]  # the quantities, left to right
    # of a line of the table: the method, or another word, whose colour and marker it has
    look: LineText = lambda line: line["method"]
    name: LineText | None = None  # the text of its row; by default the name of its look
    by_dataset: bool = False

    def __call__(self, table: Table) -> Figure:
        lines = table.to_dict("records")
        looks = [self.look(line) for line in lines]
        labels = list(map(self.name, lines) if self.name else map(style.method_label, looks))
        named = table.assign(style=looks, label=labels)
        has_number = named[["measured", "published"]].notna().any(axis=1)
        drawn = named[named["quantity"].isin(list(self.axes)) & has_number]
        if drawn.empty:
            return style.empty(NOTHING)
        shown = blocks(_with_variant_names(drawn), self.by_dataset)
        return _draw(shown, [self._panels(block) for block in shown], self.by_dataset)

    def _panels(self, block: Block) -> list[_Panel]:
        if not self.by_dataset:
            return [("", block.table, *entry) for entry in self.axes.items()]
        [entry] = self.axes.items()
        return [
            (f"\n{str(name).removeprefix(LONGBENCH)}", part, *entry)
            for name, part in block.table.groupby("dataset", sort=False)
        ]


def _with_variant_names(table: Table) -> Table:
    """Add the variant to the labels that several variants of a model and data set share."""
    if "variant" not in table:
        return table
    variants = table.groupby(["model", "dataset", "label"])["variant"].transform("nunique")
    names = table["label"] + " (" + table["variant"] + ")"
    return table.assign(label=table["label"].where(variants < 2, names))


def blocks(table: Table, by_dataset: bool = False) -> list[Block]:
    """The measured (model, data set) pairs, or models, in the table's order, each in one state of
    what was read before the question where the table has states, then all other published models
    as one, with the predictions of published numbers.
    """
    unmeasured = table["status"].isin([CellStatus.PUBLISHED_ONLY, CellStatus.PREDICTED])
    others = unmeasured & table["published"].notna()
    measured = table[~others]
    printed = table[others]
    pair = ["model"] if by_dataset else ["model", "dataset"]
    if "state" in table:
        pair.append("read")
        measured = measured.assign(read=measured["state"].map(STATE_WORDS).fillna(""))
    shown = [
        Block(f"measured: {' · '.join(map(str, key))}", part, False)
        for key, part in measured.groupby(pair, sort=False)
    ]
    if printed.empty:
        return shown
    title = "published"
    if by_dataset:  # in the order of the measured ones, then the others
        order = {name: index for index, name in enumerate(dict.fromkeys(measured["dataset"]))}
        printed = printed.sort_values("dataset", key=lambda names: names.map(order), kind="stable")
    else:
        names = ", ".join(dict.fromkeys(printed["dataset"]))
        title += " (the paper's models)" + (f" · {names}" if names else "")
    return [*shown, Block(title, printed, True)]


def _draw(shown: Sequence[Block], panels: Sequence[Sequence[_Panel]], by_dataset: bool) -> Figure:
    room_in, keys = (0.5, 4) if by_dataset else (0.42, 7)
    heights = [len(block.labels) for block in shown]
    columns = max(map(len, panels))
    with style.theme():
        figure = style.figure(style.TEXT_IN, ROW_IN * sum(heights) + room_in * len(shown) + 0.6)
        axes = figure.subplots(
            len(shown),
            columns,
            sharex="all" if by_dataset else "col",
            squeeze=False,
            height_ratios=heights,
        )
        for block, line, row in zip(shown, axes, panels, strict=True):
            for ax, panel in zip(line, row, strict=False):
                _draw_panel(ax, block, panel, named=panel is row[0])
            for ax in line[len(row) :]:
                ax.set_visible(False)
        longest = next(row for row in panels if len(row) == columns)
        for ax, (*_, axis) in zip(axes[-1], longest, strict=True):
            ax.set_xlabel(axis.label)
            ax.tick_params(axis="x", which="both", labelbottom=True)
        style.legend(figure, _handles(shown), columns=keys)
        return figure


def _draw_panel(ax: Axes, block: Block, panel: _Panel, named: bool) -> None:
    """Draw the rows: filled where measured, hollow where published; of the paper's other models a
    marker each, with a dot where its number was predicted.
    """
    subtitle, table, quantity, axis = panel
    part = table[table["quantity"] == quantity]
    labels = block.labels
    ax.set_ylim(len(labels) - 0.4, -0.6)
    ax.set_yticks(range(len(labels)), labels if named else [""] * len(labels))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x")
    ax.spines["left"].set_visible(False)
    ax.set_title(block.title + subtitle if named else subtitle)
    models = list(dict.fromkeys(table["model"]))
    for line in part.to_dict("records"):
        y = float(labels.index(line["label"]))
        _, colour, marker = style.method_style(line["style"])
        hollow: dict[str, Any] = {"mfc": "white", "mec": colour, "mew": 0.9, "zorder": 3}
        if block.published:
            ax.set_facecolor(style.PUBLISHED_FACE)
            index = models.index(line["model"])
            y += 0.11 * (index - (len(models) - 1) / 2)
            ax.plot(line["published"], y, style.series_style(index)[1], ms=3.6, **hollow)
            ax.plot(line["measured"], y, ".", color=style.INK, ms=1.8, mew=0, zorder=4)
            continue
        ax.plot(line["published"], y + 0.22, "d", ms=3.8, **hollow)
        if is_number(line["measured"]):
            style.interval(ax, y, line["low"], line["high"], colour)
            size = style.marker_size(marker)
            ax.plot(line["measured"], y, marker, color=colour, ms=size, mew=0, zorder=4)
            end = line["high"] if is_number(line["high"]) else line["measured"]
            note = style.few(line["n"], part["n"].max())
            ax.annotate(note, (end, y), (4, 0), textcoords="offset points", **SMALL_TYPE)
    is_amount = axis.scale == "linear" and not axis.is_difference
    numbers = [*part["measured"], *part["published"], *part["high"]]
    replace(axis, from_zero=is_amount).apply(ax, "x", numbers)


def _handles(shown: Sequence[Block]) -> list[Any]:
    measured = [block for block in shown if not block.published]
    handles = [style.handle("measured, 95% interval", style.INK, "o", line=True)] * bool(measured)
    if any(block.table["published"].notna().any() for block in measured):
        handles.append(style.handle("published, same model", style.INK, "d", hollow=True))
    for block in (block for block in shown if block.published):
        for index, model in enumerate(dict.fromkeys(block.table["model"])):
            marker = style.series_style(index)[1]
            handles.append(style.handle(model, style.INK, marker, hollow=True))
        if block.table["measured"].notna().any():
            handles.append(style.handle("predicted", style.INK, "."))
    return handles
