"""PipeRAG, Table 2: the likeness of chunks that stale and fresh queries find.

What this shows: the cosine of the chunks nearest to a query and to the same query some tokens
earlier, by number of tokens, over held-out text; `same_chunk` is the share of queries for which the
two are one chunk.

Limits: Figure 10 has the cost of staleness in perplexity. The paper compares with another encoder
over 3 billion chunks, where more chunks are alike; its numbers stand beside those of its encoder on
texts that have its names, such as c4_t5 for C4.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ragauge.config.reads import Reads
from ragauge.io.jsonl import JsonObject
from ragauge.report.figures import Axis, Figure, Lines, TableRow
from ragauge.report.items.piperag import _published
from ragauge.results.cells import Cell, Cells, Measure, Table, frame, mean, noted
from ragauge.results.publications import read_csv
from ragauge.results.runs import Runs, model_name
from ragauge.results.staleness import StalenessEntry, comparisons
from ragauge.results.stats import SHARE, Limits

# model: the encoder that compares
KEYS = ("model", "dataset", "index", "nprobe", "stale_tokens", "variant")
ENCODER = "msmarco-bert-base-dot-v5"
COSINE = "cosine_similarity"
RELEASED = "the released script joins chunks with what follows them, and counts a text's first query as alike"
OTHER = "published for another encoder and corpus"

READS = Reads(staleness=True)


def table(runs: Runs) -> Table:
    # 0: the query itself
    printed = {
        (line["dataset"], int(line["stale_tokens"])): float(line["cosine_similarity"])
        for line in read_csv("piperag_table_2")
        if line["stale_tokens"] != "0"
    }
    cells = [
        cell for comparison in comparisons(runs) for cell in _measured(runs, comparison, printed)
    ]
    compared = {
        (_published.dataset(c.keys["dataset"]), c.keys["stale_tokens"])
        for c in cells
        if c.published is not None
    }
    for (dataset, stale), value in printed.items():
        if (dataset, stale) not in compared:
            keys = {"model": ENCODER, "dataset": dataset, "stale_tokens": stale}
            cells.append(Cell(keys, COSINE, Measure(note=OTHER), value))
    return frame(KEYS, cells)


def draw(table: Table) -> Figure:
    names = (
        table.assign(index=table["index"].astype(str))
        .groupby(["model", "dataset", "index"])["variant"]
        .nunique()
    )

    def line(row: TableRow) -> str:
        model, dataset, index, variant = (
            str(row.keys[key]) for key in ("model", "dataset", "index", "variant")
        )
        # of other databases, or nprobe
        several = f" ({variant})" if names[model, dataset, index] > 1 else ""
        return dataset + (f", index {index}{several}" if index else " (the paper)")

    plot = Lines(
        "stale_tokens",
        Axis("stale tokens", "base2"),
        COSINE,
        Axis("cosine similarity"),
        line,
        look=lambda row: row.keys["dataset"],
    )
    return plot.draw(replace(p, panel=p.panel.partition("\n")[0]) for p in plot.points(table))


def _measured(
    runs: Runs, comparison: StalenessEntry, printed: Mapping[tuple[str, int], float]
) -> Cells:
    report = comparison.report
    encoder = model_name(comparison.encoder)
    keys: JsonObject = {
        "model": encoder,
        "dataset": comparison.text,
        "index": comparison.index,
        "variant": comparison.name,
    }
    of_text = {
        stale: value
        for (text, stale), value in printed.items()
        if encoder == ENCODER and text == _published.dataset(comparison.text)
    }
    if report is None:
        missing = Measure(reason="not run: no such file yet")
        keys["model"] = comparison.encoder
        unknown: dict[Any, float | None] = {"": None}  # which steps it would have compared
        for stale, value in (of_text or unknown).items():
            yield Cell(keys | {"stale_tokens": stale}, COSINE, missing, value)
        return
    for number, stale in enumerate(report.stale_tokens):
        row = keys | {"stale_tokens": stale, "nprobe": report.nprobe}
        cosine = _mean(runs, [query.cosine[number] for query in report.queries], None)
        cosine = noted(cosine, RELEASED) if stale in of_text else cosine
        yield Cell(row, COSINE, cosine, of_text.get(stale))
        # of the fresh, of the stale
        chunks = [(query.chunks[0], query.chunks[1 + number]) for query in report.queries]
        alike = [None if min(pair) < 0 else pair[0] == pair[1] for pair in chunks]
        yield Cell(row, "same_chunk", _mean(runs, alike, SHARE))


def _mean(runs: Runs, values: Sequence[float | None], limits: Limits | None) -> Measure:
    finite = [v for v in values if v is not None and math.isfinite(v)]
    nothing = len(values) - len(finite)
    note = f"{nothing} of {len(values)} queries found nothing" if nothing else ""
    return mean(finite, runs.seed, note, nothing="no query", limits=limits)
