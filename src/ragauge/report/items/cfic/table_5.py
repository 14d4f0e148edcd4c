"""CFIC, Table 5: a case study, one question a data set with the evidence of each system.

What this shows: the first question of each data set of long documents that every system answered,
its reference answers, and for CFIC and free extraction with each model the evidence, the answer,
and whether the evidence contains a reference answer. The outcome does not influence the choice.
Texts are shortened in the middle; the records have all.

Limits: the paper's own case is not repeated. Models behind an API are compared where the experiment
has them (`source: openai:NAME`).
"""

import textwrap
from collections.abc import Iterator

from ragauge.config.reads import ANY, Reads, defaults, every
from ragauge.report.figures import Figure, style
from ragauge.report.items.cfic import _shared
from ragauge.results.cells import Cell, Table, frame, mean
from ragauge.results.measures import scored
from ragauge.results.runs import Runs, Variant

KEYS = (
    "dataset",
    "key",
    "question",
    "reference",
    "system",
    "model",
    "variant",
    "evidence",
    "answer",
)
SAYS = "answer_in_evidence"
NAMES = {"cfic": "CFIC", "free_extraction": "free extraction"}
SHOWN = 480
LINE = 96  # characters of a text in the table, and of a line in the figure
LINE_IN = 0.125

READS = Reads(
    answers=(every("free_extraction"), defaults("cfic", top_k=ANY, d=ANY)), datasets="long"
)


def table(runs: Runs) -> Table:
    datasets = dict.fromkeys(dataset for dataset, _ in runs.groups(READS.datasets))
    return frame(KEYS, [cell for dataset in datasets for cell in _case(runs, dataset)])


def draw(table: Table) -> Figure:
    """The first case: question, reference, and each system's evidence, coloured where it says the
    reference.
    """
    if table.empty:
        return style.empty("Nothing to show yet: no question was answered from evidence.")
    case = table[table["dataset"] == table["dataset"].iloc[0]].to_dict("records")
    texts = [(f"{case[0]['question']}  [{case[0]['reference']}]", style.INK)]
    for row in case:
        colour = style.METHODS["cfic"][1] if row["measured"] == 1 else style.MUTED
        texts.append((f"{NAMES[row['system']]}, {row['model']}: {row['evidence']}", colour))
    lines = [(line, colour) for text, colour in texts for line in (*textwrap.wrap(text, LINE), "")]
    with style.theme():
        figure = style.figure(style.TEXT_IN, LINE_IN * (len(lines) + 1))
        for number, (line, colour) in enumerate(lines):
            figure.text(
                0.01, 1 - (number + 1) / (len(lines) + 1), line, color=colour, parse_math=False
            )
        return figure


def _case(runs: Runs, dataset: str) -> Iterator[Cell]:
    """The cells of the first question that all systems of a data set answered."""
    systems: list[Variant] = []
    for _, model in (group for group in runs.groups(READS.datasets) if group[0] == dataset):
        best = _shared.as_published(runs.of(dataset, model))  # CFIC as the paper has it
        systems += [best] if best else []
        systems += [v for v in runs.of(dataset, model) if v.method == "free_extraction"]
    key = next(
        (key for v in systems for key in v.records if all(key in s.answered for s in systems)), ""
    )
    for variant in systems if key else ():
        record = variant.records[key]
        scores = scored(runs, variant, SAYS)
        keys = {
            "dataset": dataset,
            "key": key,
            "question": record.question,
            "reference": "; ".join(record.answers),
            "system": variant.method,
            "model": variant.model,
            "variant": variant.name,
            "answer": _short(record.prediction),
            "evidence": _short(" [...] ".join(piece.text for piece in record.evidence or ())),
        }
        says = [scores[key]] if key in scores else []
        yield Cell(keys, SAYS, mean(says, runs.seed, nothing="no reference answer has a word"))


def _short(text: str) -> str:
    """A text on one line, its middle left out where it is long."""
    line = " ".join(text.split())
    half = (SHOWN - len(" [...] ")) // 2
    return line if len(line) <= SHOWN else f"{line[:half]} [...] {line[-half:]}"
