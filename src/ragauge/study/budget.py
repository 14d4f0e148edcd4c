"""Limits that make a study end within a budget.

In this order, as much as it takes: fewer timed trials, fewer questions (at least as many as a
recommendation takes), no times at all, fewer methods, still fewer questions.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ragauge.errors import UserError

TRIALS = (3, 1)
QUESTIONS = (50, 20, 12)  # the last are two more than those below which a report recommends nothing
FEWER_QUESTIONS = (8, 4)
METHODS = (  # the first goes first
    *(
        "context_pilot",
        "superposition_k2",
        "top_k2",
        "top_k3",
        "prompt_cache",
        "top_k5",
        "sentence_pruning",
    ),
    "closed_book",
)
UNTIMED = "the latency protocol: costs are compute cycles, and seconds of the answering run"
DATASET = "questions"  # the label of the study's data set

Settings = Mapping[str, Any]


def fit(
    settings: Settings, questions: int, seconds: Callable[[Settings], float], available: float
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Find the configuration that fits the available seconds with as few limits as the order above
    allows. Returns it and a line for each limit in it; `seconds` forecasts a configuration. Raises
    UserError: the smallest configuration takes longer.
    """
    takes = 0.0
    limited = copy.deepcopy(dict(settings))
    lines = dict[str, str]()
    for topic, line in _cuts(limited, questions):
        lines |= {topic: line} if line else {}
        takes = seconds(limited)
        if takes <= available:
            return limited, tuple(lines.values())
    left = f"{max(0.0, available):.0f} s are left for it"
    raise UserError(
        f"even {size(limited, questions)}, without times, take about {takes:.0f} s, and {left}"
    )


def size(settings: Settings, questions: int) -> str:
    return f"{settings['datasets'][DATASET].get('limit', questions)} questions x {len(settings['methods'])} methods"


def _cuts(settings: dict[str, Any], questions: int) -> Iterator[tuple[str, str]]:
    """Cut the settings, one step after another; yield the topic of each cut and a line that
    replaces those before.
    """
    yield "times", ""
    latency = settings.get("latency")  # none of a served model
    before = latency["trials"] if latency else 0
    for trials in TRIALS if latency else ():
        settings["latency"]["trials"] = trials
        yield "times", f"timed trials: {trials} of {before}"
    yield from _limit(settings, questions, QUESTIONS)
    if latency:
        del settings["latency"]
        yield "times", UNTIMED
    dropped = [name for name in METHODS if name in settings["methods"]]
    for count, name in enumerate(dropped, start=1):
        del settings["methods"][name]
        if "judge" in settings:
            settings["judge"]["methods"].remove(name)
        yield "methods", f"methods: {', '.join(dropped[:count])}"
    yield from _limit(settings, questions, FEWER_QUESTIONS)


def _limit(
    settings: dict[str, Any], questions: int, limits: tuple[int, ...]
) -> Iterator[tuple[str, str]]:
    for limit in limits:
        if limit < questions:
            settings["datasets"][DATASET]["limit"] = limit
            yield "questions", f"questions: the first {limit} of {questions}"
