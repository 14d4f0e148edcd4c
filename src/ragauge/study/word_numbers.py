"""The numbers of paragraphs in Word, which definitions of lists say and no text holds."""

import re
from collections import Counter, defaultdict
from typing import Any

from ragauge.study.numerals import numeral
from ragauge.study.stylesheets import INDENT

UNKNOWN = "list numbers of unknown form"


class Numbering:
    """Counts the paragraphs of lists in the order of the document."""

    def __init__(self, lists: Any, left_out: Counter[str]) -> None:
        """Take the lists of word.xsl; `left_out` gets the numbers of unknown forms."""
        self._left_out = left_out
        self._lists = {each.get("id"): each for each in lists}
        self._counts = defaultdict[str, dict[str, int]](dict)  # definition -> level -> number

    def label(self, which: str, level: str, style: str) -> str:
        """Count a paragraph of a list, and return its number or bullet.

        Args:
            level: from `0`; empty where the style of the paragraph says it.
        """
        own = self._lists.get(which, ())
        levels = {each.get("n"): each for each in own}
        level = level or next((n for n in levels if style and levels[n].get("style") == style), "0")
        if level not in levels:
            return ""
        counts = self._counts[own.get("definition")]
        if levels[level].get("anew"):
            counts.pop(level, 0)
            levels[level].set("anew", "")
        counts[level] = counts.get(level, int(levels[level].get("start")) - 1) + 1
        for below, each in levels.items():
            if below > level and level < (each.get("restart") or below):
                counts.pop(below, 0)
        text = levels[level].text or ""
        for digit in set(re.findall(r"%(\d)", text)):
            each = levels.get(str(int(digit) - 1), levels[level])
            number = counts.get(each.get("n"), int(each.get("start")))
            form = "decimal" if levels[level].get("legal") else each.get("form")
            shown = numeral(form, number)
            self._left_out[UNKNOWN] += shown is None
            text = text.replace(f"%{digit}", str(number) if shown is None else shown)
        return text and f"{INDENT * int(level)}{text} "
