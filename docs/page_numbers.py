"""Numbers in pages, generated from committed tables; a hook of MkDocs.

A page names rows of tables in a comment, and a comment after each number says which cell it shows
and how:

    <!-- numbers: oracle: {table: reports/reference-superposition/superposition_table_1.csv,
    variant: oracle, quantity: accuracy} --> The model answers 60<!--oracle:points-->% with the gold
    document alone.

`<!--name.column:format-->` shows another column than `measured`. A name may also stand for `{ratio:
[a, b]}`, `{saving: [a, b]}` (the part by which a is less than b) or `{reversed: a}` (a difference
counted the other way). Formats are Python's own, `points` and `+points` (hundredths as whole
numbers), and a suffix `s` (seconds of ms).

Between `<!-- claims: CFIC -->` and `<!-- /claims -->` stands a table of a paper's claims, of
reports/directions.csv. A † says that p is below 0.05 after Holm's correction, too.

`python docs/page_numbers.py` writes the numbers of all pages again; the site is built with them.
"""

from __future__ import annotations

import csv
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"<!-- numbers:\n(.*?)-->", re.DOTALL)
CLAIMS = re.compile(r"(<!-- claims: (.*?) -->\n).*?(<!-- /claims -->)", re.DOTALL)
NUMBER = re.compile(r"[-+−]?[\d.,]*\d<!--(\w+)(?:\.(\w+))?:([^>]*?)-->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write the numbers of a page of the site: an event of MkDocs."""
    return generated(markdown)


def generated(text: str) -> str:
    """A page with its numbers as the tables have them."""
    parts = BLOCK.split(text)  # text, names, text, names, ...
    for place in range(1, len(parts), 2):
        names = yaml.safe_load(parts[place])
        parts[place + 1] = NUMBER.sub(
            lambda match, names=names: _shown(names, match), parts[place + 1]
        )
        parts[place] = f"<!-- numbers:\n{parts[place]}-->"
    return CLAIMS.sub(lambda match: f"{match[1]}\n{_claims(match[2])}\n{match[3]}", "".join(parts))


def _claims(source: str) -> str:
    """The claims of the papers that `source`, a regular expression, matches: a row each, a column
    for each reader.
    """
    rows = [row for row in _table("reports/directions.csv") if re.match(source, row["source"])]
    readers = list(dict.fromkeys(row["reader"] for row in rows))
    lines = [["claim", "source", *readers, "note"], ["---"] * (len(readers) + 3)]
    for claim in dict.fromkeys(row["claim"] for row in rows):
        of = {row["reader"]: row for row in rows if row["claim"] == claim}
        notes = dict.fromkeys(row["note"] for row in of.values() if row["note"])
        cells = [_verdict(of[reader]) if reader in of else "" for reader in readers]
        lines.append([claim, next(iter(of.values()))["source"], *cells, "; ".join(notes)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _verdict(row: dict[str, str]) -> str:
    value, low, high = (
        f"{round(float(row[name]), 3):.3g}".replace("-", "−") for name in ("value", "low", "high")
    )
    mark = " †" if row["p_holm"] and float(row["p_holm"]) < 0.05 else ""
    p = f", p = {float(row['p']):.2g}{mark}" if row["p"] else ""
    trials = " trials" if row["about"] == "times" else ""
    return f"**{row['verdict']}** {value} [{low}, {high}]{p}, n = {row['n']}{trials}"


def _shown(names: dict[str, Any], match: re.Match[str]) -> str:
    name, column, form = match.groups()
    value = _value(names, name, column or "measured")
    number = match[0].partition("<!--")
    minus = "−" if "−" in number[0] else "-"
    return _formatted(value, form).replace("-", minus) + number[1] + number[2]


def _value(names: dict[str, Any], name: str, column: str) -> float:
    stated = dict(names[name])
    for kind in ("ratio", "saving"):
        if kind in stated:
            a, b = (_value(names, other, "measured") for other in stated[kind])
            return a / b if kind == "ratio" else 1 - a / b
    if "reversed" in stated:
        other = {"low": "high", "high": "low"}.get(column, column)
        return (1 if column in ("p", "n") else -1) * _value(names, stated["reversed"], other)
    return float(_row(stated.pop("table"), stated)[column])


def _row(table: str, where: dict[str, Any]) -> dict[str, str]:
    """The one row of a table whose columns have these values."""
    rows = [
        row for row in _table(table) if all(row[key] == str(value) for key, value in where.items())
    ]
    if len(rows) != 1:
        raise ValueError(f"{table}: {len(rows)} rows with {where}")
    return rows[0]


@cache
def _table(name: str) -> list[dict[str, str]]:
    with (ROOT / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _formatted(value: float, form: str) -> str:
    if form.endswith("points"):
        return format(round(100 * value, 6), f"{form.removesuffix('points')}.0f")
    return (
        format(value / 1000, f"{form.removesuffix('s')}f")
        if form.endswith("s")
        else format(value, form)
    )


def pages() -> list[Path]:
    """The Markdown pages of the repository that carry numbers of tables."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    texts = {page: page.read_text(encoding="utf-8") for page in map(ROOT.joinpath, listed.split())}
    return [page for page, text in texts.items() if BLOCK.search(text) or CLAIMS.search(text)]


if __name__ == "__main__":
    for page in pages():
        page.write_text(generated(page.read_text(encoding="utf-8")), encoding="utf-8")
