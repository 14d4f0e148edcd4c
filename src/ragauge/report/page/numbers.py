"""Numbers of the first screen: measured ones of every variant, and resampled means that
pair them.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

from ragauge.io.jsonl import JsonObject
from ragauge.report.figures.style import ABOUT, method_style
from ragauge.results import states, timing
from ragauge.results.capacity import capacities
from ragauge.results.costs import weight_bytes
from ragauge.results.measures import (
    FLOOR,
    REFERENCES,
    difference,
    metric_limits,
    metric_name,
    on_shared,
    quality,
    scored,
)
from ragauge.results.runs import Group, Runs, Variant
from ragauge.results.stats import (
    detectable_difference,
    doubts,
    paired_test,
    resampled_means,
)
from ragauge.results.times import LatencyTimes, State

# of the questions, embedded in the page: it recomputes standings in any state
RESAMPLES = 1000
MIN_QUESTIONS = 4  # below which nothing is recommended
ENOUGH_QUESTIONS = 50  # below which, of a reference too, a recommendation is provisional
WITHOUT_DOCUMENTS = "closed_book"  # the method that a recommended one must be better than
FULL_PROMPT = "naive"
FIRST_PASSAGE = ("top", 1)  # method and top_k of the retriever's first passage
# what is waited for, in the order of preference
COSTS = {
    "total_s": {"name": "whole answer, latency protocol", "unit": "s"},
    "first_token_s": {"name": "first token, latency protocol", "unit": "s"},
    "answering_total_s": {"name": "whole answer, answering run", "unit": "s"},
    "answering_first_token_s": {"name": "first token, answering run", "unit": "s"},
    "compute_cycles": {"name": "compute cycles, online MACs", "unit": "MAC"},
}
PROTOCOL = ("total_s", "first_token_s")

NOTICED = 1.2  # the least ratio of two waits that people notice (Seow, 2008: the 20% rule)
RULE = (
    "of the best variant and those statistically tied with it, the fastest; of those less than "
    f"{NOTICED - 1:.0%} slower, or slower only by chance, the best, then the one that reads fewest "
    "tokens"
)

Numbers = JsonObject
Waits = Mapping[Any, float]  # by question or trial
Costs = dict[str, dict[State, Numbers]]
# in the page's order
READ: tuple[State, ...] = ("nothing", "documents", "set")


def groups(runs: Runs) -> list[Numbers]:
    """One entry a (data set, model): its variants with their numbers, and what they can be compared
    by.
    """
    return [_group(group) for group in runs.groups()]


def _group(group: Group) -> Numbers:
    variants = group.variants
    untimed = _untimed(group)
    timed = None if untimed else group.timed
    is_study = group.runs.registered(group.dataset) == "study"
    rows = [_variant(variant, timed) for variant in variants]
    _compare_waits(rows)
    shared = _pair(variants, rows)
    kinds = [kind for kind in COSTS if any(row["costs"][kind] for row in rows)]
    state = timed.default_state if timed else "documents"
    limit = group.runs.config.target_first_token_s
    kind = _clock(kinds, rows, is_study, state, "first_token_s" if limit else "")
    return {
        **group.keys,
        "metric": metric_name(group),
        "costs": kinds,
        "cost": kind,
        "targets": {kind: limit} if limit else {},
        "untimed": untimed,
        "protocol": timing.described(timed.at_answer_length) if timed else None,
        "paired": shared,
        "withheld": _withheld(variants, shared)
        or ("no first token was timed, which has a limit" if limit and not kind else None),
        "provisional": _provisional(rows, shared, is_study),
        "state": state,
        "stack": next((v.stack for v in variants if v.stack), None),
        "cached": _cached(variants),
        "variants": rows,
    }


def _cached(variants: Sequence[Variant]) -> str | None:
    """How much of its prompts a server's cache had, for the variants with the least and the most;
    None: not known.
    """
    shares = [(statistics.mean(v.cached_shares), v.name) for v in variants if v.cached_shares]
    if not shares:
        return None
    return " to ".join(f"{share:.0%} ({name})" for share, name in (min(shares), max(shares)))


@dataclass(frozen=True)
class Recommendation:
    """The recommended variant, and the others of the best by quality and those tied with it."""

    row: Numbers
    tied: list[Numbers]


def recommendation(group: Numbers) -> Recommendation | None:
    """What the first screen of a page recommends before its reader sets anything, of the variants
    within the limit, if one is given, by `RULE`; None: nothing.
    """
    kind = group["cost"]
    target = group["targets"].get(kind, math.inf)

    def waited(row: Numbers) -> float:
        return _or_inf(wait(row, kind, group["state"]))

    able = [row for row in group["variants"] if is_candidate(row) and waited(row) <= target]
    if group["withheld"] or not able:
        return None
    able.sort(key=lambda row: (-row["shared_mean"], _or_inf(row["tokens_read"]), row["name"]))
    equals = [row for row in able if row is able[0] or is_tied(able[0], row)]
    slower = _priced(min(equals, key=waited), kind, group["state"]).get("shorter_than", ())
    chosen = next(row for row in equals if row["name"] not in slower)
    return Recommendation(chosen, [row for row in equals if row is not chosen])


def is_candidate(row: Numbers) -> bool:
    """Whether a variant can be recommended: it reads documents that a retriever can find, and
    answered the questions of the others.
    """
    is_compared = row["shared_mean"] is not None
    return is_compared and not row["reference"] and row["method"] != WITHOUT_DOCUMENTS


def is_tied(best: Numbers, row: Numbers) -> bool:
    """Whether the paired interval of a difference from the best includes zero, or is not known."""
    return (best["pairs"][row["name"]]["low"] or 0.0) <= 0


def wait(row: Numbers, kind: str | None, state: State) -> float | None:
    """Return a user's wait in the cost's unit, in a state of what was read before the question; None
    where it was not measured.
    """
    return _priced(row, kind, state).get("online")


def _priced(row: Numbers, kind: str | None, state: State) -> Numbers:
    """The numbers of a cost in a state; empty where it was not measured."""
    return row["costs"].get(kind, {}).get(state, {})


def _clock(
    kinds: Sequence[str], rows: Sequence[Numbers], is_study: bool, state: State, ending: str
) -> str | None:
    """The cost that a page starts with: of those that end so the first, for a study the first that
    is known of every candidate.
    """

    def is_incomplete(kind: str) -> bool:
        return is_study and None in [wait(row, kind, state) for row in rows if is_candidate(row)]

    return min([kind for kind in kinds if kind.endswith(ending)], key=is_incomplete, default=None)


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value


def _withheld(variants: Sequence[Variant], shared: int) -> str | None:
    """Why no variant is recommended, whatever the limits are: too few questions, a model that is
    too weak even with the gold documents, or no variant better than answers without documents; None
    where one may be.
    """
    if shared < MIN_QUESTIONS:
        return f"the variants share {shared} questions; at least {MIN_QUESTIONS} are needed"
    reading = [v for v in variants if v.method != WITHOUT_DOCUMENTS]
    known = [v for v in reading if v.method in REFERENCES] or reading
    if not known:
        return "no variant that reads documents has answered yet"
    best = max((m for v in known if (m := quality(v).value) is not None), default=0.0)
    if best < FLOOR:
        how = (
            "even with the gold documents alone"
            if known[0].method in REFERENCES
            else "whatever the method"
        )
        right = f"it is right on {best:.1%} of the questions, less than {FLOOR:.0%}, {how}"
        return f"the model {known[0].model} is too weak to compare methods: {right}"
    return _too_few(variants)


def few(shared: int) -> str | None:
    """Say which differences so few questions cannot show; None if they are enough."""
    if shared >= ENOUGH_QUESTIONS:
        return None
    more = ", ".join(f"{n} would show {detectable_difference(n):.2f}" for n in (50, 200))
    shown = f"{shared} questions show differences of about {detectable_difference(shared):.2f}"
    return f"{shown} or more; {more}"


def _provisional(rows: Sequence[Numbers], shared: int, is_study: bool) -> str | None:
    """Why a recommendation is provisional: a reference is missing, or the questions are few; None
    if it is not.
    """
    compared = [row for row in rows if row["shared_mean"] is not None]
    methods = {row["method"] for row in compared}
    missing = [name for name in (WITHOUT_DOCUMENTS, FULL_PROMPT) if name not in methods]
    if is_study and not any((r["method"], r["top_k"]) == FIRST_PASSAGE for r in compared):
        missing.append("the retriever's first passage")
    without = f"without the answers of {' and '.join(missing)} to compare with" if missing else None
    return "; ".join(filter(None, [without, few(shared)])) or None


def _too_few(variants: Sequence[Variant]) -> str | None:
    """Why no variant can be recommended, or the questions are too few for one: the interval of every
    variant's lead over answers without documents holds 0.
    """
    without = next((v for v in variants if v.method == WITHOUT_DOCUMENTS), None)
    others = [v for v in variants if v.method not in (WITHOUT_DOCUMENTS, *REFERENCES)]
    if without is None:
        return None
    leads = {v.name: difference(v, without) for v in others}
    known = {name: lead.value or 0.0 for name, lead in leads.items() if lead.low is not None}
    if not known or any((leads[name].low or 0.0) > 0 for name in known):
        return None
    name = max(known, key=known.__getitem__)
    lead = leads[name]
    same = f"no variant is better than answers without documents ({without.name})"
    few = f"{lead.n} questions are too few: " if lead.n < ENOUGH_QUESTIONS else ""
    interval = f"95% interval [{lead.low:.2f}, {lead.high:.2f}]"
    return f"{few}{same}. The best, {name}, is {lead.value:+.2f} from it, {interval}"


def _untimed(group: Group) -> str | None:
    """Why the model has no times on prompts of the data set; None where it has."""
    model = group.model
    if group.timed:
        why = group.timed.refused
        return f"the timing of {model} was refused: {why}" if why else None
    if any(latency.model == model for latency in group.runs.latencies):
        return f"{model} was timed on prompts of another data set"
    return f"there is no latency file of {model}"


def _variant(variant: Variant, timed: LatencyTimes | None) -> Numbers:
    measured = quality(variant)
    cached = [record.cache_bytes for record in variant.answered.values() if record.cache_bytes]
    return {
        "name": variant.name,
        "method": variant.method,
        **dict(zip(("label", "colour", "marker"), method_style(variant.row), strict=True)),
        "top_k": variant.param("top_k"),
        "reference": variant.method in REFERENCES,
        "about": ABOUT.get(variant.method),
        "quality": {
            "mean": measured.value,
            "low": measured.low,
            "high": measured.high,
            "n": measured.n,
        },
        "costs": _costs(variant, timed),
        "capacities": _capacities(variant),
        "preparation": {
            state: {q: measure.value for q, measure in measures.items()}
            for state in READ
            if (measures := states.preparation(variant, timed, state))
        },
        "tokens_read": _tokens_read(variant),
        "kv_bytes": max(cached, default=None),
        "weight_bytes": weight_bytes(variant),
    }


def _costs(variant: Variant, timed: LatencyTimes | None) -> Costs:
    """Each cost that was measured, seconds or operations, in each state: `online`, which a user
    waits for, with its spread.
    """
    numbers: Costs = {kind: {} for kind in COSTS}
    for kind, state in product(COSTS, READ):
        if kind == "compute_cycles":
            measure = states.online_cost(variant, state)
            waits: Waits = {"mean": measure.value or math.nan}
        else:
            waits = _waits(variant, timed, kind, state)
            measure = timing.quartiles([*waits.values()])
        if measure.value is not None:
            numbers[kind][state] = {
                "online": measure.value,
                "low": measure.low,
                "high": measure.high,
                "waits": waits,
            }
    return numbers


def _waits(variant: Variant, timed: LatencyTimes | None, kind: str, state: State) -> Waits:
    """A cost in a state by question or, of the latency protocol, by trial."""
    if kind not in PROTOCOL:
        field = "online_s" if kind == "answering_total_s" else "first_token_s"
        return states.seconds(variant, field, state)
    trials = timed.at_answer_length.trials(variant.name, state) if timed else []
    return {
        (trial.prompt, trial.trial): seconds
        for trial in trials
        if (seconds := getattr(trial, kind)) is not None
    }


def _compare_waits(rows: Sequence[Numbers]) -> None:
    """Replace the waits of each cost by the names of the variants whose waits are longer than they
    by more than chance, or not known.
    """
    for kind, state in product(COSTS, READ):
        entries = {row["name"]: row["costs"][kind].get(state, {}) for row in rows}
        waits = {name: entry.pop("waits", {}) for name, entry in entries.items()}
        for name, own in waits.items():
            if own:
                entries[name]["shorter_than"] = [
                    other for other, slow in waits.items() if not slow or is_longer(slow, own)
                ]


def is_longer(waits: Waits, others: Waits) -> bool:
    """Whether waits are longer than others of the same questions by as much as people notice, and
    by more than chance: the median ratio is `NOTICED`, and its 95% interval, from order statistics,
    is above 1.
    """
    ratios = sorted(waits[key] / others[key] for key in waits.keys() & others.keys() if others[key])
    lowest = max(0, int((len(ratios) - 1.96 * len(ratios) ** 0.5) / 2))
    return bool(ratios) and statistics.median(ratios) >= NOTICED and ratios[lowest] > 1


def _tokens_read(variant: Variant) -> float | None:
    """The mean number of tokens that the decoder read for an answer, before the question or after."""
    read = [
        sum(sum(call.lengths) for call in trace if call.macs is None and call.stage != "decode")
        for trace in variant.traces.values()
    ]
    return statistics.mean(read) if read else None


def _capacities(variant: Variant) -> Numbers:
    """The highest loads at which a variant met the targets, by how requests arrived."""
    return {
        found.arrivals: {"load": found.met or 0, "limits": times.protocol.limits}
        for times in variant.runs.loads
        if (times.dataset, times.model) == (variant.dataset, variant.model)
        for found in capacities(times)
        if found.variant == variant.name
    }


def _pair(variants: Sequence[Variant], rows: Sequence[Numbers]) -> int:
    """Give each row its means over the same resampled questions, and its paired differences from
    the other rows; returns the number of questions.
    """
    values = on_shared({variant.name: scored(variant) for variant in variants})
    means = resampled_means([*values.values()], variants[0].runs.seed, RESAMPLES) if values else ()
    resampled = dict(zip(values, means, strict=True))
    pairs = _paired(variants[0], values)
    for row in rows:
        own = values.get(row["name"])
        row["resampled"] = resampled[row["name"]].round(5).tolist() if own else None
        row["shared_mean"] = sum(own) / len(own) if own else None
        row["pairs"] = pairs.get(row["name"])
    return len(next(iter(values.values()), ()))


def _paired(variant: Variant, values: Mapping[str, Sequence[float]]) -> dict[str, Numbers]:
    """By name and other name the interval of a - b (`low`, `high`), and the `doubt` of `doubts`."""
    pairs: dict[str, Numbers] = {name: {} for name in values}
    bounds = metric_limits(variant)
    for a, b in combinations(values, 2):
        test = paired_test(values[a], values[b], variant.runs.seed, limits=bounds)
        low, high = test["low"], test["high"]
        doubt = float(doubts([values[a], values[b]])[0, 1])
        pairs[a][b] = {"low": low, "high": high, "doubt": doubt}
        low, high = (end if end is None else -end for end in (high, low))
        pairs[b][a] = {"low": low, "high": high, "doubt": doubt}
    return pairs
