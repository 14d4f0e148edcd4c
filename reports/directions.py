"""Directions: whether committed runs show the orderings that the papers claim, and the contrasts
that a run is planned for.

A claim names one row of a committed table with a difference or ratio and its interval, or two rows,
and the tables of the readers that were asked. Scores of two variants on the same questions
(`scores.csv`) are compared by question. Beside each p stands Holm's for all tests together.

Three things are said of each: the direction, by an interval (and p < 0.05 where there is a test;
of answers, also one side of at least `FLOOR`); whether the effect that the paper prints lies inside
the interval; and whether the conditions are the paper's. The distances to the ends of two rows'
intervals add as squares (Newcombe, 1998), those of a ratio as logarithms, which is mostly wider
than a paired test.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, exp, hypot, log
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from pydantic import Field, model_validator

from ragauge.config.reading import checked, read
from ragauge.errors import SettingError, UserError, unknown
from ragauge.io.sections import Section
from ragauge.results.measures import FLOOR
from ragauge.results.stats import SHARE, paired_test

NOT_ON_PAGE = ("about", "unmet", "table", "rows")
SIGNIFICANT = 0.05
POWER = 0.8  # of a planned contrast
SCORED = ("accuracy", "f1")
SCORES = "scores.csv"  # what `measures.by_question` has, beside provenance.json
Keys = dict[str, str | int]
"""Values of a row by column; where it may have one of several, these with | between."""


Printed = Annotated[
    list[float] | None, Field(min_length=1, max_length=2)
]  # the effect in the paper, or the least and the greatest of its models


class Reader(Section):
    """Where the answers of one model are."""

    table: str  # below the folder of reports
    keys: Keys = {}  # that its rows have besides, or in place of, those of the claim
    note: str = ""  # in place of the claim's
    unmet: str = ""  # the same
    is_papers: bool = False  # whether the paper asked this very model


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
    printed: Printed = None
    unmet: str = ""  # what of the paper's conditions is not met, besides the reader
    note: str = ""


class Claims(Section):
    """Claims by name; what is printed and unmet stands apart, as entries take over each other's
    keys.
    """

    claims: dict[str, Claim]
    printed: dict[str, Printed] = {}
    unmet: dict[str, str] = {}

    @model_validator(mode="after")
    def _names_claims(self) -> Self:
        for section in ("printed", "unmet"):
            for name in getattr(self, section):
                if name not in self.claims:
                    raise SettingError(section, str(unknown("claim", name, self.claims)))
        return self

    def complete(self) -> dict[str, Claim]:
        """The claims, each with what is printed and unmet."""
        return {
            name: claim.model_copy(
                update={"printed": self.printed.get(name), "unmet": self.unmet.get(name, "")}
            )
            for name, claim in self.claims.items()
        }


class Contrast(Claim):
    """A claim that a run is planned for, before a question is asked."""

    smallest_effect: float = Field(gt=0, description="smallest difference that would matter")
    is_of_paper: bool = Field(True, description="whether a paper makes the claim")
    discordant: float = Field(
        gt=0, le=1, description="share of questions on which one side alone is right, assumed"
    )
    questions: int = Field(description="that give the power; must be what follows from the others")
    earlier_scores: str = Field(
        "", description="scores of an earlier run, whose questions the reader had answered before"
    )


class Contrasts(Section):
    """The primary contrasts of a run. They are corrected together, after Holm."""

    contrasts: dict[str, Contrast]  # by name

    @model_validator(mode="after")
    def _has_power(self) -> Self:
        for name, contrast in self.contrasts.items():
            level = SIGNIFICANT / len(self.contrasts)  # of Holm's first step, the strictest
            needed = questions_needed(contrast.smallest_effect, contrast.discordant, level)
            if contrast.questions != needed:
                problem = f"must be {needed} for a power of {POWER:.0%}, got {contrast.questions}"
                raise SettingError(f"contrasts.{name}.questions", problem)
        return self


class Difference(NamedTuple):
    """A difference, a ratio, or one side of them, with its 95% interval."""

    value: float
    low: float
    high: float
    p: float | None  # of a paired test
    n: int


def verdict(claim: Claim, difference: Difference, levels: Sequence[float]) -> str:
    """Whether a claim holds that a difference is above a number, or below where lower is better.

    Args:
        levels: quality of the two sides, where the difference is one of quality.
    """
    if levels and max(levels) < FLOOR:
        return "at the floor"
    is_above = difference.low > claim.above
    is_apart = is_above or difference.high < claim.above
    if not is_apart or (difference.p is not None and difference.p >= SIGNIFICANT):
        return "inconclusive"
    return "disagrees" if is_above == claim.is_lower_better else "agrees"


def printed_effect(difference: Difference, printed: Printed) -> str:
    """Whether an effect between the least and the greatest one in the paper is in the interval."""
    if printed is None:
        return ""
    is_inside = min(printed) <= difference.high and max(printed) >= difference.low
    return "inside" if is_inside else "outside"


def conditions(claim: Claim, reader: Reader) -> str:
    """The conditions of a test against those of the paper."""
    if reader.unmet or claim.unmet:
        return "not tested under its conditions"
    return "the paper's" if reader.is_papers else "the paper's but for the reader"


def apart(is_ratio: bool, better: Difference, worse: Difference) -> Difference:
    """The difference or ratio of two rows, as if they were of different questions."""
    scale, back = (log, exp) if is_ratio else (float, float)
    (a, a_low, a_high), (b, b_low, b_high) = (
        map(scale, (side.value, side.low, side.high)) for side in (better, worse)
    )
    low = a - b - hypot(a - a_low, b_high - b)
    high = a - b + hypot(a_high - a, b - b_low)
    return Difference(back(a - b), back(low), back(high), None, better.n)


def holm(p: ArrayLike) -> list[float]:
    """Each p of a family of tests, such that below 0.05 any one is false with at most that
    probability (Holm, 1979).
    """
    values = np.array(p, dtype=float)
    order = np.argsort(values)
    values[order] = np.minimum(
        1, np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    )
    return values.tolist()


def questions_needed(effect: float, discordant: float, level: float) -> int:
    """Return the paired questions that McNemar's test needs to see an effect with `POWER`
    (Connor, 1987, Biometrics 43, equation 3).

    Args:
        effect: difference of the two shares of right answers.
        discordant: share of questions on which one side alone is right, at least the effect.
        level: two-sided significance.
    """
    if discordant < effect:
        raise SettingError("discordant", f"must be at least the effect, {effect}")
    normal = NormalDist()
    errors = normal.inv_cdf(1 - level / 2) * discordant**0.5
    errors += normal.inv_cdf(POWER) * (discordant - effect**2) ** 0.5
    return ceil((errors / effect) ** 2)


def directions(path: Path, reports: Path) -> list[dict[str, Any]]:
    """One row for each claim of a YAML file of `Claims` and reader, from tables below `reports`.
    Raises UserError if a key is unknown or missing, or not exactly one row has the values of a
    claim.
    """
    claims = checked(Claims, read(path), str(path)).complete()
    return corrected(
        _direction(claim, asked, reader, f"{path}: claims.{name}", reports)
        for name, claim in claims.items()
        for asked, reader in claim.readers.items()
    )


def contrasts(path: Path, reports: Path, run: str = "") -> list[dict[str, Any]]:
    """One row for each contrast of a YAML file of `Contrasts` and reader: its plan, and what came
    of it where both of its sides have answered; with a `run`, that of another run, such as of questions that
    were held back, which may have a part of the data sets. Raises UserError as `directions`.
    """
    rows = []
    for name, contrast in checked(Contrasts, read(path), str(path)).contrasts.items():
        place = f"{path}: contrasts.{name}"
        for asked, reader in contrast.readers.items():
            row = _planned(contrast, asked)
            if run:
                reader = reader.model_copy(update={"table": f"{run}/{SCORES}"})
            table = _Table(reports / reader.table, place)
            sides = [reader.keys | side for side in (contrast.better, contrast.worse)]
            if table.path.is_file() and all(map(table.has_scores, sides)):
                row |= _direction(contrast, asked, reader, place, reports)
                row["conditions"] = row["conditions"] if contrast.is_of_paper else ""
                row["smallest_effect_is"] = _smallest_effect(contrast, row)
                if contrast.earlier_scores:
                    row |= _new_questions(contrast, table, sides, reports)
            rows.append(row)
    return corrected(rows)


def _smallest_effect(contrast: Contrast, row: dict[str, Any]) -> str:
    """What the interval of a contrast says of the smallest difference that would matter."""
    low = float(row["low"])
    high = float(row["high"])
    if contrast.is_lower_better:
        low, high = (-high, -low)
    if high < contrast.smallest_effect:
        return "excluded"
    return "exceeded" if low >= contrast.smallest_effect else "possible"


def _new_questions(
    contrast: Contrast, table: "_Table", sides: Sequence[Keys], reports: Path
) -> dict[str, Any]:
    """The difference over the questions that the reader, whose name may differ between the sides, had
    not been asked before the contrast was stated.
    """
    before = _Table(reports / contrast.earlier_scores, table.place)
    answered = set().union(*(before.questions({"model": side["model"]}) for side in sides))
    difference, _ = table.paired(*sides, but=answered)
    numbers = {name: f"{getattr(difference, name):.6g}" for name in ("value", "low", "high", "p")}
    return {f"new_{name}": number for name, number in {**numbers, "n": difference.n}.items()}


def corrected(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with Holm's p for all of their tests, those to come included."""
    rows = list(rows)
    tested = [row for row in rows if row.get("p")]
    to_come = [1.0 for row in rows if "p" not in row]
    family = [float(row["p"]) for row in tested] + to_come
    for row, p in zip(tested, holm(family), strict=False):
        row["p_holm"] = f"{p:.3g}"
    return rows


def _planned(contrast: Contrast, reader: str) -> dict[str, Any]:
    return {
        "claim": contrast.states,
        "source": contrast.source,
        "reader": reader,
        "smallest_effect": contrast.smallest_effect,
        "discordant": contrast.discordant,
        "questions": contrast.questions,
        "printed": _range(contrast.printed),
        "verdict": "not run",
    }


def _range(printed: Printed) -> str:
    return "" if printed is None else " to ".join(f"{end:g}" for end in dict.fromkeys(printed))


def _direction(
    claim: Claim, asked: str, reader: Reader, place: str, reports: Path
) -> dict[str, Any]:
    has_sides = bool(claim.better and claim.worse)
    if has_sides == bool(claim.row) and not claim.level:
        raise UserError(f"{place}: needs either row, or better and worse, or all three and level")
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
        "reader": asked,
        "verdict": verdict(claim, difference, levels),
        "printed": _range(claim.printed),
        "printed_effect": printed_effect(difference, claim.printed),
        "conditions": conditions(claim, reader),
        "value": f"{difference.value:.6g}",
        "low": f"{difference.low:.6g}",
        "high": f"{difference.high:.6g}",
        "p": "" if difference.p is None else f"{difference.p:.4g}",
        "p_holm": "",
        "n": difference.n,
        "interval": interval,
        "quantity": claim.quantity,
        "unmet": reader.unmet or claim.unmet,
        "note": reader.note or claim.note,
        "about": claim.about,
        "table": reader.table,
        "rows": rows,
    }


@dataclass(frozen=True)
class _Table:
    path: Path
    place: str  # of the claim, for messages

    def has_scores(self, keys: Keys) -> bool:
        """Whether any question of a variant has a score."""
        return not self._scores(keys).empty

    def difference(self, quantity: str, keys: Keys) -> Difference:
        """The numbers of the one row with these values."""
        keys = {"quantity": quantity, **keys}
        rows = self._rows(keys)
        if len(rows) != 1:
            raise self._error(f"has {len(rows)} rows with {keys}, not one")
        row = rows.iloc[0]
        try:
            value, low, high = (float(row[name]) for name in ("measured", "low", "high"))
            return Difference(
                value, low, high, float(row["p"]) if row.get("p") else None, int(row["n"])
            )
        except ValueError:
            raise self._error(f"has no value with an interval in the row with {keys}") from None

    def questions(self, keys: Keys) -> set[str]:
        """The questions of the rows with these values."""
        return set(self._rows(keys)["question"])

    def paired(
        self, better: Keys, worse: Keys, but: Collection[str] = ()
    ) -> tuple[Difference, list[float]]:
        """The difference of two variants over the questions that both were asked, `but` for some,
        and the mean score of each.
        """
        scores = [self._scores(better), self._scores(worse)]
        both = pd.concat(scores, axis="columns", join="inner", keys=["a", "b"])
        both = both[~both.index.isin(but)]
        if both.empty:
            raise self._error(f"has no question of both {better} and {worse}")
        test = paired_test(both["a"], both["b"], limits=SHARE)
        numbers = (test[name] for name in ("difference", "low", "high", "p"))
        return Difference(*numbers, len(both)), [both["a"].mean(), both["b"].mean()]

    def _scores(self, keys: Keys) -> pd.Series:
        """The scores of a variant, which is a column, by question."""
        rows = self._rows({name: value for name, value in keys.items() if name != "variant"})
        rows = rows.reindex(columns=["question", keys["variant"]], fill_value="")
        scores = rows.set_index("question")[keys["variant"]]
        scores = scores[scores != ""].astype(float)
        if not scores.index.is_unique:
            raise self._error(f"has several scores of one question with {keys}; name the model")
        return scores

    def _rows(self, keys: Keys) -> pd.DataFrame:
        try:
            rows = pd.read_csv(self.path, dtype=str, keep_default_na=False)
        except OSError as error:
            raise self._error(f"cannot be read: {error.strerror or error}") from error
        rows = rows.reindex(columns=rows.columns.union(list(keys), sort=False), fill_value="")
        for name, value in keys.items():
            rows = rows[rows[name].isin(str(value).split("|"))]
        return rows

    def _error(self, problem: str) -> UserError:
        return UserError(f"{self.place}: {self.path}: {problem}")


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    for planned in contrasts(
        root / "configs/reference/contrasts.yaml", root / "reports", run=sys.argv[1]
    ):
        shown = ("claim", "reader", "verdict", "value", "low", "high", "p", "p_holm", "n")
        print(", ".join(f"{name} {planned[name]}" for name in shown if planned.get(name)))
