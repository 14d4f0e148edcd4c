"""Ours: methods that reuse documents' keys and values, beside what their papers claim.

Shows, for each variant that reads documents before the question, or compresses them, and for the plain prompt: the
primary metric and its difference to the plain prompt on the same questions, with a paired test; the median seconds to
the first token and how many times sooner than the plain prompt's that is; seconds of each further token; what was
prepared before the question, in seconds; the keys and values held at most; and the share of the documents' tokens that
was read again with the question, counted over the layers that read them. A paper's number is its largest speedup of
the first token over reading everything: of larger models, on GPUs, with long documents that were all cached. EPIC and
APE state none (EPIC's factor of 8 is over CacheBlend, APE's of 4.5 is of whole answers).

Does not show: who wins where the reader is at the floor: beside a plain prompt that is hardly ever right no difference
tells anything, and the note says so. Times are the answering run's, not the latency protocol's. A compressor that
knows the question cannot serve a store: compare it with its like alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ragauge.rendering import panels
from ragauge.rendering.style import Figure
from ragauge.results import timing
from ragauge.results.cells import Cell, Measure, Source, Table, frame, mean, merge, noted
from ragauge.results.measures import difference, naive, quality, scored
from ragauge.results.publications import published
from ragauge.results.reads import ANY, Reads, defaults, every
from ragauge.results.runs import Runs, Variant

KEYS = ("model", "dataset", "method", "variant")
STORED = ("parallel_windows", "ape", "naive_reuse", "kv_link", "epic", "cache_blend", "prophet_kv", "parallel_experts")
METHODS = ("naive", "prompt_cache", *STORED, "compressed", "long_llmlingua", "prefix_tree")
FLOOR = 0.1  # quality of the plain prompt below which differences tell nothing

READS = Reads(answers=(every(*METHODS), defaults("superposition", top_k=ANY)), datasets="short")


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
    shown = [v for v in runs.of(dataset, model) if v.method in METHODS or v.is_superposition()]
    return [Cell(v.keys, name, m) for v in shown for name, m in _measures(runs, v, base).items()]


def _measures(runs: Runs, variant: Variant, base: Variant | None) -> dict[str, Measure]:
    first = _of(variant, _first_token)
    found = {
        "quality": noted(quality(runs, variant), _floor(runs, base)),
        "first_token_s": first,
        "token_s": _of(variant, _token),
        "offline_s": _of(variant, lambda r: r.get("offline_s")),
        "cache_bytes": _of(variant, lambda r: r.get("cache_bytes")),
        "read_again": mean(list(_read_again(variant).values()), runs.seed, nothing="no traces"),
    }
    if base is None or base is variant:
        return found
    plain = _of(base, _first_token)
    known = bool(plain.value and first.value)
    found["first_token_speedup"] = (
        Measure(float(plain.value or 0) / float(first.value or 1), n=first.n, source=Source.LATENCY)
        if known
        else Measure(reason="no clock")
    )
    return found | {"difference": difference(runs, variant, base)}


def _of(variant: Variant, value: Callable[[Any], float | None]) -> Measure:
    """The median of a number of each record, of those that have it."""
    values = [value(r) for k, r in variant.records.items() if k not in variant.failed]
    known = [v for v in values if v is not None and v == v]
    return timing.quartiles(known, "of the answering run") if known else Measure(reason="not recorded")


def _first_token(record: Any) -> float | None:
    return record.get("first_token_s") or None


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


def _floor(runs: Runs, base: Variant | None) -> str:
    scores = list(scored(runs, base).values()) if base else []
    low = bool(scores) and sum(scores) / len(scores) < FLOOR
    return f"the plain prompt scores below {FLOOR:g}: differences tell nothing here" if low else ""
