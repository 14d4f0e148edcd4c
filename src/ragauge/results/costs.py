"""Costs of answers: compute cycles of a run's traces under several accountings, and speedups over
naive RAG.
"""

import math
from collections.abc import Callable

from ragauge.cost import cycles
from ragauge.cost.roofline import model_bytes
from ragauge.cost.trace import Trace
from ragauge.results.cells import Measure, mean, on_common_keys, with_interval_note
from ragauge.results.runs import Variant
from ragauge.results.stats import mean_ratio_interval

CyclesFold = Callable[[Variant, str], float]  # compute cycles of one question


def paper_cycles(
    variant: Variant, key: str, *, caching: bool = True, parallel: bool = True
) -> float:
    """MACs of one question on the critical path under the paper's rules (docs/cost-accounting.md),
    as its columns have them; `caching` and `parallel` are off where Table 6 has them off. NaN
    without a shape.
    """
    trace = variant.traces[key]
    one_hop = variant.param("iterations") == 1 and not variant.is_multi_hop
    if variant.method == "superposition" and variant.prunes and parallel and one_hop:
        paths = min(int(variant.param("top_k")), len(variant.records[key].kept))
        trace = cycles.with_sequential_queries(trace, max(1, paths))
    return _cycles(variant, trace, "published", caching, parallel)


def critical_path_cycles(
    variant: Variant, key: str, *, caching: bool = True, parallel: bool = True
) -> float:
    """MACs of one question on the critical path to the first token, as it ran here; options as in
    `paper_cycles`.
    """
    return _cycles(
        variant, cycles.without_decoding(variant.traces[key]), "critical_path", caching, parallel
    )


def online_cycles(variant: Variant, key: str, trace: Trace | None = None) -> float:
    """MACs of one question that its user waited for as it ran here, or by another trace, generated
    tokens included. NaN without a shape.
    """
    return _cycles(variant, variant.traces[key] if trace is None else trace)


def weight_bytes(variant: Variant) -> int | None:
    """Bytes of the decoder's parameters in the precision of the run; None where shape or precision
    is not known.
    """
    precision = variant.precision
    if variant.shape is None or precision is None or precision.dtype not in cycles.DTYPE_BYTES:
        return None
    return model_bytes(variant.shape, precision)


def cost(variant: Variant, fold: CyclesFold = paper_cycles) -> Measure:
    """Mean compute cycles of a question under a fold of its trace."""
    return mean(list(costs(variant, fold).values()), variant.runs.seed, nothing=_no_cost(variant))


def costs(variant: Variant, fold: CyclesFold = paper_cycles) -> dict[str, float]:
    given = {key: fold(variant, key) for key in variant.traces}
    return {k: v for k, v in given.items() if math.isfinite(v)}


def speedup(
    variant: Variant,
    fold: CyclesFold = paper_cycles,
    naive_fold: CyclesFold = paper_cycles,
) -> Measure:
    """Naive compute cycles over the variant's: the ratio of their means over the questions that
    both answered.
    """
    naive = variant.group.naive
    if naive is None:
        return Measure(reason="no naive run to compare with")
    own = costs(variant, fold)
    fast, slow = on_common_keys(own, costs(naive, naive_fold))
    if not fast:
        return Measure(reason="no question in common with naive" if own else _no_cost(variant))
    interval = mean_ratio_interval(slow, fast, variant.runs.seed)
    return with_interval_note(Measure(sum(slow) / sum(fast), *interval, len(fast)))


def _cycles(
    variant: Variant,
    trace: Trace,
    accounting: str = "critical_path",
    caching: bool = True,
    parallel: bool = True,
) -> float:
    """MACs of a trace, as it were without caching or without parallel rows where these are off."""
    if variant.shape is None:
        return math.nan
    trace = trace if caching else cycles.uncached(trace)
    trace = trace if parallel else cycles.sequential(trace)
    return float(cycles.compute_cycles(trace, variant.shape, accounting=accounting))


def _no_cost(variant: Variant) -> str:
    if variant.traces and variant.shape is None:
        return f"the shape of {variant.model} is not known, so its cycles cannot be counted"
    return (
        "no traces" if not variant.failed else f"no traces: {next(iter(variant.failed.values()))}"
    )
