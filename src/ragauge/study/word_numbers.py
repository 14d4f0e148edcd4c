"""The numbers of paragraphs in Word, which definitions of lists say and no text holds."""

import re
from collections import Counter, defaultdict
from copy import deepcopy
from typing import Any

from ragauge.study.numerals import numeral

WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
VALUE = f"{WORD}val"
LEVEL = f"{WORD}ilvl"
INDENT = "\U0010fff5"  # before an item, for each level above it
UNKNOWN = "list numbers in unknown formats"


class Numbering:
    """Counts the paragraphs of lists in the order of the document."""

    def __init__(self, definitions: Any, left_out: Counter[str]) -> None:
        """Read the root of numbering.xml; `left_out` gets the numbers of unknown formats."""
        self._left_out = left_out
        self._lists = dict[str, tuple[str, dict[str, Any]]]()  # list -> definition, its levels
        self._restarts = set[tuple[str, str]]()  # lists and levels that begin anew
        self._counts = defaultdict[str, dict[str, int]](dict)  # definition -> level -> number
        by_name = {each.get(f"{WORD}abstractNumId"): each for each in definitions}
        by_name |= {_value(each, "styleLink"): each for each in definitions}
        for number in definitions.iterfind("{*}num"):
            which = number.get(f"{WORD}numId")
            name = _value(number, "abstractNumId")
            name = _value(by_name[name], "numStyleLink") or name
            levels = {each.get(LEVEL, "0"): each for each in by_name[name].iterfind("{*}lvl")}
            for own in number.iterfind("{*}lvlOverride"):
                level = own.get(LEVEL)
                for each in own.iterfind("{*}lvl"):
                    levels[level] = each
                for start in own.iterfind("{*}startOverride"):
                    start.tag = f"{WORD}start"
                    levels[level] = deepcopy(levels[level])
                    levels[level].insert(0, start)
                    self._restarts.add((which, level))
            self._lists[which] = name, levels

    def label(self, which: str, level: str, style: str) -> str:
        """Count a paragraph of a list, and return its number or bullet.

        Args:
            level: from `0`; empty where the style of the paragraph says it.
        """
        name, levels = self._lists.get(which, ("", {}))
        linked = (n for n, each in levels.items() if style and _value(each, "pStyle") == style)
        level = level or next(linked, "0")
        if level not in levels:
            return ""
        counts = self._counts[name]
        first = {each: int(_value(levels[each], "start") or 1) for each in levels}
        if (which, level) in self._restarts:
            self._restarts.remove((which, level))
            counts.pop(level, 0)
        counts[level] = counts.get(level, first[level] - 1) + 1
        for below, each in levels.items():
            if below > level and level < (_value(each, "lvlRestart") or below):
                counts.pop(below, 0)
        form = _value(levels[level], "numFmt")
        texts = [] if form == "bullet" else levels[level].iterfind("{*}lvlText")
        default = "-" if form == "bullet" else f"%{int(level) + 1}."
        text = next((text.get(VALUE, "") for text in texts), default)
        for digit in set(re.findall(r"%(\d)", text)):
            each = str(int(digit) - 1)
            form = _value(levels.get(each), "numFmt") or "decimal"
            form = "decimal" if _value(levels[level], "isLgl") else form
            number = counts.get(each, first.get(each, 1))
            shown = numeral(form, number)
            self._left_out[UNKNOWN] += shown is None
            text = text.replace(f"%{digit}", str(number) if shown is None else shown)
        return text and f"{INDENT * int(level)}{text} "


def _value(element: Any, name: str) -> str:
    """The value of a child; `on` without one, and empty where there is no such child."""
    child = None if element is None else element.find(WORD + name)
    return "" if child is None else str(child.get(VALUE, "on"))
