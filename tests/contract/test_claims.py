"""What README and docs say of reference runs, held to the committed tables: see the head of docs/claims.yaml."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HELD = yaml.safe_load((ROOT / "docs" / "claims.yaml").read_text())
CLAIMS = [(section, claim) for section in HELD for claim in section["claims"]]
NUMBER = re.compile(r"(?<![\w.,/-])[-+]?\d+(?:[.,]\d+)*(?![\w/]|\.\d)")


class Value(float):
    """A cell; formats besides Python's own: `points` and `+points`, hundredths as whole numbers, and `s`, of ms."""

    def __format__(self, spec: str) -> str:
        if spec.endswith("points"):
            return format(round(100 * self, 6), f"{spec.removesuffix('points')}.0f")
        if spec.endswith("s"):
            return format(self / 1000, f"{spec.removesuffix('s')}f")
        return super().__format__(spec)


class Row(dict[str, str]):
    """A row of a table; its numbers as attributes."""

    def __getattr__(self, name: str) -> Value:
        return Value(self[name])

    def reversed(self) -> Row:
        """The difference counted the other way."""
        measured, low, high = (str(-float(self[name])) for name in ("measured", "high", "low"))
        return Row(self | {"measured": measured, "low": low, "high": high})


@cache
def table(name: str) -> list[Row]:
    with (ROOT / "reports" / name).open(newline="") as file:
        return [Row(row) for row in csv.DictReader(file)]


def row(name: str, where: dict[str, str]) -> Row:
    """The one row of a table whose columns have these values."""
    found = [row for row in table(name) if all(row[key] == str(value) for key, value in where.items())]
    assert len(found) == 1, f"{name}: {len(found)} rows with {where}"
    return found[0]


def values(claim: dict[str, Any]) -> dict[str, Any]:
    """The rows that a claim names, the ratios of their measured values, and differences reversed."""
    rows: dict[str, Any] = {}
    for name, columns in claim["rows"].items():
        where = {"table": claim.get("table")} | claim.get("where", {}) | columns
        rows[name] = row(where.pop("table"), where)
    ratios = {n: Value(rows[a].measured / rows[b].measured) for n, (a, b) in claim.get("ratios", {}).items()}
    saved = {n: Value(1 - rows[a].measured / rows[b].measured) for n, (a, b) in claim.get("savings", {}).items()}
    reverse = {n: rows[of].reversed() for n, of in claim.get("reversed", {}).items()}
    return rows | ratios | saved | reverse


def plain(text: str) -> str:
    """Text as a reader sees it: one line, no emphasis, one kind of minus."""
    return " ".join(text.replace("**", "").replace("−", "-").split())


def prose(section: dict[str, Any]) -> str:
    """The section of the page, without what is code or the target of a link."""
    text = (ROOT / section["page"]).read_text()
    heading = f"# {section['section']}\n"
    assert heading in text, f"{section['page']} has no section {section['section']!r}"
    before, text = text.split(heading, 1)
    level = before.rsplit("\n", 1)[-1] + "#"
    text = re.split(rf"^#{{1,{len(level)}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]
    text = re.sub(r"^    .*$|`[^`]*`|\]\([^)]*\)", " ", text, flags=re.MULTILINE)
    return plain(text)


@pytest.mark.parametrize(("section", "claim"), CLAIMS, ids=[f"{s['page']}-{c['says'][:40]}" for s, c in CLAIMS])
def test_claim_is_what_the_table_says(section: dict[str, Any], claim: dict[str, Any]) -> None:
    assert plain(claim["says"].format(**values(claim))) in prose(section)


@pytest.mark.parametrize("section", HELD, ids=[f"{s['page']}-{s['section']}" for s in HELD])
def test_no_number_of_a_section_stands_without_its_table(section: dict[str, Any]) -> None:
    left = prose(section)
    said = [claim["says"].format(**values(claim)) for claim in section["claims"]]
    for text in sorted([*said, *section.get("conditions", [])], key=len, reverse=True):
        assert plain(text) in prose(section), f"{section['page']} does not say {text!r}"
        left = left.replace(plain(text), " ")
    left = re.sub(r"\b(Tables?|Figures?|section) \d+", " ", left)
    assert not NUMBER.findall(left), (
        f"no claim of docs/claims.yaml has these numbers: {NUMBER.findall(left)} in {left!r}"
    )
