"""Directions: whether committed runs show the orderings that the papers claim.

A claim names one row of a committed table with a difference or ratio and its interval, or two rows,
and the tables of the readers that were asked. Scores of two variants on the same questions
(`scores.csv`) are compared by question. Otherwise the distances to the ends of two rows' intervals
add as squares (Newcombe, 1998), those of a ratio as logarithms, which is mostly wider. A verdict
needs the interval and, where the difference was tested, p < 0.05; of answers, also one side of at
least `FLOOR`. Beside each p stands Holm's for all tests together.
"""

import csv
from collections.abc import Sequence
from enum import StrEnum
from math import exp, hypot, log
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from pydantic import Field

from ragauge.config.reading import checked, read
from ragauge.errors import UserError
from ragauge.io.sections import Section
from ragauge.results.measures import FLOOR
from ragauge.results.stats import holm, paired_test

MEASURED = ("value", "low", "high", "p", "p_holm", "n", "interval")
ON_PAGE = ("claim", "source", "reader", "verdict", *MEASURED, "quantity", "note")
COLUMNS = (*ON_PAGE, "about", "table", "rows")


class Verdict(StrEnum):
    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "inconclusive"
    AT_FLOOR = "at the floor"


SCORED = ("accuracy", "f1")
SCORES = "scores.csv"  # what `measures.by_question` has, beside provenance.json
Keys = dict[str, str | int]
"""Values of a row by column; where it may have one of several, these with | between."""
Numbers = tuple[float, float, float, float | None, int]
"""Value, low, high, p of a paired test, n."""
SIGNIFICANT = 0.05


class Reader(Section):
    """Where the answers of one model are."""

    table: str  # below the folder of reports
    keys: Keys = {}  # that its rows have besides, or in place of, those of the claim
    note: str = ""  # in place of the claim's


class Claim(Section):
    """An ordering that a paper claims, and the rows of committed tables that it is compared with."""

    states: str
    source: str  # paper, table or section
    readers: dict[str, Reader]  # by the model's name
    quantity: str
    row: Keys = {}  # that holds a difference or a ratio
    better: Keys = {}
    worse: Keys = {}
    above: float = Field(
        0.0, description="the claim holds above it; 1 where the quantity is a ratio"
    )
    is_lower_better: bool = False
    level: str = Field("", description="quantity of better and worse, whose difference row has")
    about: Literal["answers", "times", "compute cycles"] = "answers"
    note: str = ""


class Claims(Section):
    claims: dict[str, Claim]  # by name


def directions(path: Path, reports: Path) -> list[dict[str, Any]]:
    """One row for each claim of a YAML file of `Claims` and reader, from tables below `reports`.
    Raises UserError if a key is unknown or missing, or not exactly one row has the values of a
    claim.
    """
    claims = checked(Claims, read(path), str(path)).claims
    rows = [
        _direction(claim, reader, f"{path}: claims.{name}", reports)
        for name, claim in claims.items()
        for reader in claim.readers
    ]
    tested = [row for row in rows if row["p"]]
    for row, p in zip(tested, holm([float(row["p"]) for row in tested]), strict=True):
        row["p_holm"] = f"{p:.3g}"
    return rows


def _direction(claim: Claim, name: str, place: str, reports: Path) -> dict[str, Any]:
    has_sides = bool(claim.better and claim.worse)
    if has_sides == bool(claim.row) and not claim.level:
        raise UserError(f"{place}: needs either row, or better and worse, or all three and level")
    reader = claim.readers[name]
    # the reader's keys first, as `rows` shows them, and with its own values
    row, *sides = (
        reader.keys | keys | reader.keys for keys in (claim.row, claim.better, claim.worse)
    )
    table = reports / reader.table
    named = [row] if claim.row else sides
    levels: list[float] = []  # of the two sides, in accuracy or F1
    if claim.row:
        compared = "of the row"
        value, low, high, p, n = _numbers(table, {"quantity": claim.quantity, **row}, place)
        levels = [
            _numbers(table, {"quantity": claim.level, **keys}, place)[0]
            for keys in sides
            if claim.level
        ]
    elif table.name == SCORES:
        compared = "paired"
        (value, low, high, p, n), levels = _paired(table, sides, place)
    else:
        compared = "of two rows"
        better, worse = (
            _numbers(table, {"quantity": claim.quantity, **keys}, place) for keys in sides
        )
        if better[-1] != worse[-1]:
            raise UserError(
                f"{place}: two rows of {table} with other questions: n is {better[-1]} and {worse[-1]}"
            )
        value, low, high, p, n = _apart(claim.above == 1, better, worse)
        levels = [better[0], worse[0]] if claim.quantity in SCORED else []
    verdict = Verdict.UNDECIDED
    if levels and max(levels) < FLOOR:
        verdict = Verdict.AT_FLOOR
    elif (low > claim.above or high < claim.above) and (p is None or p < SIGNIFICANT):
        verdict = (
            Verdict.DISAGREES if (low > claim.above) == claim.is_lower_better else Verdict.AGREES
        )
    rows = (" / " if claim.above == 1 else " − ").join(
        ", ".join(map(str, keys.values())) for keys in named
    )
    texts = [
        *(f"{number:.6g}" for number in (value, low, high)),
        "" if p is None else f"{p:.4g}",
        "",
    ]
    about = n, compared, claim.quantity, reader.note or claim.note, claim.about, reader.table, rows
    return dict(
        zip(COLUMNS, (claim.states, claim.source, name, verdict, *texts, *about), strict=True)
    )


def _apart(is_ratio: bool, better: Numbers, worse: Numbers) -> Numbers:
    """The difference or ratio of two rows, as if they were of different questions."""
    scale, back = (log, exp) if is_ratio else (float, float)
    (a, a_low, a_high), (b, b_low, b_high) = (
        map(scale, numbers[:3]) for numbers in (better, worse)
    )
    low = a - b - hypot(a - a_low, b_high - b)
    high = a - b + hypot(a_high - a, b - b_low)
    return back(a - b), back(low), back(high), None, better[-1]


def _paired(scores: Path, named: Sequence[Keys], place: str) -> tuple[Numbers, list[float]]:
    """The difference of two variants over the questions that both were asked, and the mean score of
    each.
    """
    better, worse = (_scores(scores, keys, place) for keys in named)
    shared = [question for question in better if question in worse]
    if not shared:
        raise UserError(
            f"{place}: {scores} has no question of both {' and '.join(map(str, named))}"
        )
    first, second = ([side[question] for question in shared] for side in (better, worse))
    test = paired_test(first, second)
    return (test["difference"], test["low"], test["high"], test["p"], len(shared)), [
        mean(first),
        mean(second),
    ]


def _scores(table: Path, keys: Keys, place: str) -> dict[str, float]:
    """By question, those of a variant, which is a column."""
    rows = _rows(table, {name: value for name, value in keys.items() if name != "variant"}, place)
    scored = [
        (row["question"], float(score)) for row in rows if (score := row.get(str(keys["variant"])))
    ]
    if len(scores := dict(scored)) < len(scored):
        raise UserError(
            f"{place}: {table} has several scores of one question with {dict(keys)}; name the model"
        )
    return scores


def _rows(table: Path, keys: Keys, place: str) -> list[dict[str, str]]:
    try:
        with open(table, newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            return [
                row
                for row in rows
                if all(row.get(name) in str(keys[name]).split("|") for name in keys)
            ]
    except OSError as error:
        raise UserError(f"{place}: {table}: cannot be read: {error.strerror or error}") from error


def _numbers(table: Path, keys: Keys, place: str) -> Numbers:
    """Those of the one row with these values."""
    same = _rows(table, keys, place)
    if len(same) != 1:
        raise UserError(f"{place}: {table} has {len(same)} rows with {dict(keys)}, not one")
    try:
        value, low, high = (float(same[0][name]) for name in ("measured", "low", "high"))
        return (
            value,
            low,
            high,
            float(same[0]["p"]) if same[0].get("p") else None,
            int(same[0]["n"]),
        )
    except ValueError:
        raise UserError(
            f"{place}: the row of {table} with {dict(keys)} has no value with an interval"
        ) from None
