"""Figures and files of items: `dots` and `lines` draw, `style` has the colours, `writing` the tables and files."""

from ragauge.rendering.axis import Axis
from ragauge.rendering.lines import Panel, Point, Row
from ragauge.rendering.style import Axes, Figure

__all__ = ["Axes", "Axis", "Figure", "Panel", "Point", "Row"]
