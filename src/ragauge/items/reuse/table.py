"""Methods that reuse documents' keys and values, compared with the claims of their papers.

What this shows: for each variant that reads documents before the question or compresses them, and for the plain prompt,
the primary metric and its difference to the plain prompt on the same questions, with a paired test; the median seconds
to the first token and the speedup over the plain prompt; seconds of each further token and of the work before the
question; the largest size of keys and values; and the share of the documents' tokens that was read again with the
question, counted over layers. `stored` says whether a store can serve what is prepared, which is not so where a
compressor knows the question. A paper's number is its largest speedup of the first token over reading everything, of
larger models on GPUs with long documents that were all cached. EPIC and APE state none (EPIC's factor of 8 is over
CacheBlend, APE's of 4.5 is of complete answers).

Limits: differences mean nothing where the plain prompt is hardly ever right, and the note says so. Seconds before the
question are the answering run's; the others the latency protocol's where it timed all these variants on the data set.
"""

from __future__ import annotations

from collections.abc import Sequence

from ragauge.config.reads import Reads
from ragauge.items.reuse._family import OWN, VariantSeconds, answers, belongs, floor
from ragauge.rendering import Axis, Dots, style
from ragauge.results import Cell, Measure, Runs, Table, Variant, frame, mean, merge, noted, published, timing
from ragauge.results.measures import difference, naive, quality
from ragauge.results.reuse import servable

KEYS = ("model", "dataset", "method", "variant", "stored")

READS = Reads(answers=answers(), latency="any")


def table(runs: Runs) -> Table:
    """One line for each (model, data set, variant, quantity); then the papers' claims."""
    measured = [cell for group in runs.groups(READS.datasets) for cell in _group(runs, *group)]
    claims = published("reuse_table", ("model", "method"), {"first_token_speedup": "first_token_speedup"}, "")
    return frame(KEYS, merge(measured, claims, ("method",)))


draw = Dots(
    {"quality": Axis("quality"), "first_token_speedup": Axis("speedup to first token", "log")},
    name=lambda line: str(line["variant"]).replace("_", " ") or style.method_label(line["method"]),
)


def _group(runs: Runs, dataset: str, model: str) -> list[Cell]:
    base = naive(runs, dataset, model)
    shown = [v for v in runs.of(dataset, model) if belongs(v)]
    clock = VariantSeconds.of(runs, dataset, model, shown)
    keys = {v.name: v.keys | {"stored": "yes" if servable(v) else "no"} for v in shown}
    return [Cell(keys[v.name], name, m) for v in shown for name, m in _measures(runs, v, base, clock).items()]


def _measures(runs: Runs, variant: Variant, base: Variant | None, clock: VariantSeconds) -> dict[str, Measure]:
    weak = floor(runs, base)
    found = {
        "quality": noted(quality(runs, variant), weak),
        "first_token_s": _middle(clock.first_tokens(variant), clock.note),
        "token_s": _middle(clock.tokens(variant), clock.note),
        "offline_s": _recorded(variant, "offline_s"),
        "cache_bytes": _recorded(variant, "cache_bytes"),
        "read_again": mean(list(read_again(variant).values()), runs.seed, nothing="no traces"),
    }
    if base is None or base is variant:
        return found
    compared = noted(difference(runs, variant, base), weak)
    return found | {"first_token_speedup": clock.sooner(runs, base, variant), "difference": compared}


def _recorded(variant: Variant, field: str) -> Measure:
    """The median of a number of each record, of those that have it."""
    values = [r.get(field) for k, r in variant.records.items() if k not in variant.failed]
    return _middle([v for v in values if v is not None and v == v], OWN)


def _middle(values: Sequence[float], note: str) -> Measure:
    return timing.quartiles(values, note) if values else Measure(reason="not recorded")


def read_again(variant: Variant) -> dict[str, float]:
    """The share of each question's document tokens that was written again over its stored self, by layers."""
    layers = variant.shape.layers if variant.shape else 1
    found = {}
    for key, trace in variant.traces.items():
        counts = variant.records[key].get("tokens") or {}
        tokens, question = sum(counts.get("documents") or []), counts.get("query", 0) + counts.get("task", 0)
        part = [(sum(c.again), c.layers or (0, layers)) for c in trace if c.again]
        again = sum((n - (question if first else 0)) * (last - first) / layers for n, (first, last) in part)
        if tokens:  # a call that goes on from a layer writes the question again as well
            found[key] = again / tokens
    return found
