"""Colours, markers, sizes and type of every figure, as `looks.yaml` states them."""

import math
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml

from ragauge.results.measures import SHARED

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

Axes: TypeAlias = "matplotlib.axes.Axes"
Figure: TypeAlias = "matplotlib.figure.Figure"

COLUMN_IN = 3.35  # width of one column of a two-column paper
TEXT_IN = 6.9  # width of its text block
SMALL_PT = 6.2
MARKER_PT = 4.2
INK = "#1A1A1A"
MUTED = "#6B6B6B"
PUBLISHED_FACE = "#F5F4F0"

LOOKS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("looks.yaml").read_bytes())
METHODS, OPTIONS = (
    {name: tuple(look) for name, look in LOOKS[kind].items()} for kind in ("methods", "options")
)
ABOUT: dict[str, str] = LOOKS["about"]
_OTHER_COLOURS = ("#7A5195", "#A6761D", "#66A61E", "#1B4F72")
_SERIES = (
    ("#0072B2", "o"),
    ("#D55E00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#E69F00", "v"),
    ("#56B4E9", "P"),
)


def method_style(method: str) -> tuple[str, str, str]:
    """(label, colour, marker) of a method, an option or a difference "a − b"; `dense:minilm` has
    that encoder.
    """
    if " − " in method:
        return method.replace("_", " "), INK, "o"
    if method in OPTIONS:
        return OPTIONS[method]
    name, _, encoder = method.partition(":")
    if name not in METHODS:
        colour = _OTHER_COLOURS[sum(name.encode()) % len(_OTHER_COLOURS)]
        return method.replace("_", " "), colour, "p"
    label, colour, marker = METHODS[name]
    return (f"{label} ({encoder})" if encoder else label), colour, marker


def method_label(method: str) -> str:
    return method_style(method)[0]


def is_method(name: str) -> bool:
    """Whether a name is a method's that this module knows."""
    return name.partition(":")[0] in METHODS


def method_order(method: str) -> int:
    """The place of a method in legends."""
    return list(METHODS).index(method.partition(":")[0])


def marker_size(marker: str) -> float:
    """In points; stars are drawn larger to look as large as discs."""
    return 6.2 if marker == "*" else MARKER_PT


def series_style(index: int) -> tuple[str, str]:
    """(colour, marker) of the index-th line of a figure whose lines are not methods; the marker of
    a paper's model.
    """
    return _SERIES[index % len(_SERIES)]


def paler(colour: str, share: float) -> str:
    from matplotlib.colors import to_hex, to_rgb

    return str(to_hex([c + (1 - c) * share for c in to_rgb(colour)]))


@contextmanager
def theme() -> Iterator[None]:
    """The settings of `looks.yaml`, for as long as a figure is drawn or written; the caller's are
    restored.
    """
    import matplotlib as mpl

    with mpl.rc_context(LOOKS["rc"]):
        yield


def counted(count: Any, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def figure(width_in: float, height_in: float) -> Figure:
    """An empty figure with constrained layout, never shown on a screen."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width_in, height_in), layout="constrained")


def empty(message: str) -> Figure:
    """A placeholder that states why there is nothing to draw."""
    with theme():
        figure_ = figure(COLUMN_IN, 1.4)
        axes = figure_.subplots()
        axes.set_axis_off()
        text = textwrap.fill(message, 52)
        axes.text(0.5, 0.5, text, ha="center", va="center", color=MUTED, transform=axes.transAxes)
        return figure_


def footer(figure_: Figure, text: str) -> None:
    """Small print along the lower edge; the figure grows by its lines, so that nothing above gets
    narrower.
    """
    width_in, height_in = figure_.get_size_inches()
    lines = textwrap.wrap(text, max(40, int(width_in * 23)))
    room_in = (len(lines) * SMALL_PT * 1.25 + 5) / 72
    figure_.set_size_inches(width_in, height_in + room_in)
    share = room_in / (height_in + room_in)
    # long labels would touch the edge
    figure_.set_layout_engine("constrained", rect=(0.01, share, 0.98, 1 - share))
    figure_.text(
        0.012,
        share * 0.86,
        "\n".join(lines),
        fontsize=SMALL_PT - 0.7,
        color=MUTED,
        va="top",
        linespacing=1.25,
    )


def interval(
    ax: Axes, place: float, low: float, high: float, colour: str, vertical: bool = False
) -> None:
    """Draw an error bar at a place on the other axis, without caps and below the points; none where
    the ends are not known.
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return
    ends = ([place] * 2, [low, high]) if vertical else ([low, high], [place] * 2)
    lw, alpha = (0.9, 0.55) if vertical else (1.6, 0.45)
    ax.plot(*ends, color=colour, lw=lw, alpha=alpha, solid_capstyle="round", zorder=2)


def few(n: float, most: float) -> str:
    """The label of a number of far fewer questions than its neighbours have; empty for
    others.
    """
    return f"n = {n:g}" if 0 < n < SHARED * most else ""


def handle(label: str, colour: str, marker: str, line: bool = False, hollow: bool = False) -> Any:
    from matplotlib.lines import Line2D

    face = "white" if hollow else colour
    size = marker_size(marker)
    return Line2D(
        [], [], color=colour, marker=marker, mfc=face, ms=size, lw=1.1 if line else 0, label=label
    )


def legend(figure_: Figure, handles: list[Any], columns: int) -> None:
    columns = -(-len(handles) // -(-len(handles) // columns))  # rows of equal length
    figure_.legend(handles=handles, loc="outside upper center", ncols=columns)
