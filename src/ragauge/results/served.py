"""What records of a served model say of its server: times that its client saw, its cache, and the price of answers."""

from collections.abc import Mapping, Sequence
from typing import Any

from ragauge.results.cells import CellSource, Measure, mean
from ragauge.results.runs import Runs, Variant
from ragauge.results.timing import quartiles

MILLION, QUESTIONS = 1e6, 1000
UNSTATED = "the server does not count tokens"


def served(runs: Runs, variant: Variant) -> dict[str, Measure]:
    """Measures of a server's responses, those without an answer included.

    They are the seconds to the first token, to the first of the answer and of each further one, tokens of prompts and
    thoughts, the part of the prompts that was cached, and the cost of 1,000 questions.
    """
    responses = [record["served"] for record in variant.records.values() if record.get("served")]
    several = max((one["concurrency"] for one in responses), default=1)
    note = f"{variant.engine}, {several} requests at a time" if several > 1 else variant.engine
    note = "; ".join([note, *sorted({remark for one in responses for remark in one.get("remarks", ())})])
    answers = [s for one in responses if (s := one.get("first_answer_s")) is not None]
    thoughts = [float(one.get("thought_tokens", 0)) for one in responses]
    counted_by = " and ".join(sorted({by for one in responses if (by := one.get("thought_tokens_source"))}))
    first = [one["token_s"][0] for one in responses if one["token_s"]]
    later = [(t[-1] - t[0]) / (len(t) - 1) for t in (one["token_s"] for one in responses) if len(t) > 1]
    counted = [one for one in responses if one["prompt_tokens"]]
    prompts = [float(one["prompt_tokens"]) for one in counted]
    cached = [one["cached_tokens"] / one["prompt_tokens"] for one in counted if one["cached_tokens"] is not None]
    return {
        "served_first_token_s": quartiles(first, note, CellSource.RECORDS),
        "served_first_answer_s": quartiles(answers, note, CellSource.RECORDS, nothing="no response has an answer"),
        "served_per_token_s": quartiles(later, note, CellSource.RECORDS),
        "prompt_tokens": mean(prompts, runs.seed, nothing=UNSTATED),
        "thought_tokens": mean(thoughts, runs.seed, f"counted by {counted_by}" if counted_by else ""),
        "cached_share": mean(cached, runs.seed, nothing="the server does not count what it found in its cache"),
        "cost_per_1000_questions": _cost(runs, variant, counted),
    }


def _cost(runs: Runs, variant: Variant, counted: Sequence[Mapping[str, Any]]) -> Measure:
    """The mean over the responses, times 1,000."""
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
