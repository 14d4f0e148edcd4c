"""Shared parts of items on a plane of cost and quality: the frontier and its likelihood, waiting
times and prices.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ragauge.report.figures import Axis, Lines, Panel, Point, lines
from ragauge.report.figures.lines import Join
from ragauge.results import timing
from ragauge.results.cells import Cell, Cells, CellSource, Measure, Measures, Table, join, mean
from ragauge.results.measures import REFERENCES, on_shared, scored
from ragauge.results.runs import Group, Runs, Variant
from ragauge.results.states import NOT_ANSWERED, waits_for_documents
from ragauge.results.states import seconds as seconds_in
from ragauge.results.stats import SHARE, frontier_probability
from ragauge.results.times import STATE_WORDS, State

NOT_TIMED = "not timed in this state"
LIKELY = 0.5  # probability of being on the frontier from which a point is drawn in full and named
UNSTATED = "the server does not count tokens"


def by_state(runs: Runs, cells: Callable[[Group, State], Iterable[Cell]]) -> Cells:
    """Collect the cells of each (data set, model) pair in each state in which it was timed; of the
    answering run in the default alone.
    """
    for group in runs.groups():
        timed = group.timed
        states: Iterable[State] = timed.states if timed and not timed.refused else ("documents",)
        for state in states:
            yield from cells(group, state)


def latencies(group: Group, variants: Sequence[Variant], key: str, state: State) -> list[Measure]:
    """Seconds in a state (`total_s`, of responses as long as the answers, or `first_token_s`) of
    the protocol for all variants, or of the answering run for all.
    """
    timed = group.timed
    if timed is None or timed.refused:
        return [
            answering_latency(v, {"total_s": "online_s"}.get(key, key), state) for v in variants
        ]
    timed = timed.at_answer_length
    note = join(
        f"latency protocol on prompts of {timed.dataset}", timing.described(timed, state=state)
    )
    return [
        timing.quartiles(timed.seconds(v.name, key, state), note, nothing=NOT_TIMED)
        for v in variants
    ]


def answering_latency(variant: Variant, field: str, state: State) -> Measure:
    """The median of a field of seconds in a state, of the questions that did not fail."""
    seconds = [*seconds_in(variant, field, state).values()]
    note = join(
        "latency of the answering run, not of the latency protocol",
        f"before the question: {STATE_WORDS[state]}",
        (variant.stack and variant.engine) or "",
    )
    if waits_for_documents(variant, state) is None:
        return Measure(reason=NOT_ANSWERED)
    if not seconds and any(record.batch > 1 for record in variant.records.values()):
        return Measure(reason="answered side by side, so without a latency")
    return timing.quartiles(seconds, note, CellSource.RECORDS)


def on_frontier(group: Group, variants: Sequence[Variant], prices: Sequence[Measure]) -> Measures:
    """By name the bootstrap probability of each variant that has a price, over the questions that
    they share. Prices stay at their measured values, as on the report's first screen.
    """
    pairs = zip(variants, prices, strict=True)
    priced = {
        v.name: m.value for v, m in pairs if m.value is not None and v.method not in REFERENCES
    }
    answers = on_shared({v.name: scored(v) for v in variants if v.name in priced})
    if not answers:
        return {}
    probabilities = frontier_probability(
        [priced[name] for name in answers], [*answers.values()], seed=group.runs.seed
    )
    few = Measure(reason="it has far fewer questions than others")
    return dict.fromkeys(priced, few) | {
        name: Measure(p, n=len(answers[name]))
        for name, p in zip(answers, probabilities, strict=True)
    }


def plane(
    title: str,
    part: Table,
    quantity: str,
    label: str,
    chance: str,
    placed: Callable[[Point, float], Point],
    join: Join = "all",
) -> Panel:
    """A panel of quality over a cost, its points `placed` by their probability of being on the
    frontier, which is the quantity `chance`; the stairs are the frontier of the means of the points
    that have one.
    """
    x = Axis(label, "log")
    y = Axis(part["metric"].iloc[0], from_zero=True)
    points = Lines(quantity, x, "quality", y).points(part)
    chances = [point.row.number(chance) for point in points]
    compared = [p for p, probability in zip(points, chances, strict=True) if probability >= 0]
    stairs = lines.steps((point.x, point.y) for point in compared)
    return Panel(title, x, y, list(map(placed, points, chances)), join, stairs)


def has_run_times(part: Table, quantity: str) -> bool:
    """Whether values of a quantity are of the answering run, not of the latency protocol."""
    return bool(((part["quantity"] == quantity) & (part["source"] == CellSource.RECORDS)).any())


def served(variant: Variant) -> Measures:
    """Measures of a server's responses, those without an answer included, as seen by the client."""
    seed = variant.runs.seed
    responses = variant.responses
    several = max((response.concurrency for response in responses), default=1)
    note = f"{variant.engine}, {several} requests at a time" if several > 1 else variant.engine
    remarks = sorted(
        {text for response in responses for text in (*response.remarks, response.counting)}
    )
    seconds = partial(timing.quartiles, note=join(note, *remarks), source=CellSource.RECORDS)
    answers = [r.first_answer_s for r in responses if r.first_answer_s is not None]
    thoughts = [response.thought_tokens for response in responses]
    sources = {r.thought_tokens_source for r in responses if r.thought_tokens_source}
    counted_by = " and ".join(sorted(sources))
    moments = [response.token_s for response in responses if response.token_s]
    first = [token_s[0] for token_s in moments]
    later = [r.per_token_s for r in responses if r.per_token_s is not None]
    prompts = [r.prompt_tokens for r in responses if r.prompt_tokens]
    unknown = "the server does not count what it found in its cache"
    return {
        "served_first_token_s": seconds(first),
        "served_first_answer_s": seconds(answers, nothing="no response has an answer"),
        "served_per_token_s": seconds(later, nothing=UNSTATED),
        "prompt_tokens": mean(prompts, seed, nothing=UNSTATED),
        "thought_tokens": mean(thoughts, seed, f"counted by {counted_by}" if counted_by else ""),
        "cached_share": mean(variant.cached_shares, seed, nothing=unknown, limits=SHARE),
        "cost_per_1000_questions": _cost(variant),
    }


def _cost(variant: Variant) -> Measure:
    entry = variant.group.model_entry
    price = entry.served.price if entry and entry.served else None
    if price is None:
        return Measure(reason="the configuration has no price (models.<label>.served.price)")
    rate = price.prompt if price.cached is None else price.cached
    costs = []
    for response in variant.responses:
        if response.prompt_tokens and response.new_tokens is not None:
            cached = response.cached_tokens or 0
            read = (response.prompt_tokens - cached) * price.prompt + cached * rate
            paid = read + response.new_tokens * price.new
            costs.append(1000 * (float(paid) / 1e6))  # of 1,000 questions; prices are per million
    if not costs:
        return Measure(reason=UNSTATED)
    return mean(costs, variant.runs.seed, f"in {price.currency}")
