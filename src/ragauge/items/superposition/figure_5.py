"""Superposition Prompting, Figure 5: the superposition factor against accuracy.

What this shows: the accuracy at each superposition factor g (adjacent documents joined into g paths) with bootstrap 95%
intervals, a line for each setting of the other options. g = 1 is naive RAG, whose run is used where superposition was
not run with one path; one document a path is drawn at the mean number of documents.

Limits: the paper only draws its numbers. Cost, which falls as g grows, is left out.
"""

from ragauge.config.reads import Reads, every
from ragauge.rendering import Axis, Lines
from ragauge.results import Cell, Runs, Table, Variant, find, frame, naive, noted, quality
from ragauge.results.runs import defaults

KEYS = ("model", "dataset", "series", "variant", "factor")
LOSSLESS = ("path_caching", "path_parallelization")

READS = Reads(answers=(every("naive", "superposition"),), datasets="short")


def table(runs: Runs) -> Table:
    """One line for each (model, data set, series, factor)."""
    return frame(KEYS, [c for group in runs.groups(READS.datasets) for c in _group(runs, *group)])


FACTOR, ACCURACY = Axis("superposition factor g", "base2"), Axis("accuracy (F1 where multi-hop)", from_zero=True)
draw = Lines("factor", FACTOR, "accuracy", ACCURACY, line=lambda row: str(row.keys["series"]), share=True)


def _group(runs: Runs, dataset: str, model: str) -> list[Cell]:
    """Every series in which a factor was set, with the naive run at its left end."""
    series: dict[str, list[Variant]] = {}
    for variant in find(runs, dataset, model, "superposition"):
        series.setdefault(_series(variant), []).append(variant)
    cells, base = [], naive(runs, dataset, model)
    for name, variants in series.items():
        by_factor = {_paths(v): v for v in variants} if any(v.param("factor") for v in variants) else {}
        if base is not None and by_factor and 1 not in by_factor:
            cells.append(_cell(runs, name, base, 1, "g = 1 is naive RAG"))
        cells += [_cell(runs, name, variant, factor) for factor, variant in sorted(by_factor.items())]
    return cells


def _series(variant: Variant) -> str:
    """The options but the factor (and those that change no answer), in words."""
    usual, same = defaults(variant.method), ("top_k", "factor", "path_pruning", *LOSSLESS)
    others = {k: v for k, v in variant.options.items() if k not in same and v != usual.get(k)}
    paths = f"k={variant.param('top_k')}" if variant.prunes else "all paths kept"
    return ", ".join([paths, *(f"{k.replace('_', ' ')}={v}" for k, v in others.items())])


def _paths(variant: Variant) -> float:
    """The number of paths: the factor, or the mean number of documents where each has its own."""
    counts = [record["documents"] for record in variant.records.values()] or [1]
    mean = sum(counts) / len(counts)
    return min(variant.param("factor") or mean, mean)


def _cell(runs: Runs, name: str, variant: Variant, factor: float, note: str = "") -> Cell:
    keys = variant.keys | {"series": name, "factor": f"{factor:g}"}
    return Cell(keys, "accuracy", noted(quality(runs, variant), note))
