"""Limits that make a study end within a budget.

In this order, as much as it takes: fewer timed trials, fewer questions (at least as many as a
recommendation takes that is not provisional), no times at all, still fewer questions, fewer
methods (none that the others are compared with), the fewest questions.
"""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

from ragauge.config import loading
from ragauge.config.run_progress import duration
from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject
from ragauge.measure.protocols import estimate
from ragauge.study.deadline import Deadline
from ragauge.study.writing import DATASET

TRIALS = (3, 1)
QUESTIONS = (50,)
FEWER_QUESTIONS = (20, 12)
FEWEST_QUESTIONS = (8, 4)
METHODS = (  # the first goes first
    "context_pilot",
    "superposition_k2",
    "top_k2",
    "top_k3",
    "prompt_cache",
    "top_k5",
    "sentence_pruning",
    "superposition_k1",
)
WITHOUT_TIMES = "the latency protocol: waits are seconds of the answering run"
MEASURING_SHARE = 0.25  # of the seconds that are left, after which no further variant is timed
MAX_OVERRUN = 2.0  # times the available seconds that the smallest configuration may take
WORKFLOW_S = 30.0  # of a run besides answers and times: its start, its items
REPORT_S = 40.0  # reserved for the report if time runs out, and at most this share of the budget
REPORT_SHARE = 0.25


def report_s(budget_s: float | None) -> float:
    """Seconds of a budget that are reserved for the report of a run that is ended."""
    return min(REPORT_S, REPORT_SHARE * budget_s) if budget_s else 0.0


def limit(
    settings: JsonObject,
    questions: int,
    config: Path,
    deadline: Deadline,
    cores: int | None = None,
) -> tuple[JsonObject, tuple[str, ...]]:
    """Time a question of each variant, and limit the configuration to what the deadline allows.

    Args:
        settings: the configuration, whose questions are written.
        questions: their number.
        config: the path of the configuration, for messages.
        deadline: by which the run and its report end.
        cores: of the run; None: all of this machine.

    Returns: the limited configuration, and a line for each limit.
    """
    rates = estimate.measure(
        loading.parse(settings, str(config)), MEASURING_SHARE * max(deadline.left_s, 0.0)
    )
    if rates.seconds:  # what there was no time for is taken to be as slow as the slowest
        slowest = max(rates.seconds.values(), key=lambda seconds: sum(seconds[0]))
        rates.seconds |= dict.fromkeys(rates.unknown, slowest)

    def estimated(limited: JsonObject) -> estimate.Estimate:
        return estimate.estimate(loading.parse(limited, str(config)), rates, cores)

    def likely_s(limited: JsonObject) -> float:
        wall = estimated(limited).wall
        return WORKFLOW_S + (wall.likely + wall.high) / 2

    available = deadline.left_s - report_s(deadline.budget_s)
    try:
        limited, cuts = fit(settings, questions, likely_s, available)
    except UserError as error:
        raise UserError(
            f"--budget: {duration(deadline.budget_s or 0.0)} are too short: {error}"
        ) from None
    print(f"{duration(available)} left: {size(limited, questions)}")
    print("\n".join(f"left out: {cut}" for cut in cuts) or "nothing is left out")
    sections = estimated(limited).sections.items()
    print("\n".join(f"{name}: {span}" for name, span in sections), flush=True)
    return limited, cuts


def fit(
    settings: JsonObject, questions: int, seconds: Callable[[JsonObject], float], available: float
) -> tuple[JsonObject, tuple[str, ...]]:
    """Find the configuration that fits the available seconds with as few limits as needed.

    Args:
        settings: the configuration without limits.
        questions: that it asks.
        seconds: forecasts a configuration.
        available: seconds that it may take.

    Returns:
        The configuration, and a line for each limit in it. The smallest one may take somewhat
        longer: its run is ended in time, and can be finished.

    Raises:
        UserError: the smallest configuration takes far longer.
    """
    takes = 0.0
    limited = copy.deepcopy(settings)
    lines = {}
    for topic, line in _cuts(limited, questions):
        if line:
            lines[topic] = line
        takes = seconds(limited)
        if takes <= available:
            return limited, tuple(lines.values())
    if takes <= MAX_OVERRUN * available:
        return limited, (*lines.values(), "the end of the run, perhaps; the command finishes it")
    raise UserError(
        f"even {size(limited, questions)}, without times, take about {takes:.0f} s, and "
        f"{max(0.0, available):.0f} s are left for it"
    )


def size(settings: JsonObject, questions: int) -> str:
    limit = settings["datasets"][DATASET].get("limit", questions)
    return f"{limit} questions x {len(settings['methods'])} methods"


def _cuts(settings: JsonObject, questions: int) -> Iterator[tuple[str, str]]:
    """Cut the settings, one step after another; yield the topic of each cut and a line that
    replaces those before.
    """
    yield "times", ""
    latency = settings.get("latency")  # none of a served model
    before = latency["trials"] if latency else 0
    for trials in TRIALS if latency else ():
        settings["latency"]["trials"] = trials
        yield "times", f"timed trials: {trials} of {before}"
    yield from _limit_questions(settings, questions, QUESTIONS)
    if latency:
        del settings["latency"]
        yield "times", WITHOUT_TIMES
    yield from _limit_questions(settings, questions, FEWER_QUESTIONS)
    dropped = [name for name in METHODS if name in settings["methods"]]
    for count, name in enumerate(dropped, start=1):
        del settings["methods"][name]
        if "judge" in settings:
            settings["judge"]["methods"].remove(name)
        yield "methods", f"methods: {', '.join(dropped[:count])}"
    yield from _limit_questions(settings, questions, FEWEST_QUESTIONS)


def _limit_questions(
    settings: JsonObject, questions: int, limits: tuple[int, ...]
) -> Iterator[tuple[str, str]]:
    for limit in limits:
        if limit < questions:
            settings["datasets"][DATASET]["limit"] = limit
            yield "questions", f"questions: the first {limit} of {questions}"
