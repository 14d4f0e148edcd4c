"""Shortcuts of data sets: what finds the gold document without reading.

What this shows: how often the gold document is the shortest, the longest, the first or the last, or
has most words of the question in its title or in all of it, beside a random choice; where a rule
cannot tell documents apart it counts as a random choice among them. Then the length of gold
documents and its mean difference from that of the others, and the shares of questions with an
answer in another document too, with a near-duplicate (80% of the words in common) and with a gold
document that another question has. Lengths are in words and, for each model, in its tokens. Of one
long text the rules choose among ten equal parts, and gold is where the gold stretch lies. A rule
whose interval is above chance is named below every table of the data set, and tables of rankers
split their questions by the best one that reads nothing.

Limits: a rule of words is a weak ranker, not a fault of the data set. Other shortcuts, of style for
example, are not looked for. A data set that names no gold document has no rows of rules.
"""

from ragauge.config.reads import Reads, every
from ragauge.report.figures import Axis, Dots, Figure
from ragauge.results import shortcuts
from ragauge.results.cells import Cell, Measure, Table, frame, row_cells
from ragauge.results.materials import examples
from ragauge.results.runs import Runs

KEYS = ("model", "dataset")
WORDS = "words"  # in the place of the model whose tokens are counted

READS = Reads(answers=(every(),))


def table(runs: Runs) -> Table:
    datasets = dict.fromkeys(dataset for dataset, _ in runs.groups())
    pairs = [*((dataset, WORDS) for dataset in datasets), *runs.groups()]
    return frame(KEYS, (cell for pair in pairs for cell in _cells(runs, *pair)))


def draw(table: Table) -> Figure:
    dots = Dots({"": Axis("gold document found")}, look=lambda line: str(line["rule"]))
    rules = table[table["quantity"].str.startswith("gold_")]
    return dots(rules.assign(rule=rules["quantity"], quantity=""))


def footer(runs: Runs, table: Table) -> str:
    return "Intervals: bootstrap 95%."


def _cells(runs: Runs, dataset: str, model: str) -> list[Cell]:
    keys = {"model": model, "dataset": dataset}
    asked = examples(runs, dataset)
    lengths = {
        key: record.tokens["documents"]
        for variant in runs.of(dataset, model)
        for key, record in variant.records.items()
        if len(record.tokens.get("documents") or ()) > 1
    }
    if not asked and model == WORDS:
        reason = f"no {dataset}.jsonl next to the records: their questions are missing"
        return [Cell(keys, shortcuts.CHANCE, Measure(reason=reason))]
    known = shortcuts.features(asked, lengths) if lengths or model == WORDS else []
    return row_cells(keys, shortcuts.summary(known, runs.seed))
