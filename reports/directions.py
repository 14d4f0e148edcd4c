"""Directions: whether committed runs show the orderings that the papers claim.

A claim names one row of a committed table with a difference or ratio and its interval, or two rows,
and the tables of the readers that were asked. Scores of two variants on the same questions
(`scores.csv`) are compared by question. Beside each p stands Holm's for all tests together.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from pydantic import Field

from ragauge.config.reading import checked, read
from ragauge.errors import UserError
from ragauge.io.sections import Section
from ragauge.results.directions import Difference, apart, verdict
from ragauge.results.stats import SHARE, holm, paired_test

NOT_ON_PAGE = ("about", "table", "rows")


SCORED = ("accuracy", "f1")
SCORES = "scores.csv"  # what `measures.by_question` has, beside provenance.json
Keys = dict[str, str | int]
"""Values of a row by column; where it may have one of several, these with | between."""


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
    table = _Table(reports / reader.table, place)
    # the reader's keys first, as `rows` shows them, and with its own values
    row, better, worse = (
        reader.keys | keys | reader.keys for keys in (claim.row, claim.better, claim.worse)
    )
    levels: list[float] = []  # of the two sides, in accuracy or F1
    if claim.row:
        interval = "of the row"
        difference = table.difference(claim.quantity, row)
        if claim.level:
            levels = [table.difference(claim.level, side).value for side in (better, worse)]
    elif table.path.name == SCORES:
        interval = "paired"
        difference, levels = table.paired(better, worse)
    else:
        interval = "of two rows"
        sides = [table.difference(claim.quantity, side) for side in (better, worse)]
        difference = apart(claim.above == 1, *sides)
        levels = [side.value for side in sides] if claim.quantity in SCORED else []
        if sides[0].n != sides[1].n:
            problem = f"n is {sides[0].n} and {sides[1].n}"
            raise UserError(f"{place}: two rows of {table.path} with other questions: {problem}")
    named = [row] if claim.row else [better, worse]
    rows = (" / " if claim.above == 1 else " − ").join(
        ", ".join(map(str, keys.values())) for keys in named
    )
    return {
        "claim": claim.states,
        "source": claim.source,
        "reader": name,
        "verdict": verdict(
            difference, levels, above=claim.above, is_lower_better=claim.is_lower_better
        ),
        "value": f"{difference.value:.6g}",
        "low": f"{difference.low:.6g}",
        "high": f"{difference.high:.6g}",
        "p": "" if difference.p is None else f"{difference.p:.4g}",
        "p_holm": "",
        "n": difference.n,
        "interval": interval,
        "quantity": claim.quantity,
        "note": reader.note or claim.note,
        "about": claim.about,
        "table": reader.table,
        "rows": rows,
    }


@dataclass(frozen=True)
class _Table:
    path: Path
    place: str  # of the claim, for messages

    def difference(self, quantity: str, keys: Keys) -> Difference:
        """The numbers of the one row with these values."""
        keys = {"quantity": quantity, **keys}
        rows = self._rows(keys)
        if len(rows) != 1:
            raise self._error(f"has {len(rows)} rows with {keys}, not one")
        (row,) = rows
        try:
            value, low, high = (float(row[name]) for name in ("measured", "low", "high"))
            return Difference(
                value, low, high, float(row["p"]) if row.get("p") else None, int(row["n"])
            )
        except ValueError:
            raise self._error(f"has no value with an interval in the row with {keys}") from None

    def paired(self, better: Keys, worse: Keys) -> tuple[Difference, list[float]]:
        """The difference of two variants over the questions that both were asked, and the mean
        score of each.
        """
        first = self._scores(better)
        second = self._scores(worse)
        shared = [question for question in first if question in second]
        if not shared:
            raise self._error(f"has no question of both {better} and {worse}")
        a = [first[question] for question in shared]
        b = [second[question] for question in shared]
        test = paired_test(a, b, limits=SHARE)
        difference = Difference(
            test["difference"], test["low"], test["high"], test["p"], len(shared)
        )
        return difference, [mean(a), mean(b)]

    def _scores(self, keys: Keys) -> dict[str, float]:
        """The scores of a variant, which is a column, by question."""
        others = {name: value for name, value in keys.items() if name != "variant"}
        column = str(keys["variant"])
        rows = [row for row in self._rows(others) if row.get(column)]
        scores = {row["question"]: float(row[column]) for row in rows}
        if len(scores) < len(rows):
            raise self._error(f"has several scores of one question with {keys}; name the model")
        return scores

    def _rows(self, keys: Keys) -> list[dict[str, str]]:
        wanted = {name: str(value).split("|") for name, value in keys.items()}
        try:
            with open(self.path, newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
        except OSError as error:
            raise self._error(f"cannot be read: {error.strerror or error}") from error
        return [row for row in rows if all(row.get(n) in texts for n, texts in wanted.items())]

    def _error(self, problem: str) -> UserError:
        return UserError(f"{self.place}: {self.path}: {problem}")
