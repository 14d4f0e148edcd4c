"""What items on a plane of cost and quality share: who is on the frontier, how surely, and what a user waits for."""

from collections.abc import Sequence

from ragauge.results import CellSource, Measure, Runs, Variant, join, scored, timing
from ragauge.results.measures import REFERENCES
from ragauge.results.stats import frontier_probability

LIKELY = 0.5  # probability of being on the frontier from which a point is drawn in full and named


def metric_name(runs: Runs, dataset: str) -> str:
    """The name of a data set's primary metric, which is the quality."""
    metric = runs.metrics(dataset)[0]
    return {"best_subspan_em": "best EM subspan", "f1": "F1", "em": "EM"}.get(metric, metric.replace("_", " "))


def latencies(runs: Runs, dataset: str, model: str, variants: Sequence[Variant], key: str) -> list[Measure]:
    """Seconds (`total_s` or `first_token_s`) of the protocol for all variants, or of the answering run for all: the two
    are never on one plane."""
    timed = timing.find(runs, dataset, model)
    if timed is None or timed.get("refused"):
        return [answering_latency(v, {"total_s": "online_s"}.get(key, key)) for v in variants]
    note = join(f"latency protocol on prompts of {timed['dataset']}", timing.described(timed))
    return [timing.quartiles(timing.seconds(timed, v.name, key), note, nothing="not timed") for v in variants]


def answering_latency(variant: Variant, field: str) -> Measure:
    """The median of a field of seconds, of the questions that did not fail."""
    seconds = [s for record in variant.answered.values() if (s := record[field]) and s == s]
    note = join("latency of the answering run, not of the latency protocol", (variant.stack and variant.engine) or "")
    if not seconds and any(r.get("batch", 1) > 1 for r in variant.records.values()):
        return Measure(reason="answered side by side, so without a latency")
    return timing.quartiles(seconds, note, CellSource.RECORDS)


def on_frontier(runs: Runs, variants: Sequence[Variant], prices: Sequence[Measure]) -> dict[str, Measure]:
    """The bootstrap probability of each variant that has a price, over the questions that all of those share.

    Prices are held at their measured values, as on the report's first screen. Returns: by the variant's name.
    """
    pairs = zip(variants, prices, strict=True)
    priced = [(v, m) for v, m in pairs if m.value is not None and v.method not in REFERENCES]
    scores = [scored(runs, v) for v, _ in priced]
    shared = [k for k in (scores[0] if scores else {}) if all(k in s for s in scores)]
    if not shared:
        return {}
    price = [m.value or 0.0 for _, m in priced]
    probabilities = frontier_probability(price, [[s[k] for k in shared] for s in scores], seed=runs.seed)
    return {v.name: Measure(float(p), n=len(shared)) for (v, _), p in zip(priced, probabilities, strict=True)}
