"""The rendered items as the page shows them: picture, table, caption, files."""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ragauge import registry
from ragauge.errors import UserError
from ragauge.report.figures import writing
from ragauge.report.figures.writing import Column
from ragauge.report.page.problems import Problem, Problems
from ragauge.results.cells import NUMBERS
from ragauge.results.runs import Runs

TABLES = "Tables and figures"
# at which the small type of a figure is easy to read; 1.33 is the size in print
PIXELS_PER_POINT = 1.75
FILES = ("csv", "md", "tex", "svg", "pdf", "png")


@dataclass(frozen=True)
class RenderedCell:
    """A cell of a table: its text, and the records that its number comes from."""

    text: str
    measured: bool = False
    records: str | None = None  # dataset/model/variant


@dataclass
class RenderedItem:
    name: str
    title: str
    caption: list[str]  # paragraphs
    files: list[str]
    columns: Sequence[Column] = ()
    rows: Sequence[list[RenderedCell]] = ()
    notes: Sequence[str] = ()
    footer: str = ""
    picture: str | None = None  # data URI
    # of the picture on the page, in CSS pixels; None: the file has none
    size: tuple[int, int] | None = None
    problems: Sequence[Problem] = ()


def by_paper(runs: Runs, folder: Path) -> dict[str, list[RenderedItem]]:
    """The items of the run by paper, those of all papers last; there is no paper's heading where
    there is no paper.
    """
    sections: dict[str, list[RenderedItem]] = {}
    for name in runs.config.item_names():
        sections.setdefault(registry.paper(name), []).append(_item(name, runs, folder))
    if general := sections.pop(registry.ALL_PAPERS, []):
        sections[registry.ALL_PAPERS if sections else TABLES] = general  # of a study: no paper
    return sections


def _item(name: str, runs: Runs, folder: Path) -> RenderedItem:
    title, _, rest = (registry.module("item", name).__doc__ or name).strip().partition("\n")
    paragraphs = [" ".join(part.split()) for part in rest.split("\n\n") if part.strip()]
    files = [kind for kind in FILES if (folder / f"{name}.{kind}").is_file()]
    item = RenderedItem(name, title.rstrip("."), paragraphs, files)
    item.problems = [*_fill_table(item, runs, folder), *_fill_picture(item, folder)]
    return item


def _fill_table(item: RenderedItem, runs: Runs, folder: Path) -> Problems:
    import pandas as pd

    path = folder / f"{item.name}.csv"
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)  # its keys as text
        for name in NUMBERS:
            table[name] = pd.to_numeric(table[name], errors="coerce")
        table = table.assign(n=table["n"].fillna(0).astype(int))
        item.columns, rows, item.notes = writing.wide(table)
        linked = {f"{v.dataset}/{v.model}/{v.name}" for v in runs.run}
        item.rows = [_cells(item.columns, row, linked) for row in rows]
        item.footer = writing.small_print(item.name, runs, table)
    except (FileNotFoundError, NotADirectoryError):
        yield Problem(f"Table of {item.name}", path, "not rendered: no such file", item.name)
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a table of `ragauge report item`: {error}") from error


def _fill_picture(item: RenderedItem, folder: Path) -> Problems:
    """The SVG as an image, which runs no script and shares no ids with the page, whatever the file
    holds.
    """
    path = folder / f"{item.name}.svg"
    try:
        data = path.read_bytes()
    except OSError as error:
        yield Problem(f"Picture of {item.name}", path, f"not rendered: {error.strerror}", item.name)
        return
    size = re.search(rb'<svg[^>]*? width="([\d.]+)pt" height="([\d.]+)pt"', data[:4000])
    if size:
        width, height = (round(float(side) * PIXELS_PER_POINT) for side in size.groups())
        item.size = (width, height)
    item.picture = f"data:image/svg+xml;base64,{base64.b64encode(data).decode()}"


def _cells(columns: Sequence[Column], row: Sequence[str], known: set[str]) -> list[RenderedCell]:
    """The cells of a row; its variant's name and measured numbers lead to that variant's records."""
    texts = list(zip(columns, row, strict=True))
    keys = {column.name: text for column, text in texts if column.holds == "key"}
    variant = keys.get("variant", "").partition(" − ")[0]
    address = f"{keys.get('dataset')}/{keys.get('model')}/{variant}"
    cells = []
    for column, text in texts:
        measured = column.holds == "measured" and bool(text)
        leads = address in known and (measured or column.name == "variant")
        cells.append(RenderedCell(text, measured, address if leads else None))
    return cells
