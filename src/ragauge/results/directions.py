"""Directions: whether committed runs show the orderings that the papers claim.

A claim names one row of a committed table with a difference or ratio and its interval, or two rows. The distances to
the ends of two intervals add as squares (Newcombe, 1998), which is mostly wider than an interval of paired differences.
"""

import csv
from collections.abc import Mapping
from enum import StrEnum
from math import hypot
from pathlib import Path
from typing import Any

from pydantic import Field

from ragauge.config.reading import checked, read
from ragauge.errors import UserError
from ragauge.io.sections import Section

ON_PAGE = ("claim", "source", "verdict", "value", "low", "high", "n", "interval", "quantity", "note")
COLUMNS = (*ON_PAGE, "table", "rows")


class Verdict(StrEnum):
    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "cannot be told"


class Claim(Section):
    """An ordering that a paper claims, and the rows of a committed table that it is compared with."""

    states: str
    source: str  # paper, table or section
    table: str  # below the folder of reports
    quantity: str
    row: dict[str, str | int] = {}  # that holds a difference or a ratio
    better: dict[str, str | int] = {}
    worse: dict[str, str | int] = {}
    above: float = Field(0.0, description="the claim holds above it; 1 where the quantity is a ratio")
    is_lower_better: bool = False
    note: str = ""


class Claims(Section):
    claims: dict[str, Claim]  # by name


def directions(path: Path, reports: Path) -> list[dict[str, Any]]:
    """One row a claim of a YAML file of `Claims`, compared with the tables below `reports`. Raises UserError if a key
    is unknown or missing, or not exactly one row has the values of a claim."""
    claims = checked(Claims, read(path), str(path)).claims
    return [_direction(claim, f"{path}: claims.{name}", reports) for name, claim in claims.items()]


def _direction(claim: Claim, place: str, reports: Path) -> dict[str, Any]:
    named = [keys for keys in (claim.row, claim.better, claim.worse) if keys]
    if bool(claim.row) == bool(claim.better and claim.worse):
        raise UserError(f"{place}: needs either row, or better and worse")
    numbers = [_numbers(reports / claim.table, {"quantity": claim.quantity, **keys}, place) for keys in named]
    value, low, high, n = numbers[0]
    if claim.better:
        (a, a_low, a_high, n), (b, b_low, b_high, m) = numbers
        value, n = a - b, min(n, m)
        low, high = value - hypot(a - a_low, b_high - b), value + hypot(a_high - a, b - b_low)
    verdict = Verdict.UNDECIDED
    if low > claim.above or high < claim.above:
        verdict = Verdict.DISAGREES if (low > claim.above) == claim.is_lower_better else Verdict.AGREES
    rows = " − ".join(", ".join(map(str, keys.values())) for keys in named)
    values = (claim.states, claim.source, verdict, *(f"{number:.6g}" for number in (value, low, high)), n)
    values += ("of the row" if claim.row else "of two rows", claim.quantity, claim.note, claim.table, rows)
    return dict(zip(COLUMNS, values, strict=True))


def _numbers(table: Path, keys: Mapping[str, str | int], place: str) -> tuple[float, float, float, int]:
    """(value, low, high, n) of the one row with these values."""
    try:
        with open(table, newline="", encoding="utf-8") as file:
            same = [row for row in csv.DictReader(file) if all(row.get(name) == str(keys[name]) for name in keys)]
    except OSError as error:
        raise UserError(f"{place}: {table}: cannot be read: {error.strerror or error}") from error
    if len(same) != 1:
        raise UserError(f"{place}: {table} has {len(same)} rows with {dict(keys)}, not one")
    try:
        return float(same[0]["measured"]), float(same[0]["low"]), float(same[0]["high"]), int(same[0]["n"])
    except ValueError:
        raise UserError(f"{place}: the row of {table} with {dict(keys)} has no value with an interval") from None
