"""Figures and files of items: `Dots` and `Lines` are figures as values, `style` has the colours."""

from ragauge.report.figures.axis import Axis
from ragauge.report.figures.dots import Dots
from ragauge.report.figures.lines import Lines, Panel, Point, TableRow
from ragauge.report.figures.style import Axes, Figure

__all__ = ["Axes", "Axis", "Dots", "Figure", "Lines", "Panel", "Point", "TableRow"]
