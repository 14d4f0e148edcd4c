"""Costs of the run of answers in a state of what was read before the question.

A run of answers leaves out of a question's cost what its method prepares. In a state below the one
in which that is known, the question waits for it; but for embeddings of documents, which are made
when these are indexed.
"""

import math

from ragauge.cost import cycles
from ragauge.cost.trace import indexing_s
from ragauge.methods.base.method import State
from ragauge.methods.base.states import effective_state, usable_state
from ragauge.results import timing
from ragauge.results.cells import CellSource, Measure, Measures
from ragauge.results.costs import cost, online_cycles
from ragauge.results.runs import Variant, method_of
from ragauge.results.times import LatencyTimes

NOT_ANSWERED = "not answered in this state"


def waits_for_documents(variant: Variant, state: State) -> bool | None:
    """Whether a question waits in a state for what its method prepared; None: nothing was answered
    so, since a plain prompt's beginning was not cached, or its method is not known.
    """
    method = method_of(variant)
    if method is None:
        return None
    one_document = all(record.documents == 1 for record in variant.records.values())
    effective = effective_state(usable_state(method, one_document), state)
    if effective == "nothing":
        return method.prepares
    return None if not method.prepares else False


def seconds(variant: Variant, field: str, state: State) -> dict[str, float]:
    """A field of the run's seconds (`online_s`, `first_token_s`) in a state, by question; failed
    questions have none.
    """
    waits = waits_for_documents(variant, state)
    if not waits:
        return variant.by_question(field) if waits is False else {}
    offline = _preparation_s(variant)
    return {
        key: online + offline[key]
        for key, online in variant.by_question(field).items()
        if key in offline
    }


def online_cost(variant: Variant, state: State) -> Measure:
    """Mean multiply-accumulates that a question waits for in a state."""
    waits = waits_for_documents(variant, state)
    if waits is None:
        return Measure(reason=NOT_ANSWERED)

    def fold(variant: Variant, key: str) -> float:
        trace = variant.traces[key]
        return online_cycles(variant, key, cycles.uncached(trace) if waits else trace)

    return cost(variant, fold)


def preparation(variant: Variant, timed: LatencyTimes | None, state: State) -> Measures:
    """Seconds of what a variant has read before the question in a state, and bytes of the keys and
    values that stay: the latency protocol's or, in seconds, the run's; nothing where it has read
    nothing.
    """
    measures = timing.preparation(timed, variant.name, state) if timed else {}
    method = method_of(variant)
    # of a ranker the run has read the best document alone
    has_read_all = method is not None and method.read_before() is method
    if measures or not has_read_all or waits_for_documents(variant, state) is not False:
        return measures
    values = [*_preparation_s(variant).values()]
    note = "of the answering run"
    return (
        {"preparation_s": timing.quartiles(values, note, CellSource.RECORDS)} if any(values) else {}
    )


def _preparation_s(variant: Variant) -> dict[str, float]:
    """Seconds of what was prepared for each question but embeddings, those that its calls took where
    several questions were answered side by side.
    """
    known = variant.by_question("offline_s")
    if not known:
        calls = {k: [c.seconds for c in t if c.offline] for k, t in variant.traces.items()}
        known = {k: math.fsum(filter(None, s)) for k, s in calls.items() if None not in s}
    return {key: value - indexing_s(variant.traces.get(key, ())) for key, value in known.items()}
