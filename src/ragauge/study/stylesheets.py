"""Transformations of XML by this package's stylesheets (XSLT): of formulas, and of Word's texts."""

from functools import cache
from pathlib import Path
from typing import Any

GAP = "\U0010fff0"  # in texts: a blank, if letters, digits or parentheses stand at both sides
INDENT = "\U0010fff5"  # in texts: before an item of a list, for each level above it
UNKNOWN = "\U0010fff4"  # in texts: before a part of a formula that is not understood


@cache
def stylesheet(name: str) -> Any:
    """Return the transformation of the stylesheet with this file name."""
    from lxml import etree

    return etree.XSLT(etree.parse(Path(__file__).with_name(name)))
