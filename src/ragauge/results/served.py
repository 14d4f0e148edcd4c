"""What a served model's records tell of its server: times as its client saw them, its cache, and what answers cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.results.cells import CellSource, Measure, mean
from ragauge.results.runs import Runs, Variant
from ragauge.results.timing import quartiles

MILLION, QUESTIONS = 1e6, 1000
UNSTATED = "the server does not count tokens"


def served(runs: Runs, variant: Variant) -> dict[str, Measure]:
    """Measures of the questions that a server answered: seconds to the first token and of each further one, tokens of
    prompts, the part of them that was cached, and the cost of 1,000 questions."""
    responses = [record["served"] for record in variant.answered.values() if record.get("served")]
    several = max((one["concurrency"] for one in responses), default=1)
    note = f"{variant.engine}, {several} requests at a time" if several > 1 else variant.engine
    first = [one["token_s"][0] for one in responses if one["token_s"]]
    later = [(t[-1] - t[0]) / (len(t) - 1) for t in (one["token_s"] for one in responses) if len(t) > 1]
    counted = [one for one in responses if one["prompt_tokens"]]
    prompts = [float(one["prompt_tokens"]) for one in counted]
    cached = [one["cached_tokens"] / one["prompt_tokens"] for one in counted if one["cached_tokens"] is not None]
    return {
        "served_first_token_s": quartiles(first, note, CellSource.RECORDS),
        "served_per_token_s": quartiles(later, note, CellSource.RECORDS),
        "prompt_tokens": mean(prompts, runs.seed, nothing=UNSTATED),
        "cached_share": mean(cached, runs.seed, nothing="the server does not count what it found in its cache"),
        "cost_per_1000_questions": _cost(runs, variant, counted),
    }


def _cost(runs: Runs, variant: Variant, counted: Sequence[Mapping[str, Any]]) -> Measure:
    """The mean over the questions that were answered, times 1,000."""
    entry = runs.config.models.get(variant.model) if runs.config else None
    price = entry.served.price if entry and entry.served else None
    if price is None:
        return Measure(reason="the configuration has no price (models.<label>.served.price)")
    rate, costs = price.prompt if price.cached is None else price.cached, []
    for one in counted:
        cached = one["cached_tokens"] or 0
        paid = (one["prompt_tokens"] - cached) * price.prompt + cached * rate + (one["new_tokens"] or 0) * price.new
        costs.append(QUESTIONS * (float(paid) / MILLION))
    return mean(costs, runs.seed, f"in {price.currency}", nothing=UNSTATED)
