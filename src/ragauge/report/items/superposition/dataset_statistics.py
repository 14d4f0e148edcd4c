"""Superposition Prompting, data set statistics: the length of documents.

What this shows: over the questions of each data set under each model's tokenizer, the mean document
length, the mean length of a question's longest document and the mean left-align gap, the difference
of the two: the positions that left alignment leaves empty before the query.

Limits: a subset's statistics are those of the subset. The paper does not name its tokenizer, and
its MuSiQue gap (149.6) is not the difference of its two lengths (101.6); both are as printed.
"""

from collections.abc import Mapping
from typing import Any

from ragauge.config.reads import Reads, every
from ragauge.report.figures import Axis, Dots, Figure, style
from ragauge.results.cells import Cell, Measure, Table, frame, mean, row_cells
from ragauge.results.publications import read_csv
from ragauge.results.runs import Runs

KEYS = ("model", "dataset")
QUANTITIES = (
    "average_document_tokens",
    "average_longest_document_tokens",
    "average_left_align_gap_tokens",
)
PAPER = "the paper's tokenizer"

READS = Reads(answers=(every(),), datasets="short")


def table(runs: Runs) -> Table:
    measured = runs.by_group(_group, READS.datasets)
    note = Measure(note="published; the paper does not name the tokenizer")
    printed = [
        Cell({"model": PAPER, "dataset": row["dataset"]}, q, note, float(row[q]))
        for row in read_csv("superposition_dataset_statistics")
        for q in QUANTITIES
    ]
    return frame(KEYS, measured + printed)


def draw(table: Table) -> Figure:

    def name(line: Mapping[Any, Any]) -> str:
        return style.method_label(line["statistic"]) + (
            f" · {line['dataset']}" if line["model"] == PAPER else ""
        )

    dots = Dots({"tokens": Axis("tokens")}, look=lambda line: str(line["statistic"]), name=name)
    return dots(table.assign(statistic=table["quantity"], quantity="tokens"))


def _group(runs: Runs, dataset: str, model: str) -> list[Cell]:
    # by question, from a record that was given all of its documents
    lengths: dict[str, list[int]] = {}
    for variant in runs.of(dataset, model):
        for key, record in variant.records.items():
            lengths[key] = max(lengths.get(key, []), record.tokens.get("documents") or [], key=len)
    known = [question for question in lengths.values() if question]
    means = [sum(question) / len(question) for question in known]
    longest = [float(max(question)) for question in known]
    gaps = [most - each for most, each in zip(longest, means, strict=True)]
    nothing = "no record holds document lengths"
    measures = [mean(values, runs.seed, nothing=nothing) for values in (means, longest, gaps)]
    keys = {"model": model, "dataset": dataset}
    return row_cells(keys, dict(zip(QUANTITIES, measures, strict=True)))
