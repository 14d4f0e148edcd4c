"""Numbers in pages, checked against committed tables; a hook of MkDocs.

A number is a reference link, and the definition of the link at the end of the page names the
table, the row and the format:

    The full prompt takes [6.62 s][full].

    [full]: reports/reference-qwen/frontier.csv "variant=naive; quantity=total_s; format={:.2f} s"

`{}` in a format is the column `measured` or `value`, `{low}` another one. A format without braces,
such as `.2f`, is that of the value; with ± in front its interval follows. Besides Python's formats
there are `points` and `+points` (hundredths as whole numbers); `~` in front reverses a difference.

Between `<!-- claims: CFIC -->` and `<!-- /claims -->` stands a table of a paper's claims, from
reports/directions.csv. A † says that p is below 0.05 after Holm's correction, too, a ‡ that the
printed effect is outside the interval, a § that the claim was not tested under its conditions.

`python docs/page_numbers.py` writes the numbers of all pages again; the site is built with them.
"""

from __future__ import annotations

import csv
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DEFINITION = re.compile(
    r'^\[([\w.-]+)\]: (?:\.\./)*(\S+\.csv)\s+"([^"]+; format=[^"]+)"$', re.MULTILINE
)
CLAIMS = re.compile(r"(<!-- claims: (.*?) -->\n).*?(<!-- /claims -->)", re.DOTALL)


MORE = ", held-back questions included"


class Number(float):
    """A value of a table, with the formats of pages."""

    def __format__(self, form: str) -> str:
        if form.startswith("~"):
            return format(Number(-self), form[1:])
        if form.endswith("points"):
            spec = form.removesuffix("points")
            return format(Number(round(100 * self, 6)), f"{spec}f" if "." in spec else f"{spec}.0f")
        return super().__format__(form).replace("-", "−")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Write the numbers of a page of the site: an event of MkDocs."""
    return generated(markdown)


def generated(text: str) -> str:
    """Return a page with its numbers and claims as the tables have them."""
    for label, table, title in DEFINITION.findall(text):
        shown = _shown(table, title)
        link = re.compile(rf"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\[{label}\]")
        text = link.sub(lambda _, link=f"[{shown}][{label}]": link, text)
    return CLAIMS.sub(lambda match: f"{match[1]}\n{_claims(match[2])}\n{match[3]}", text)


def _shown(table: str, title: str) -> str:
    """The values of the one row that a definition names, in its format."""
    where, _, form = title.partition("; format=")
    wanted = dict(pair.split("=", 1) for pair in where.split("; "))
    rows = [row for row in _table(table) if wanted.items() <= row.items()]
    if len(rows) != 1:
        raise ValueError(f"{table}: {len(rows)} rows with {where}")
    numbers = {name: Number(value) for name, value in rows[0].items() if _is_number(value)}
    if "{" not in form:
        spec = form.removeprefix("±")
        ends = f" [{{low:{spec}}}, {{high:{spec}}}]".replace("+", "")
        form = f"{{:{spec}}}{ends if form.startswith('±') else ''}"
    return form.format(numbers.get("measured", numbers.get("value")), **numbers)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", text) is not None


def _claims(paper: str) -> str:
    """The claims whose source matches: a row each, with a column for each reader.

    Where held-back questions were included later, the row has these. Notes are numbered below.
    """
    rows = [row for row in _table("reports/directions.csv") if re.match(paper, row["source"])]
    readers = list(dict.fromkeys(row["reader"] for row in rows))
    lines = [["claim", "source", *readers, "notes"], ["---"] * (len(readers) + 3)]
    numbered: dict[str, int] = {}
    for claim in dict.fromkeys(row["claim"].removesuffix(MORE) for row in rows):
        by_reader = {row["reader"]: row for row in rows if row["claim"] in (claim, claim + MORE)}
        cells = [_verdict(by_reader[name]) if name in by_reader else "" for name in readers]
        source = next(iter(by_reader.values()))["source"].removeprefix(f"{paper}, ")
        texts = [row[name] for name in ("unmet", "note") for row in by_reader.values()]
        notes = dict.fromkeys(filter(None, texts))
        places = [str(numbered.setdefault(note, len(numbered) + 1)) for note in notes]
        lines.append([claim, source, *cells, ", ".join(places)])
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return table + "\n" + "".join(f"{n}. {note}\n" for note, n in numbered.items())


def _verdict(row: dict[str, str]) -> str:
    value, low, high = (Number(f"{float(row[name]):.3f}") for name in ("value", "low", "high"))
    mark = " †" if row["p_holm"] and float(row["p_holm"]) < 0.05 else ""
    mark += " ‡" if row["printed_effect"] == "outside" else ""
    mark += " §" if row["unmet"] else ""
    return f"**{row['verdict']}** {value:.3g} [{low:.3g}, {high:.3g}]{mark}"


@cache
def _table(name: str) -> list[dict[str, str]]:
    with (ROOT / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def pages() -> list[Path]:
    """The Markdown pages of the repository that have numbers of tables."""
    command = ["git", "grep", "-lE", r"; format=|<!-- claims: ", "--", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split()]


if __name__ == "__main__":
    for page in pages():
        page.write_text(generated(page.read_text(encoding="utf-8")), encoding="utf-8")
