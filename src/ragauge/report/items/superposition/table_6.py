"""Superposition Prompting, Table 6: path pruning, path caching and path parallelization, each on and off.

What this shows: accuracy, compute cycles and theoretical speedup of all eight combinations at the
smallest top_k run. Caching and parallelization do not change answers (a test holds this), so a
combination that was not run takes its accuracy from the run with the same pruning and its cycles
from that run's trace: without caching, offline work counts; without parallelization, rows add up.
The note says so. Cycles and speedups of the paper's models are predicted from their shapes;
`critical_path_speedup` is that of docs/cost-accounting.md.

Limits: no times, and not the memory of batching.
"""

from collections.abc import Sequence
from functools import partial
from itertools import product

from ragauge.config.reads import ANY, SMALLEST, Reads, defaults, every
from ragauge.report.figures import Axis, Dots
from ragauge.report.items.superposition import _tables
from ragauge.results.cells import Cells, Measure, Measures, Table, noted, row_cells
from ragauge.results.costs import cost, critical_path_cycles, paper_cycles, speedup
from ragauge.results.measures import quality
from ragauge.results.publications import CYCLES
from ragauge.results.runs import Group, Runs, Variant

SWITCHES = ("pruning", "caching", "parallelism")
KEYS = ("model", "dataset", *SWITCHES, "variant")
QUANTITIES = ("accuracy", "compute_cycles", "theoretical_speedup")
Switches = tuple[bool, bool, bool]

LOSSLESS = {"path_caching": ANY, "path_parallelization": ANY}
ANSWERS = (
    every("naive"),
    defaults("superposition", top_k=SMALLEST, **LOSSLESS),
    defaults("superposition", top_k=ANY, path_pruning=False, **LOSSLESS),
    defaults("superposition", top_k=ANY, path_pruning=(True, False), saliency="none", **LOSSLESS),
)
READS = Reads(ANSWERS, datasets="single_hop", predictions=True)


def table(runs: Runs) -> Table:
    measured = runs.by_group(_group, READS.datasets)
    return _tables.with_published(
        runs, measured, "superposition_table_6", KEYS, SWITCHES, QUANTITIES
    )


draw = Dots(
    {"accuracy": Axis("accuracy"), "theoretical_speedup": Axis("theoretical speedup", "log")},
    look=lambda line: "pruned" if line["pruning"] else "unpruned",
    name=lambda line: " + ".join(name for name in SWITCHES if line[name]) or "none of the three",
)


def _group(group: Group) -> Cells:
    variants = [v for v in group.find("superposition") if _switches(v) is not None]
    smallest = min((v.param("top_k") for v in variants if v.prunes), default=None)
    usable = [v for v in variants if not v.prunes or v.param("top_k") == smallest]
    for pruning, caching, parallel in product((False, True), repeat=3):
        yield from _cells(group, (pruning, caching, parallel), usable)


def _switches(variant: Variant) -> Switches | None:
    """The variant's switches; None where another option is not at its default. Without saliency
    nothing is pruned.
    """
    options = {
        n: variant.param(n) for n in ("path_pruning", "path_caching", "path_parallelization")
    }
    saliency = {"saliency": "none"} if variant.param("saliency") == "none" else {}
    if not variant.is_superposition(**options, **saliency):
        return None
    return variant.prunes, bool(options["path_caching"]), bool(options["path_parallelization"])


def _cells(group: Group, wanted: Switches, usable: Sequence[Variant]) -> Cells:
    switches = dict(zip(SWITCHES, wanted, strict=True))
    exact = next((v for v in usable if _switches(v) == wanted), None)
    alike = [v for v in usable if v.prunes == wanted[0]]
    # with most switches on, whose trace tells which calls could be offline and which rows parallel
    source = exact or max(alike, key=lambda v: sum(_switches(v) or ()), default=None)
    if source is None:
        word = "with" if wanted[0] else "without"
        reason = Measure(reason=f"not run: no superposition {word} path pruning")
        return row_cells(group.keys | switches, dict.fromkeys(QUANTITIES, reason))
    return _tables.cells(source, _measures(source, wanted, exact is not None), **switches)


def _measures(source: Variant, wanted: Switches, exact: bool) -> Measures:
    _, caching, parallel = wanted
    fold = partial(paper_cycles, caching=caching, parallel=parallel)
    critical_path = partial(critical_path_cycles, caching=caching, parallel=parallel)
    switched = _switches(source) or wanted
    if (caching and not switched[1]) or (parallel and not switched[2]):
        costs = dict.fromkeys(CYCLES, Measure(reason=f"not in the trace of {source.name}"))
    else:
        costs = {
            "compute_cycles": cost(source, fold),
            "theoretical_speedup": speedup(source, fold),
            "critical_path_speedup": speedup(source, critical_path, critical_path_cycles),
        }
    measures = {"accuracy": quality(source), **costs}
    if exact:
        return measures
    lossless = f"accuracy of {source.name}: caching and parallelization do not change answers"
    origin = f"cycles folded from the trace of {source.name}"
    return {q: noted(m, lossless if q == "accuracy" else origin) for q, m in measures.items()}
