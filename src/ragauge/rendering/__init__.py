"""Figures and files of items: `Dots` and `Lines` are figures as values, `style` has the colours."""

from ragauge.rendering.axis import Axis
from ragauge.rendering.dots import Dots
from ragauge.rendering.lines import Lines, Panel, Point, Row
from ragauge.rendering.style import Axes, Figure

__all__ = ["Axes", "Axis", "Dots", "Figure", "Lines", "Panel", "Point", "Row"]
