"""Numbers of the first screen: measured ones of every variant, and resampled means that
pair them.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from ragauge.metrics.base import limits as metric_limits
from ragauge.report.figures.style import method_style
from ragauge.results import timing
from ragauge.results.cells import Measure
from ragauge.results.costs import cost, costs, offline_cycles, online_cycles, weight_bytes
from ragauge.results.measures import (
    FLOOR,
    REFERENCES,
    difference,
    metric_name,
    on_shared,
    quality,
    scored,
)
from ragauge.results.reuse import servable
from ragauge.results.runs import Runs, Variant
from ragauge.results.stats import (
    detectable_difference,
    doubts,
    hypervolume,
    paired_test,
    resampled_means,
)
from ragauge.results.times import LatencyTimes

# of the questions, embedded in the page: it recomputes standings for any reuse of documents
RESAMPLES = 1000
MIN_QUESTIONS = 4  # below which nothing is recommended
ENOUGH_QUESTIONS = 10  # below which a recommendation is provisional
WITHOUT_DOCUMENTS = "closed_book"  # the method that a recommended one must be better than
# what is waited for -> (name, unit); in the order of preference
COSTS = {
    "total_s": ("whole answer, latency protocol", "s"),
    "first_token_s": ("first token, latency protocol", "s"),
    "compute_cycles": ("compute cycles, online MACs", "MAC"),
    "answering_total_s": ("whole answer, answering run", "s"),
    "answering_first_token_s": ("first token, answering run", "s"),
}
PROTOCOL = ("total_s", "first_token_s")
ANSWERING = "answering_"

Numbers = dict[str, Any]


def groups(runs: Runs) -> list[Numbers]:
    """One entry a (data set, model): its variants with their numbers, and what they can be compared
    by.
    """
    return [_group(runs, dataset, model) for dataset, model in runs.groups()]


def _group(runs: Runs, dataset: str, model: str) -> Numbers:
    variants = runs.of(dataset, model)
    timed, untimed = _timed(runs, dataset, model)
    rows = [_variant(runs, variant, timed) for variant in variants]
    shared = _pair(runs, variants, rows)
    kinds = [kind for kind in COSTS if any(row["costs"].get(kind) for row in rows)]
    limit = runs.config.target_first_token_s
    first_token = (
        next((kind for kind in kinds if kind.endswith("first_token_s")), None) if limit else None
    )
    # a study's documents come from a corpus: none was read for the question that chooses it
    reused_by = (
        1 if any(v.specification and v.specification.dataset == "study" for v in variants) else None
    )
    return {
        "dataset": dataset,
        "model": model,
        "metric": metric_name(runs, dataset),
        "costs": kinds,
        "cost": first_token or next(iter(kinds), None),
        "targets": {kind: _middle(rows, kind, reused_by) for kind in kinds}
        | ({first_token: limit} if limit else {}),
        "untimed": untimed,
        "protocol": timing.described(timed) if timed else None,
        "paired": shared,
        "withheld": _withheld(runs, variants, model, shared),
        "provisional": provisional(shared),
        "reused_by": reused_by,
        "stack": next((v.stack for v in variants if v.stack), None),
        "cached": _cached(variants),
        "families": {kind: _families(runs, variants, rows, kind) for kind in kinds},
        "variants": rows,
    }


def _cached(variants: Sequence[Variant]) -> str | None:
    """How much of its prompts a server's cache had, for the variants with the least and the most;
    None: not known.
    """
    parts = {variant.name: variant.cached_shares for variant in variants}
    shares = [(statistics.mean(known), name) for name, known in parts.items() if known]
    if not shares:
        return None
    return " to ".join(f"{share:.0%} ({name})" for share, name in (min(shares), max(shares)))


def recommended(group: Numbers) -> Numbers | None:
    """The variant that the first screen of a page recommends before its reader sets anything; None:
    none. The best on the questions that all share of those within the target; of equals the
    cheapest.
    """
    kind = group["cost"]
    target = group["targets"].get(kind)
    waits = {
        row["name"]: wait(row, kind, group["reused_by"]) if kind else None
        for row in group["variants"]
    }

    def qualifies(row: Numbers) -> bool:
        taken = waits[row["name"]]
        in_time = target is None or (taken is not None and taken <= target)
        return not row["reference"] and row["shared_mean"] is not None and in_time

    able = [row for row in group["variants"] if qualifies(row)] if not group["withheld"] else []
    return min(
        able, key=lambda row: (-row["shared_mean"], _or_inf(waits[row["name"]])), default=None
    )


def wait(row: Numbers, kind: str, reused_by: int | None) -> float | None:
    """Return a user's wait in the cost's unit; None where it was not measured.

    Of the `reused_by` questions that come on the same documents one waits until they are read;
    None: they were read before. Preparation that depends on the question is repeated for each.
    """
    entry = row["costs"].get(kind)
    if not entry:
        return None
    part = 1 / reused_by if reused_by else 0.0
    if not row["stored"] and entry["offline"]:
        part = 1.0
    if part and entry["offline"] is None:
        return None
    return float(entry["online"] + part * (entry["offline"] or 0.0))


def _middle(rows: Sequence[Numbers], kind: str, reused_by: int | None) -> float | None:
    """The median wait of the variants, to two digits: the target that the page starts with if none
    is configured.
    """
    waits = [taken for row in rows if (taken := wait(row, kind, reused_by)) is not None]
    return float(f"{statistics.median(waits):.2g}") if waits else None


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value


def _withheld(runs: Runs, variants: Sequence[Variant], model: str, shared: int) -> str | None:
    """Why no variant is recommended, whatever the limits are: too few questions, a model that is
    too weak even with the gold documents, or no variant better than answers without documents; None
    where one may be.
    """
    if shared < MIN_QUESTIONS:
        return f"the variants share {shared} questions; at least {MIN_QUESTIONS} are needed"
    known = [v for v in variants if v.method in REFERENCES] or list(variants)
    best = max((m for v in known if (m := quality(runs, v).value) is not None), default=0.0)
    if best < FLOOR:
        how = (
            "even with the gold documents alone"
            if known[0].method in REFERENCES
            else "whatever the method"
        )
        right = f"it is right on {best:.1%} of the questions, less than {FLOOR:.0%}, {how}"
        return f"the model {model} is too weak to compare methods: {right}"
    return _too_few(runs, variants)


def provisional(shared: int) -> str | None:
    """Say which differences so few questions cannot show; None if they are enough."""
    if shared >= ENOUGH_QUESTIONS:
        return None
    more = ", ".join(
        f"{n} would show {detectable_difference(n):.2f}" for n in (ENOUGH_QUESTIONS, 50, 200)
    )
    return f"{shared} questions show differences of about {detectable_difference(shared):.2f} or more; {more}"


def _too_few(runs: Runs, variants: Sequence[Variant]) -> str | None:
    """Why the questions are too few: the interval of every variant's lead over answers without
    documents holds 0.
    """
    without = next((v for v in variants if v.method == WITHOUT_DOCUMENTS), None)
    others = [v for v in variants if v.method not in (WITHOUT_DOCUMENTS, *REFERENCES)]
    leads = {v.name: difference(runs, v, without) for v in others} if without else {}
    known = {
        name: lead
        for name, lead in leads.items()
        if lead.value is not None and lead.low is not None
    }
    if without is None or not known or any((lead.low or 0.0) > 0 for lead in known.values()):
        return None
    name, lead = max(known.items(), key=lambda one: one[1].value or 0.0)
    few = f"{lead.n} questions are too few: no variant differs from answers without documents ({without.name})"
    return f"{few}. The best, {name}, is {lead.value:+.2f} from it, 95% interval [{lead.low:.2f}, {lead.high:.2f}]"


def _timed(runs: Runs, dataset: str, model: str) -> tuple[LatencyTimes | None, str | None]:
    """The latency file of the model on prompts of the data set, and in words why there is none."""
    if latency := timing.find(runs, dataset, model):
        if latency.refused:
            return None, f"the timing of {model} was refused: {latency.refused}"
        return latency, None
    if any(latency.model == model for latency in runs.latencies):
        return None, f"{model} was timed on prompts of another data set"
    if stack := next((v.stack for v in runs.of(dataset, model) if v.stack), None):
        return (
            None,
            f"{model} runs on another stack ({stack}), which the latency protocol does not time",
        )
    return None, f"there is no latency file of {model}"


def _variant(runs: Runs, variant: Variant, timed: LatencyTimes | None) -> Numbers:
    measured = quality(runs, variant)
    cached = [record.cache_bytes for record in variant.answered.values() if record.cache_bytes]
    return {
        "name": variant.name,
        "method": variant.method,
        "family": variant.row,
        **dict(zip(("label", "colour", "marker"), method_style(variant.row), strict=True)),
        "params": {key: value for key, value in variant.options.items() if value is not None},
        "reference": variant.method in REFERENCES,
        "stored": servable(variant),
        "questions": len(variant.records),
        "failed": len(variant.failed),
        "quality": {
            "mean": measured.value,
            "low": measured.low,
            "high": measured.high,
            "n": measured.n,
        },
        "costs": _costs(runs, variant, timed),
        "kv_bytes": max(cached, default=None),
        "weight_bytes": weight_bytes(variant),
        "peak_memory_bytes": variant.meta.get("peak_memory_bytes"),
    }


def _costs(runs: Runs, variant: Variant, timed: LatencyTimes | None) -> dict[str, Numbers | None]:
    """Each cost that was measured: seconds or operations online (`online`, `low`, `high`), and
    offline.
    """
    prepared_s = variant.values("offline_s")
    offline_s = statistics.median(prepared_s) if prepared_s else None
    offline = list(costs(variant, offline_cycles).values())
    numbers = {
        "compute_cycles": _cost(
            cost(runs, variant, online_cycles), sum(offline) / max(1, len(offline))
        )
    }
    for kind in PROTOCOL:
        clocked = timed.seconds(variant.name, kind) if timed else []
        answering = variant.values("online_s" if kind == "total_s" else kind)
        numbers[kind] = _cost(timing.quartiles(clocked), offline_s)
        numbers[ANSWERING + kind] = _cost(timing.quartiles(answering), offline_s)
    return numbers


def _cost(online: Measure, offline: float | None) -> Numbers | None:
    if online.value is None:
        return None
    return {
        "online": online.value,
        "low": online.low,
        "high": online.high,
        "n": online.n,
        "offline": offline,
    }


def _pair(runs: Runs, variants: Sequence[Variant], rows: Sequence[Numbers]) -> int:
    """Give each row its means over the same resampled questions, and its paired differences from
    the other rows; returns the number of questions.
    """
    values = on_shared({variant.name: scored(runs, variant) for variant in variants})
    means = resampled_means([*values.values()], runs.seed, RESAMPLES) if values else ()
    resampled = dict(zip(values, means, strict=True))
    pairs = _paired(runs, variants, values)
    for row in rows:
        own = values.get(row["name"])
        row["resampled"] = (
            [round(float(mean), 5) for mean in resampled[row["name"]]] if own else None
        )
        row["shared_mean"] = sum(own) / len(own) if own else None
        row["pairs"] = pairs.get(row["name"])
    return len(next(iter(values.values()), ()))


def _paired(
    runs: Runs, variants: Sequence[Variant], values: Mapping[str, Sequence[float]]
) -> dict[str, Numbers]:
    """By name and other name the interval of a - b (`low`, `high`), and the `doubt` of `doubts`."""
    pairs: dict[str, Numbers] = {name: {} for name in values}
    limits = metric_limits(runs.metrics(variants[0].dataset)[0])
    for a, b in combinations(values, 2):
        test = paired_test(values[a], values[b], runs.seed, limits=limits)
        ends = [test["low"], test["high"]]
        doubt = float(doubts([values[a], values[b]])[0, 1])
        pairs[a][b] = {"low": ends[0], "high": ends[1], "doubt": doubt}
        ends = [end if end is None else -end for end in reversed(ends)]
        pairs[b][a] = {"low": ends[0], "high": ends[1], "doubt": doubt}
    return pairs


def _families(
    runs: Runs, variants: Sequence[Variant], rows: Sequence[Numbers], kind: str
) -> list[Numbers]:
    """The hypervolume of each method's variants between the least and the greatest online cost of
    all, best first.
    """
    prices = {
        row["name"]: _price(row, kind) for row in rows if row["resampled"] and not row["reference"]
    }
    prices = {name: price for name, price in prices.items() if price}
    if len(set(prices.values())) < 2:
        return []
    limits = (min(prices.values()), max(prices.values()))
    shared = on_shared({v.name: scored(runs, v) for v in variants if v.name in prices})
    by_label = defaultdict[str, list[str]](list)
    for row in rows:
        if row["name"] in prices:
            by_label[row["label"]].append(row["name"])
    families = []
    for family, names in by_label.items():
        costs_of = [prices[name] for name in names]
        values = [shared[name] for name in names]
        volume, low, high = hypervolume(costs_of, values, limits, runs.seed, n=RESAMPLES)
        families.append(
            {"family": family, "variants": names, "volume": volume, "low": low, "high": high}
        )
    return sorted(families, key=lambda entry: -entry["volume"])


def _price(row: Numbers, kind: str) -> float:
    """The online cost of a variant; 0 if there is no positive one."""
    entry = row["costs"].get(kind)
    return float(entry["online"]) if entry and entry["online"] > 0 else 0.0
