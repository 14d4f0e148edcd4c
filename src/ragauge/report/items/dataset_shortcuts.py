"""Shortcuts of data sets: what finds the gold document without reading.

What this shows: how often the gold document is the shortest, the longest, the first or the last, or
has most words of the question in its title or in all of it, or most of its pairs of words that
follow one another, beside a random choice; where a rule cannot tell documents apart it counts as a
random choice among them. Then the lengths of gold and of other documents, and the shares of
questions with an answer in another document too, with a near-duplicate (80% of the words in common)
and with a gold document that another question has. Of one long text `place_of_gold` says where its
gold stretch lies, from 0 to 1. A rule whose interval is above chance is named below every table of
the data set, and tables of rankers split their questions by the best one that reads nothing.

Limits: a rule of words is a weak ranker, not a fault of the data set. Other shortcuts, of style for
example, are not looked for. A data set that names no gold document has no rows of rules.
"""

from ragauge.config.reads import Reads, every
from ragauge.report.figures import Axis, Dots, Figure
from ragauge.results.cells import Cell, Measure, Table, frame, row_cells
from ragauge.results.runs import Runs
from ragauge.results.shortcuts import CHANCE, of_run

READS = Reads(answers=(every(),))


def table(runs: Runs) -> Table:
    cells = list[Cell]()
    for dataset in dict.fromkeys(group.dataset for group in runs.groups()):
        _, found = of_run(runs, dataset)
        missing = f"no {dataset}.jsonl next to the records: its questions are missing"
        cells += row_cells({"dataset": dataset}, found or {CHANCE: Measure(reason=missing)})
    return frame(("dataset",), cells)


def draw(table: Table) -> Figure:
    dots = Dots({"": Axis("gold document found")}, look=lambda line: line["rule"])
    rules = table[table["quantity"].str.startswith("gold_")]
    return dots(rules.assign(rule=rules["quantity"], quantity="", model="rules"))


def footer(runs: Runs, table: Table) -> str:
    return "Lengths are in words. Intervals: 95%."
