"""Estimate an experiment's downloads, memory, disk and minimum GPU hours before it is run, as Markdown."""

from __future__ import annotations

import argparse

from ragauge.verbs import _options as options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_its_config(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Print the tables."""
    from ragauge.evaluation import needs

    text = needs.markdown(options.its_config(args))
    options.tell(args, text.rstrip("\n"), **_tables(text))


def _tables(text: str) -> dict[str, list[dict[str, str]]]:
    """The rows of each table of a Markdown text, cells by column, under its heading."""
    tables, heading = dict[str, list[dict[str, str]]](), ""
    columns: list[str] | None = None
    for line in text.splitlines():
        if line.startswith("#"):
            heading, columns = line.lstrip("# "), None
        elif line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if columns is None:
                columns = cells
            elif set(cells) != {"---"}:
                tables.setdefault(heading, []).append(dict(zip(columns, cells, strict=True)))
    return tables
