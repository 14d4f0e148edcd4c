"""Items as files: CSV, Markdown, LaTeX (booktabs), SVG, PDF and PNG, without timestamps; the
provenance of a run.
"""

import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from string import Template
from typing import Literal

from ragauge import registry
from ragauge.io.files import write_file
from ragauge.report.figures import footer, lines, style
from ragauge.report.figures.style import Figure
from ragauge.results import measures, provenance, shortcuts
from ragauge.results.cells import Line, Table
from ragauge.results.runs import Runs

METADATA: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "ModDate": None, "Producer": None, "Creator": None},
    "png": {"Software": None},
}
_ESCAPES = str.maketrans(
    {
        "&": r"\&",
        "%": r"\%",
        "_": r"\_",
        "#": r"\#",
        "$": r"\$",
        "{": r"\{",
        "}": r"\}",
        "~": r"\~{}",
        "^": r"\^{}",
        "\\": r"\textbackslash{}",
        "·": r"$\cdot$",
        "×": r"$\times$",
        "–": "--",
        "−": "$-$",
        "…": r"\ldots{}",
    }
)
LATEX = Template(r"""\begin{table*}
\centering
\caption{$title}\label{tab:$item}
\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%
\begin{tabular}{$columns}
\toprule
$head\midrule
$body\bottomrule
\end{tabular}}
\par\smallskip{\footnotesize $small_type}
\end{table*}
""")


def render(item: str, runs: Runs, out_dir: Path) -> list[Path]:
    """Write `<item>.{csv,md,tex,svg,pdf,png}` below `out_dir` from what there is; returns their
    paths.

    Raises:
        UserError: there is no such item, or a results file cannot be read.
    """
    module = registry.module("item", item)
    table = module.table(runs)
    description = module.__doc__ or item
    footer_text = small_print(item, runs, table)
    contents = {
        "csv": csv_text(table).encode(),
        "md": markdown(table, description, footer_text).encode(),
        "tex": latex(item, table, description, footer_text).encode(),
        **figure_bytes(module.draw(table), footer_text),
    }
    for kind, data in contents.items():
        write_file(out_dir / f"{item}.{kind}", data)
    return [out_dir / f"{item}.{kind}" for kind in contents]


def small_print(item: str, runs: Runs, table: Table) -> str:
    """The line below an item's table and figure: its own `footer`, or the one of all items; and the
    shortcuts of the data sets in it.
    """
    own = getattr(registry.module("item", item), "footer", footer.footer)
    return str(own(runs, table)) + shortcuts.small_print(runs, table)


def write_provenance(runs: Runs, out_dir: Path) -> Path:
    """Write `provenance.json` below `out_dir`: settings, data, code and machine of everything in a
    run; and `scores.csv`, from which paired differences can be computed again.
    """
    path = out_dir / "provenance.json"
    write_file(path.with_name("scores.csv"), csv_text(measures.by_question(runs)).encode())
    text = json.dumps(provenance.describe(runs), indent=1, ensure_ascii=False)
    write_file(path, f"{text}\n".encode())
    return path


def csv_text(table: Table) -> str:
    """The table as CSV: six significant digits, empty if there is no number."""
    return str(table.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


@dataclass(frozen=True)
class Column:
    name: str
    holds: Literal["key", "measured", "published", "n", "notes"]

    @property
    def title(self) -> str:
        return self.name.replace("_", " ") + (" (published)" if self.holds == "published" else "")


def wide(table: Table) -> tuple[list[Column], list[list[str]], list[str]]:
    """The table for readers: (columns, rows of text, numbered notes), one row for each set of keys;
    columns that hold nothing are left out.
    """
    columns = []
    for name, part in table.groupby("quantity", sort=False):
        columns.append(Column(str(name), "measured"))
        if part["published"].notna().any():
            columns.append(Column(str(name), "published"))
    notes: dict[str, int] = {}
    rows = []
    for row in lines.rows(table):
        cells = row.cells.values()
        keys = ["" if key is None or key != key else str(key) for key in row.keys.values()]
        texts = [_cell(row.cells.get(column.name), column) for column in columns]
        sizes = sorted({int(line["n"]) for line in cells if line["n"]})
        given = dict.fromkeys(line["note"] for line in cells if line["note"])
        marks = [notes.setdefault(note, len(notes) + 1) for note in given]
        rows.append([*keys, *texts, "/".join(map(str, sizes)), ", ".join(map(str, marks))])
    header = [Column(key, "key") for key in lines.key_columns(table)]
    header += [*columns, Column("n", "n"), Column("notes", "notes")]
    filled = [any(texts) for texts in zip(*rows, strict=True)] or [True] * len(header)
    shown = [list(compress(row, filled)) for row in rows]
    return list(compress(header, filled)), shown, list(notes)


def markdown(table: Table, description: str, footer: str) -> str:
    """The wide table as a GitHub table with its notes below."""
    columns, rows, notes = wide(table)
    header = [column.title for column in columns]
    title, _, rest = description.strip().partition("\n")
    ruled = [header, ["---"] * len(header), *rows]
    shown = "\n".join(map(_pipe, ruled)) if rows else "No records yet."
    numbered = "\n".join(f"{i}. {note}" for i, note in enumerate(notes, 1))
    parts = [f"# {title}", rest.strip(), shown, numbered, footer]
    return "\n\n".join(filter(None, parts)) + "\n"


def latex(item: str, table: Table, description: str, footer: str) -> str:
    """The wide table as a floating booktabs table; needs the packages booktabs and, for its width,
    graphicx.
    """
    columns, rows, notes = wide(table)
    header = [column.title for column in columns]
    numbered = (f"({i}) {note}." for i, note in enumerate(notes, 1))
    head, *body = (
        " & ".join(text.translate(_ESCAPES) for text in row) + " \\\\\n" for row in (header, *rows)
    )
    return LATEX.substitute(
        title=description.strip().partition("\n")[0].translate(_ESCAPES),
        item=item,
        columns="l" * len(header),
        head=head,
        body="".join(body),
        small_type=" ".join([*numbered, footer]).translate(_ESCAPES),
    )


def number(value: float, quantity: str) -> str:
    """A number formatted by its quantity: cycles in powers of ten, speedups in 3 digits, shares in
    3 decimals; empty if it is not finite.
    """
    if not math.isfinite(value):
        return ""
    if "cycles" in quantity:
        return f"{value:.3g}".replace("e+", "e")
    if "speedup" in quantity or quantity.endswith(
        ("_s", "_ms", "_words", "_steps", "_d", "tokens", "samples")
    ):
        return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"
    return f"{value:.3f}".replace("-", "−")


def _cell(line: Line | None, column: Column) -> str:
    if line is None:
        return ""
    quantity = column.name
    text = number(line[column.holds], quantity)
    if column.holds == "published" or not text:
        return text
    low = number(line["low"], quantity)
    high = number(line["high"], quantity)
    if low and high:
        text += f" [{low}, {high}]"
    return text + (f" p={line['p']:.2g}" if math.isfinite(line["p"]) else "")


def _pipe(cells: Sequence[str]) -> str:
    return "| " + " | ".join(c.replace("|", r"\|") for c in cells) + " |"


def figure_bytes(figure: Figure, footer: str) -> dict[str, bytes]:
    """The figure in each format, its axes at rounded places: the layout's solver differs in the
    last bits between runs.
    """
    files = {}
    with style.theme():
        style.footer(figure, footer)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for axes in figure.axes:
            left, bottom, width, height = (round(edge, 5) for edge in axes.get_position().bounds)
            axes.set_position((left, bottom, width, height))
        for kind, metadata in METADATA.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=metadata)
            files[kind] = buffer.getvalue()
    return files
