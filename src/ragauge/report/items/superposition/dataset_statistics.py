"""Superposition Prompting, data set statistics: the length of documents.

What this shows: over the questions of each data set under each model's tokenizer, the mean document
length, the mean length of a question's longest document and the mean left-align gap, the difference
of the two: the positions that left alignment leaves empty before the query.

Limits: a subset's statistics are those of the subset. The paper does not name its tokenizer, and
its MuSiQue gap (149.6) is not the difference of its two lengths (101.6); both are as printed.
"""

from ragauge.config.reads import Reads, every
from ragauge.report.figures import Axis, Dots, Figure, style
from ragauge.results.cells import Cells, Line, Table, frame, mean, row_cells
from ragauge.results.publications import printed
from ragauge.results.runs import Group, Runs

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
    item = "superposition_dataset_statistics"
    note = "published; the paper does not name the tokenizer"
    cells = printed(
        item, lambda line: {"model": PAPER, "dataset": line["dataset"]}, QUANTITIES, note
    )
    return frame(KEYS, measured + cells)


def draw(table: Table) -> Figure:

    def name(line: Line) -> str:
        return style.method_label(line["statistic"]) + (
            f" · {line['dataset']}" if line["model"] == PAPER else ""
        )

    dots = Dots({"tokens": Axis("tokens")}, look=lambda line: line["statistic"], name=name)
    return dots(table.assign(statistic=table["quantity"], quantity="tokens"))


def _group(group: Group) -> Cells:
    # by question, from a record that was given all of its documents
    lengths: dict[str, list[int]] = {}
    for variant in group.variants:
        for key, record in variant.records.items():
            lengths[key] = max(lengths.get(key, []), record.tokens.get("documents") or [], key=len)
    known = [question for question in lengths.values() if question]
    means = [sum(question) / len(question) for question in known]
    longest = list(map(max, known))
    gaps = [most - each for most, each in zip(longest, means, strict=True)]
    nothing = "no record holds document lengths"
    measures = [mean(values, group.runs.seed, nothing=nothing) for values in (means, longest, gaps)]
    return row_cells(group.keys, dict(zip(QUANTITIES, measures, strict=True)))
