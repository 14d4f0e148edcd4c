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

from dataclasses import replace

from ragauge.config.reads import ANY, Reads, defaults, every
from ragauge.report.figures import Axis, Figure, Lines, Panel, lines
from ragauge.report.items.cfic import _shared
from ragauge.results.cells import (
    OTHER_MODEL,
    Cells,
    Measure,
    Measures,
    Table,
    frame,
    noted,
    row_cells,
)
from ragauge.results.measures import quality
from ragauge.results.publications import LONGBENCH, printed
from ragauge.results.runs import Group, Runs, Variant

KEYS = ("model", "dataset", "series", "k", "variant")
LATENCY = "decoding_latency_ms"
WITHOUT = "latency_without_strategies_ms"
TIMES = {LATENCY: ("CFIC", "cfic"), WITHOUT: ("without decoding strategies", "free_extraction")}
PUBLISHED = {"latency_ms": LATENCY, "latency_without_strategies_ms": WITHOUT}
PAPER = "the paper's 7B model"
ONE_TEXT = "one text, the same at every k"
UNTIMED = "not timed: no variant of method free_extraction is"

READS = Reads(
    answers=(every("free_extraction"), defaults("cfic", top_k=ANY, d=ANY)),
    datasets="long",
    latency="long",
)


def table(runs: Runs) -> Table:
    cells = runs.by_group(_group, READS.datasets)
    cells += printed(
        "cfic_table_8",
        lambda line: {
            "model": PAPER,
            "dataset": LONGBENCH + line["dataset"],
            "series": "d=256",
            "k": int(line["k"]),
        },
        ("f1", *PUBLISHED),
        OTHER_MODEL,
        PUBLISHED,
    )
    return frame(KEYS, cells)


def draw(table: Table) -> Figure:
    table = _shared.without_prefix(table)
    k = Axis("k")
    f1 = Axis("F1", from_zero=True)
    ms = Axis("ms to the evidence", from_zero=True)
    quality_ = Lines("k", k, "f1", f1, lambda row: f"F1, {row.keys['series']}").points(table)
    plots = [Lines("k", k, quantity, ms, name, look) for quantity, (name, look) in TIMES.items()]
    times = [point for plot in plots for point in plot.points(table)]
    rows = [_shared.swept_panels(series) for series in (quality_, times)]
    titles = sorted(rows[0] | rows[1], key=lambda title: title.startswith("published"))
    panels = [
        Panel(t, k, y, row.get(t, ()))
        for row, y in zip(rows, (f1, ms), strict=True)
        for t in titles
    ]
    return lines.draw(panels, columns=len(titles), height_in=1.8)


def _group(group: Group) -> Cells:
    free = next(iter(group.find("free_extraction")), None)
    for variant in _shared.swept(group, "top_k", "d"):
        k, d = _shared.size(variant)
        keys = group.keys | {"series": f"d={d}", "k": k, "variant": variant.name}
        yield from row_cells(keys, {"f1": quality(variant, "f1"), **_times(group, variant, free)})


def _times(group: Group, variant: Variant, free: Variant | None) -> Measures:
    """Milliseconds to the evidence; those of the model that finds it, where another one answers."""
    runs = group.runs
    entry = group.model_entry
    finding = replace(group, model=(entry.finder if entry else None) or group.model)
    base = _shared.base_of(group)
    note = ""
    if finding != group and finding.timed:
        note = f"of its finder, {finding.model}"
        variant = runs.named(finding.model, variant.name)
        timed = _shared.timed_variants(runs, finding.timed)
        free = next((v for v in timed if v.method == "free_extraction"), None)
    elif base and not group.timed:
        why = Measure(reason=f"not timed: as fast as {base}, of which it was made")
        return dict.fromkeys((LATENCY, WITHOUT), why)
    else:
        finding = group
    without = Measure(reason=UNTIMED if note else _shared.NO_FREE)
    if free:
        without = noted(_shared.finding_in_batch(finding, free), note, ONE_TEXT)
    return {LATENCY: noted(_shared.finding_in_batch(finding, variant), note), WITHOUT: without}
