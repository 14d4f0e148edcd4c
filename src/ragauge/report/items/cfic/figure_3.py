"""CFIC, Figure 3: the maximal decoding length d.

What this shows: F1 at each d, with 95% intervals, and the share of gold sections that the
evidence reaches where the data set names them, at one k; and the d with the best F1, chosen on the
same questions.

Limits: the paper only draws its curves; its text names the best d (256). Table 3 has the evidence
volume of one d.
"""

from collections.abc import Iterator

from ragauge.config.reads import ANY, Reads, defaults
from ragauge.report.figures import Axis, Figure, Lines, lines
from ragauge.report.items.cfic import _shared
from ragauge.results.cells import Cell, Measure, Table, frame
from ragauge.results.measures import quality, scored
from ragauge.results.publications import LONGBENCH, read_csv
from ragauge.results.runs import Runs

KEYS = ("model", "dataset", "series", "d", "variant")
LINES = {"f1": "F1", _shared.SECTION: "gold section found"}
PAPER = "the paper's 7B model"

READS = Reads(answers=(defaults("cfic", top_k=ANY, d=ANY),), datasets="long")


def table(runs: Runs) -> Table:
    measured = runs.by_group(_group, READS.datasets)
    best = next(
        line
        for line in read_csv("cfic_statements")
        if line["item"] == "best_max_decoding_length_tokens"
    )
    note = Measure(note="published in the text; the curves are only drawn")
    keys = {"model": PAPER, "dataset": "its data sets", "series": "k=3"}
    return frame(KEYS, [*measured, Cell(keys, "best_d", note, float(best["value"]))])


def draw(table: Table) -> Figure:
    table = table.assign(dataset=[name.removeprefix(LONGBENCH) for name in table["dataset"]])
    axes = Axis("d (tokens)", "base2"), Axis("share, 95% interval", from_zero=True)
    plots = [Lines("d", axes[0], q, axes[1], text, "", share=True) for q, text in LINES.items()]
    points = [point for plot in plots for point in plot.points(table)]
    return plots[0].draw(
        [
            p
            for part in lines.by_panel(points).values()
            if len({q.x for q in part}) > 1
            for p in part
        ]
    )


def _group(runs: Runs, dataset: str, model: str) -> Iterator[Cell]:
    best = _shared.as_published(runs.of(dataset, model))
    k = best.param("top_k") if best else None
    swept = [
        v for v in runs.of(dataset, model) if best and _shared.is_cfic(v) and v.param("top_k") == k
    ]
    measures = {v: quality(runs, v, "f1") for v in sorted(swept, key=lambda v: v.param("d"))}
    common = {"model": model, "dataset": dataset, "series": f"k={k}"}
    for variant, f1 in measures.items():
        keys = {**common, "d": variant.param("d"), "variant": variant.name}
        yield Cell(keys, "f1", f1)
        if scored(runs, variant, _shared.SECTION):
            yield Cell(keys, _shared.SECTION, quality(runs, variant, _shared.SECTION))
    known = {v: m.value for v, m in measures.items() if m.value is not None}
    if len(known) > 1:
        luckiest = max(known, key=lambda v: known[v])
        note = f"the best of {', '.join(str(v.param('d')) for v in known)} on these questions"
        measure = Measure(float(luckiest.param("d")), n=measures[luckiest].n, note=note)
        yield Cell({**common, "variant": luckiest.name}, "best_d", measure)
