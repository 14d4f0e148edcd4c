"""Entries of a configuration that stand for several: a key in braces in the label takes its values one by one.

`bm25_k{top_k}: {method: bm25, top_k: [1, 2]}` is the two entries `bm25_k1` and `bm25_k2`. Several keys are swept
crosswise. Only keys that the label names are swept: every other list is the value that it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from ragauge.errors import UserError, unknown

_KEY = re.compile(r"\{(\w*)\}")


def expanded(section: Any, where: str) -> Any:
    """A section of labelled entries with every sweep written out, in its order; anything else as it is.

    Raises:
        UserError: a swept key that the entry does not have or that has no list of plain values; a label that is there
            twice. `where` names the section.
    """
    if not isinstance(section, dict):
        return section
    made: dict[Any, Any] = {}
    for label, entry in section.items():
        for name, one in _entries(label, entry, f"{where}.{label}"):
            if name in made:
                raise UserError(f"{where}.{label}: there is an entry {name!r} already")
            made[name] = one
    return made


def _entries(label: Any, entry: Any, where: str) -> Iterator[tuple[Any, Any]]:
    """The label and the keys of each entry that one stands for."""
    swept = list(dict.fromkeys(_KEY.findall(label))) if isinstance(label, str) else []
    if not swept:
        yield label, entry
        return
    for values in product(*(_values(entry, key, where) for key in swept)):
        name = label
        for key, value in zip(swept, values, strict=True):
            name = name.replace(f"{{{key}}}", _text(value))
        yield name, {**entry, **dict(zip(swept, values, strict=True))}


def _values(entry: Any, key: str, where: str) -> list[Any]:
    keys = entry if isinstance(entry, dict) else {}
    if key not in keys:
        raise unknown("key in braces", key, keys, where)
    values = keys[key]
    if not isinstance(values, list) or not values or not all(isinstance(v, str | int | float) for v in values):
        raise UserError(f"{where}.{key}: must be a list of values, since the label names it in braces, not {values!r}")
    return values


def _text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
