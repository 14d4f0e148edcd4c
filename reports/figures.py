"""Draw committed figures anew from their committed tables, with the small print that they have.

python reports/figures.py reference-qwen/frontier [--png FOLDER]
"""

import argparse
import re
from pathlib import Path

import pandas as pd

from ragauge import registry
from ragauge.errors import UserError
from ragauge.report.figures.writing import figure_bytes
from ragauge.results.cells import NUMBERS, Table
from ragauge.results.pipelines import IndexName

ROOT = Path(__file__).resolve().parent


def table(path: Path) -> Table:
    """Read a table as its item returned it."""
    read = pd.read_csv(path, dtype=str, keep_default_na=False)
    for name in NUMBERS:
        if name in read:
            read[name] = pd.to_numeric(read[name], errors="coerce")
    for name in ("interval", "nprobe", "top_k", "value"):
        if name in read:
            read[name] = [_number(text) for text in read[name]]
    if "index" in read:
        read["index"] = [_index(text) for text in read["index"]]
    return read


def _number(text: str) -> float | str:
    if re.fullmatch(r"\d+", text):
        return int(text)
    return float(text) if re.fullmatch(r"\d+\.\d+", text) else text


def _index(text: str) -> IndexName | str:
    filled = re.fullmatch(r"(.*) \(filled: ([\d,]+)\)", text)
    if filled is None:
        return IndexName(text) if text else ""
    return IndexName(filled[1], int(filled[2].replace(",", "")))


def draw(name: str) -> dict[str, bytes]:
    """Return the files of a figure, such as `reference-qwen/frontier`, by format."""
    stem = ROOT / name
    small_print = stem.with_suffix(".md").read_text(encoding="utf-8").rstrip().rpartition("\n")[2]
    item = registry.module("item", stem.name)
    try:
        figure = item.draw(table(stem.with_suffix(".csv")))
    except KeyError as error:
        reason = f"no column {error.args[0]}: the table is of an older version"
        raise UserError(f"{stem}.csv: {reason}; render it from its records") from None
    return figure_bytes(figure, small_print)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", nargs="+", metavar="RUN/ITEM")
    parser.add_argument("--png", type=Path, help="write PNG files there instead of the SVG")
    args = parser.parse_args()
    for name in args.figures:
        files = draw(name)
        if args.png:
            args.png.mkdir(parents=True, exist_ok=True)
            (args.png / f"{name.replace('/', '-')}.png").write_bytes(files["png"])
        else:
            (ROOT / f"{name}.svg").write_bytes(files["svg"])
