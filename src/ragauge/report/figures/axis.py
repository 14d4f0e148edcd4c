"""Axes of figures: labels, scales and ticks."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ragauge.report.figures import style
from ragauge.report.figures.style import Axes


@dataclass(frozen=True)
class Axis:
    """How one quantity is drawn along an axis; base2 is logarithmic with a tick at each value."""

    label: str
    scale: Literal["linear", "log", "base2"] = "linear"
    from_zero: bool = False
    is_difference: bool = False  # drawn with a line at zero

    def apply(self, ax: Axes, which: Literal["x", "y"], values: Iterable[Any]) -> None:
        """Give an axis of a panel its scale, for the values drawn."""
        known = list(filter(is_number, values))
        if self.scale == "base2":
            base2_axis(ax, known, which)
        elif self.scale == "log":
            log_axis(ax, known, which)
        elif which == "x":
            ax.locator_params(
                axis="x", nbins=4, steps=[1, 2, 5, 10]
            )  # short labels fit a fifth of the page
        if self.from_zero and known:
            top = max([getattr(ax, f"get_{which}lim")()[1], *(1.06 * v for v in known)])
            getattr(ax, f"set_{which}lim")(min(0.0, -0.03 * top), max(top, 0.05))
        if self.is_difference:
            line = ax.axvline if which == "x" else ax.axhline
            line(0, color=style.MUTED, lw=0.7, zorder=1)


def log_axis(ax: Axes, values: Sequence[float], which: str = "x") -> None:
    """A logarithmic axis labelled with plain numbers: round ones, 1, 2, 5 or powers of ten,
    depending on its span.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    positive = [v for v in values if v > 0]
    span = math.log10(max(positive) / min(positive)) if positive else 1.0
    getattr(ax, f"set_{which}scale")("log")
    axis = getattr(ax, f"{which}axis")
    if span < 0.5:  # of 1, 2 and 5 it may have one
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    else:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if span < 1.6 else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
    axis.set_minor_formatter(NullFormatter())


def base2_axis(ax: Axes, values: Sequence[float], which: Literal["x", "y"]) -> None:
    from matplotlib.ticker import NullFormatter, NullLocator

    ticks = sorted({v for v in values if v > 0})
    getattr(ax, f"set_{which}scale")("log", base=2)
    axis = getattr(ax, f"{which}axis")
    axis.set_ticks(ticks, [_plain(t) for t in ticks])
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
    if ticks:
        getattr(ax, f"set_{which}lim")(ticks[0] / 1.25, ticks[-1] * 1.25)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _plain(value: float) -> str:
    if value >= 1e5 or (0 < value < 1e-3):
        exponent = math.floor(math.log10(value) + 1e-9)
        lead = value / 10**exponent
        return f"$10^{{{exponent}}}$" if abs(lead - 1) < 1e-6 else f"{lead:g}e{exponent}"
    return f"{value:g}"
