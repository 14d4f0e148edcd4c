"""CFIC, Figure 3: the maximal decoding length d.

What this shows: F1 at each d, with 95% intervals, and the share of gold sections that the
evidence reaches where the data set names them, at one k; and the d with the best F1, chosen on the
same questions.

Limits: the paper only draws its curves; its text names the best d (256). Table 3 has the evidence
volume of one d.
"""

from ragauge.config.reads import ANY, Reads, defaults
from ragauge.io.jsonl import JsonObject
from ragauge.report.figures import Axis, Figure, Lines
from ragauge.report.items.cfic import _shared
from ragauge.results.cells import Cell, Cells, Measure, Table, frame
from ragauge.results.measures import quality, scored
from ragauge.results.publications import statement
from ragauge.results.runs import Group, Runs

KEYS = ("model", "dataset", "series", "d", "variant")
LINES = {"f1": "F1", _shared.SECTION: "gold section found"}
PAPER = "the paper's 7B model"

READS = Reads(answers=(defaults("cfic", top_k=ANY, d=ANY),), datasets="long")


def table(runs: Runs) -> Table:
    measured = runs.by_group(_group, READS.datasets)
    best = statement("cfic", "best_max_decoding_length_tokens")
    note = Measure(note="published in the text; the curves are only drawn")
    keys = {"model": PAPER, "dataset": "its data sets", "series": "k=3"}
    return frame(KEYS, [*measured, Cell(keys, "best_d", note, best)])


def draw(table: Table) -> Figure:
    table = _shared.without_prefix(table)
    axes = Axis("d (tokens)", "base2"), Axis("share, 95% interval", from_zero=True)
    plots = [Lines("d", axes[0], q, axes[1], text, "", share=True) for q, text in LINES.items()]
    points = [point for plot in plots for point in plot.points(table)]
    panels = _shared.swept_panels(points).values()
    return plots[0].draw(point for panel in panels for point in panel)


def _group(group: Group) -> Cells:
    measures = {v: quality(v, "f1") for v in _shared.swept(group, "d", "top_k")}
    keys = JsonObject()
    for variant, f1 in measures.items():
        k, d = _shared.size(variant)
        keys = group.keys | {"series": f"k={k}", "d": d, "variant": variant.name}
        yield Cell(keys, "f1", f1)
        if scored(variant, _shared.SECTION):
            yield Cell(keys, _shared.SECTION, quality(variant, _shared.SECTION))
    known = {v: m.value for v, m in measures.items() if m.value is not None}
    if len(known) > 1:
        luckiest = max(known, key=lambda v: known[v])
        note = f"the best of {', '.join(str(v.param('d')) for v in known)} on these questions"
        measure = Measure(luckiest.param("d"), n=measures[luckiest].n, note=note)
        yield Cell(keys | {"d": "", "variant": luckiest.name}, "best_d", measure)
