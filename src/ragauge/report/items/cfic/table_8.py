"""CFIC, Table 8: the number of prefixes k, F1 and the time to find evidence.

What this shows: F1 (a share; the paper prints per cent) at each k, at one d, and the median
milliseconds from the question to the evidence of the latency rule, compared with the same model
writing its evidence freely. Times are of questions side by side, each with its part of the time,
where the latency protocol has `evidence_batch` (8 in the paper), else of one at a time; the note
says which. Free generation is one text here, the same at every k; the paper generates more of it as
k grows. Where one model finds evidence for another, as in the paper (its F1 at k=3 is Table 3's
with Llama 2), the times are the finder's.

Limits: Figure 3 has other d. The paper's times are of another model on another machine, and have no
ratio.
"""

from collections.abc import Iterator

from ragauge.config.reads import ANY, Reads, defaults, every
from ragauge.report.figures import Axis, Figure, Lines, Panel, lines
from ragauge.report.items.cfic import _shared
from ragauge.results import timing
from ragauge.results.cells import (
    OTHER_MODEL,
    Cell,
    Measure,
    Measures,
    Table,
    frame,
    noted,
    row_cells,
)
from ragauge.results.measures import quality
from ragauge.results.publications import LONGBENCH, read_csv
from ragauge.results.runs import Runs, Variant

KEYS = ("model", "dataset", "series", "k", "variant")
LATENCY = "decoding_latency_ms"
WITHOUT = "latency_without_strategies_ms"
TIMES = {LATENCY: ("CFIC", "cfic"), WITHOUT: ("without decoding strategies", "free_extraction")}
PUBLISHED = {"latency_ms": LATENCY, "latency_without_strategies_ms": WITHOUT}
PAPER = "the paper's 7B model"
ONE_TEXT = "one text, the same at every k"
UNTIMED = Measure(reason="not timed: no variant of method free_extraction is")

READS = Reads(
    answers=(every("free_extraction"), defaults("cfic", top_k=ANY, d=ANY)),
    datasets="long",
    latency="long",
)


def table(runs: Runs) -> Table:
    cells = runs.by_group(_group, READS.datasets)
    note = Measure(note=OTHER_MODEL)
    for line in read_csv("cfic_table_8"):
        keys = {
            "model": PAPER,
            "dataset": LONGBENCH + line["dataset"],
            "series": "d=256",
            "k": int(line["k"]),
        }
        cells.append(Cell(keys, "f1", note, round(float(line["f1"]) / 100, 4)))
        cells += [
            Cell(keys, quantity, note, float(line[column]))
            for column, quantity in PUBLISHED.items()
        ]
    return frame(KEYS, cells)


def draw(table: Table) -> Figure:
    table = table.assign(dataset=[name.removeprefix(LONGBENCH) for name in table["dataset"]])
    k = Axis("k")
    f1 = Axis("F1", from_zero=True)
    ms = Axis("ms to the evidence", from_zero=True)
    quality_ = Lines("k", k, "f1", f1, lambda row: f"F1, {row.keys['series']}").points(table)
    plots = [Lines("k", k, quantity, ms, name, look) for quantity, (name, look) in TIMES.items()]
    times = [point for plot in plots for point in plot.points(table)]
    rows = [
        {
            title: part
            for title, part in lines.by_panel(series).items()
            if len({p.x for p in part}) > 1
        }
        for series in (quality_, times)
    ]
    titles = sorted(rows[0] | rows[1], key=lambda title: title.startswith("published"))
    panels = [
        Panel(t, k, y, row.get(t, ()))
        for row, y in zip(rows, (f1, ms), strict=True)
        for t in titles
    ]
    return lines.draw(panels, columns=len(titles), height_in=1.8)


def _group(runs: Runs, dataset: str, model: str) -> Iterator[Cell]:
    best = _shared.as_published(runs.of(dataset, model))
    swept = [
        v
        for v in runs.of(dataset, model)
        if best and _shared.is_cfic(v) and v.param("d") == best.param("d")
    ]
    free = next((v for v in runs.of(dataset, model) if v.method == "free_extraction"), None)
    for variant in sorted(swept, key=lambda v: v.param("top_k")):
        keys = {
            "model": model,
            "dataset": dataset,
            "series": f"d={variant.param('d')}",
            "k": variant.param("top_k"),
            "variant": variant.name,
        }
        times = _times(runs, dataset, variant, free)
        yield from row_cells(keys, {"f1": quality(runs, variant, "f1"), **times})


def _times(runs: Runs, dataset: str, variant: Variant, free: Variant | None) -> Measures:
    """Milliseconds to the evidence; those of the model that finds it, where another one answers."""
    entry = runs.config.models.get(variant.model)
    finder = entry.finder if entry else None
    if finder and (latency := timing.find(runs, dataset, finder)):
        timed = next(
            (v for v in _shared.timed_variants(runs, latency) if v.method == "free_extraction"),
            None,
        )
        note = f"of its finder, {finder}"
        without = (
            noted(_shared.finding_in_batch(runs, dataset, timed), note, ONE_TEXT)
            if timed
            else UNTIMED
        )
        own = _shared.finding_in_batch(runs, dataset, runs.named(finder, variant.name))
        return {LATENCY: noted(own, note), WITHOUT: without}
    base = _shared.base_of(runs, variant.model)
    if base is not None and timing.find(runs, dataset, variant.model) is None:
        return dict.fromkeys(
            (LATENCY, WITHOUT),
            Measure(reason=f"not timed: as fast as {base}, of which it was made"),
        )
    without = (
        noted(_shared.finding_in_batch(runs, dataset, free), ONE_TEXT)
        if free
        else Measure(reason=_shared.NO_FREE)
    )
    return {LATENCY: _shared.finding_in_batch(runs, dataset, variant), WITHOUT: without}
