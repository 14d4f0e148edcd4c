"""Ours: methods that reuse documents' keys and values, beside what their papers claim.

Shows, for each variant that reads documents before the question, or compresses them, and for the plain prompt: the
primary metric and its difference to the plain prompt on the same questions, with a paired test; the median seconds to
the first token and how many times sooner than the plain prompt's that is; seconds of each further token; what was
prepared before the question, in seconds; the keys and values held at most; and the share of the documents' tokens that
was read again with the question, counted over the layers that read them. `stored` says whether a store can serve what
is prepared: not where a compressor knows the question. A paper's number is its largest speedup of
the first token over reading everything: of larger models, on GPUs, with long documents that were all cached. EPIC and
APE state none (EPIC's factor of 8 is over CacheBlend, APE's of 4.5 is of whole answers).

Does not show: who wins where the reader is at the floor: beside a plain prompt that is hardly ever right no difference
tells anything, and the note says so. Times are the answering run's, not the latency protocol's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ragauge.items.reuse._family import answers, belongs, first_tokens, floor, sooner
from ragauge.rendering import panels
from ragauge.rendering.style import Figure
from ragauge.results import timing
from ragauge.results.cells import Cell, Measure, Table, frame, mean, merge, noted
from ragauge.results.measures import difference, naive, quality
from ragauge.results.publications import published
from ragauge.results.reads import Reads
from ragauge.results.reuse import servable
from ragauge.results.runs import Runs, Variant

KEYS = ("model", "dataset", "method", "variant", "stored")

OWN = "of the answering run"

READS = Reads(answers=answers())


def table(runs: Runs) -> Table:
    """One line for each (model, data set, variant, quantity); then the papers' claims."""
    measured = [cell for group in runs.groups(READS.datasets) for cell in _group(runs, *group)]
    claims = published("reuse_table", ("model", "method"), {"first_token_speedup": "first_token_speedup"}, "")
    return frame(KEYS, merge(measured, claims, ("method",)))


def draw(table: Table) -> Figure:
    """Quality, and how much sooner the first token is known, as points with intervals."""
    axes = {
        "quality": panels.Axis("quality"),
        "first_token_speedup": panels.Axis("first token, times sooner", log=True),
    }
    names = [
        str(v).replace("_", " ") or panels.method_label(m)
        for v, m in zip(table["variant"], table["method"], strict=True)
    ]
    return panels.dots(table, table["method"], axes, names)


def _group(runs: Runs, dataset: str, model: str) -> list[Cell]:
    base = naive(runs, dataset, model)
    shown = [v for v in runs.of(dataset, model) if belongs(v)]
    keys = {v.name: v.keys | {"stored": "yes" if servable(v) else "no"} for v in shown}
    return [Cell(keys[v.name], name, m) for v in shown for name, m in _measures(runs, v, base).items()]


def _measures(runs: Runs, variant: Variant, base: Variant | None) -> dict[str, Measure]:
    told = floor(runs, base)
    first = first_tokens(variant)
    found = {
        "quality": noted(quality(runs, variant), told),
        "first_token_s": timing.quartiles(first, OWN) if first else Measure(reason="not recorded"),
        "token_s": _of(variant, _token),
        "offline_s": _of(variant, lambda r: r.get("offline_s")),
        "cache_bytes": _of(variant, lambda r: r.get("cache_bytes")),
        "read_again": mean(list(_read_again(variant).values()), runs.seed, nothing="no traces"),
    }
    if base is None or base is variant:
        return found
    compared = noted(difference(runs, variant, base), told)
    return found | {"first_token_speedup": sooner(runs, base, variant), "difference": compared}


def _of(variant: Variant, value: Callable[[Any], float | None]) -> Measure:
    """The median of a number of each record, of those that have it."""
    values = [value(r) for k, r in variant.records.items() if k not in variant.failed]
    known = [v for v in values if v is not None and v == v]
    return timing.quartiles(known, OWN) if known else Measure(reason="not recorded")


def _token(record: Any) -> float | None:
    """Seconds of each generated token after the first, of the calls that generate."""
    decoding = [c for c in record.get("trace") or () if c["stage"] == "decode" and c.get("seconds") is not None]
    steps = sum(c.get("steps", 1) for c in decoding)
    return sum(c["seconds"] for c in decoding) / steps if steps else None


def _read_again(variant: Variant) -> dict[str, float]:
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
