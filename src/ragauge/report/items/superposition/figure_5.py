"""Superposition Prompting, Figure 5: speedup and accuracy at each superposition factor.

What this shows: theoretical speedup against accuracy with 95% intervals, a line for each
setting of the other options, at superposition factors g (adjacent documents joined into g paths). g
= 1 is naive RAG, whose run is used where superposition was not run with one path; one document a
path is drawn at the mean number of documents. A panel has the speedups of the paper's models as
predicted from their shapes, without path caching: with it, every factor would have that of Table 1.

Limits: the paper only draws its numbers. A speedup is that of docs/cost-accounting.md, not of a
clock.
"""

from dataclasses import replace

from ragauge.config.reads import Reads, every
from ragauge.report.figures import Axis, Figure, Lines, Panel, Point, lines
from ragauge.results.cells import Cells, Table, frame, noted, row_cells
from ragauge.results.measures import quality, standard
from ragauge.results.publications import predicted
from ragauge.results.runs import Group, Runs, Variant, defaults

KEYS = ("model", "dataset", "series", "variant", "factor")

READS = Reads(answers=(every("naive", "superposition"),), datasets="short", predictions=True)


def table(runs: Runs) -> Table:
    cells = runs.by_group(_group, READS.datasets)
    predictions = predicted(
        runs, "superposition_figure_5", ("model", "series", "factor"), "nq_open"
    )
    return frame(KEYS, [*cells, *(c for c in predictions if c.quantity == "theoretical_speedup")])


SPEEDUP = Axis("theoretical speedup", "log")
plot = Lines(
    "theoretical_speedup",
    SPEEDUP,
    "accuracy",
    Axis("accuracy (F1 where multi-hop)", from_zero=True),
    line=lambda row: row.keys["series"],
)


def draw(table: Table) -> Figure:
    points = [
        replace(p, order=p.row.number("factor"), label=f"g={p.row.keys['factor']}")
        for p in plot.points(table)
    ]
    panels = plot.panels(points)
    shapes = [row for row in lines.rows(table) if not row.keys["variant"]]
    factors = [
        Point("", row.keys["model"], row.number(plot.x), row.number("factor"), row=row)
        for row in shapes
    ]
    if shapes:
        y = Axis("superposition factor g", "base2")
        panels.append(Panel(shapes[0].keys["series"], SPEEDUP, y, factors))
    return lines.draw(panels)


def _group(group: Group) -> Cells:
    """Every series in which a factor was set, with the naive run at its left end."""
    series: dict[str, list[Variant]] = {}
    for variant in group.find("superposition"):
        series.setdefault(_series(variant), []).append(variant)
    base = group.naive
    for name, variants in series.items():
        if any(v.param("factor") for v in variants):
            by_factor = {_paths(v): v for v in variants}
            if base and 1 not in by_factor:
                yield from _cells(name, base, 1, "g = 1 is naive RAG")
            for factor, variant in sorted(by_factor.items()):
                yield from _cells(name, variant, factor)


def _series(variant: Variant) -> str:
    usual = defaults(variant.method)
    same = ("top_k", "factor", "path_pruning")
    others = {k: v for k, v in variant.options.items() if k not in same and v != usual.get(k)}
    paths = f"k={variant.param('top_k')}" if variant.prunes else "all paths kept"
    return ", ".join([paths, *(f"{k.replace('_', ' ')}={v}" for k, v in others.items())])


def _paths(variant: Variant) -> float:
    """The number of paths: the factor, or the mean number of documents where each has its own."""
    counts = [record.documents for record in variant.records.values()] or [1]
    mean = sum(counts) / len(counts)
    return min(variant.param("factor") or mean, mean)


def _cells(name: str, variant: Variant, factor: float, note: str = "") -> Cells:
    keys = variant.keys | {"series": name, "factor": f"{factor:g}"}
    measures = {
        "accuracy": noted(quality(variant), note),
        "theoretical_speedup": standard(variant)["theoretical_speedup"],
    }
    return row_cells(keys, measures)
