"""CFIC, Table 1: the number of questions and the length of documents of each data set.

What this shows: the questions asked of each data set of long documents, the mean words of their
documents and the mean tokens under the model's tokenizer; and the same of the articles that a
fine-tuning of the run drew its spans from.

Limits: the paper's counts are of the whole data sets, and of its own 25,652 training pairs; a
subset says so, and its ratio is that of the subset.
"""

import math
from collections import defaultdict
from statistics import fmean

from ragauge.config.reads import Reads, every
from ragauge.report.figures import Axis, Dots, Figure
from ragauge.report.items.cfic import _shared
from ragauge.results import materials
from ragauge.results.cells import Cell, Cells, CellStatus, Measure, Table, frame, mean, noted
from ragauge.results.publications import LONGBENCH, read_csv
from ragauge.results.runs import Group, Runs

KEYS = ("model", "dataset")
QUANTITIES = ("samples", "average_words")
PAPER = "the paper"
SFT = "sft"  # the paper's name of its training data

READS = Reads(answers=(every(),), datasets="long", training_data=True)


def table(runs: Runs) -> Table:
    cells = runs.by_group(_group, READS.datasets)
    cells += [cell for label in sorted(runs.config.training) for cell in _training(runs, label)]
    shown = {runs.registered(cell.keys["dataset"]) for cell in cells if cell.published is not None}
    note = Measure(note="published; this data set is not in the run")
    for name, printed in _printed().items():
        if name not in shown:
            cells += [
                Cell({"model": PAPER, "dataset": name}, q, note, printed[q]) for q in QUANTITIES
            ]
    return frame(KEYS, cells)


def draw(table: Table) -> Figure:
    import pandas as pd

    measured = table[table["measured"].notna()].assign(published=math.nan)
    printed = table[table["published"].notna()].assign(
        model=PAPER, measured=math.nan, status=CellStatus.PUBLISHED_ONLY
    )
    table = pd.concat([measured, printed], ignore_index=True)
    axes = {
        "average_words": Axis("words of a document"),
        "average_tokens": Axis("tokens of a document"),
    }
    dots = Dots(axes, look=lambda _: "average_document_tokens", name=lambda line: line["label"])
    names = table["dataset"].str.removeprefix(LONGBENCH)
    return dots(table.assign(label=names, dataset="documents of the data sets"))


def _group(group: Group) -> Cells:
    runs = group.runs
    dataset = group.dataset
    variants = group.variants
    questions = max((len(v.records) for v in variants), default=0)
    lengths: dict[str, int] = {}
    for variant in variants:
        for key, record in variant.records.items():
            # a variant that failed there counts none
            lengths[key] = _shared.document_tokens(record) or lengths.get(key, 0)
    words = Measure(reason=f"no {dataset}.jsonl next to the records: their documents are missing")
    if documents := materials.documents(runs, dataset):  # words as LongBench's `length` counts them
        read = [articles for key, articles in documents.items() if key in lengths]
        counts = [sum(len(one.text.split()) for one in articles) for articles in read]
        words = mean(counts, runs.seed)
    measures = {
        "samples": Measure(questions, n=questions),
        "average_words": words,
        "average_tokens": mean(list(filter(None, lengths.values())), runs.seed),
    }
    printed = _printed().get(runs.registered(dataset), {})
    whole = int(printed.get("samples", 0))
    subset = f"a subset: {questions} of {whole} questions" if questions < whole else ""
    return [Cell(group.keys, q, noted(m, subset), printed.get(q)) for q, m in measures.items()]


def _training(runs: Runs, label: str) -> Cells:
    """Spans with a question, and the mean words of the stretches of articles that they were drawn
    from.
    """
    keys = {"model": runs.config.training[label].model, "dataset": SFT}
    spans = materials.training_spans(runs, label)
    printed = _printed()[SFT]
    if spans is None:
        reason = Measure(reason=f"not run: training {label} left no data")
        return [Cell(keys, q, reason, printed[q]) for q in QUANTITIES]
    by_corpus = defaultdict[str, list[int]](list)
    for count, text, corpus in spans:
        if count:
            by_corpus[corpus] += [len(text.split())] * count  # one a pair
    lengths = [length for corpus_lengths in by_corpus.values() for length in corpus_lengths]
    smaller = ": a smaller set than the paper's" if len(lengths) < printed["samples"] else ""
    parts = (
        f"{c} {len(of)} pairs of {fmean(of):,.0f} words" for c, of in sorted(by_corpus.items())
    )
    note = "; ".join((f"training {label}{smaller}", *parts))
    measures = {
        "samples": Measure(len(lengths), n=len(lengths)),
        "average_words": mean(lengths, runs.seed),
    }
    return [Cell(keys, q, noted(m, note), printed[q]) for q, m in measures.items()]


def _printed() -> dict[str, dict[str, float]]:
    return {
        ("" if line["dataset"] == SFT else LONGBENCH) + line["dataset"]: {
            q: float(line[q]) for q in QUANTITIES
        }
        for line in read_csv("cfic_table_1")
    }
