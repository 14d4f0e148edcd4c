"""What a study leaves out so that it ends within a budget.

In this order, as much as it takes: timed trials, questions beyond those that a recommendation takes, all times,
methods one by one, further questions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ragauge.errors import UserError

TRIALS = (3, 1)
QUESTIONS = (50, 20, 12)  # the last are two more than those below which a report recommends nothing
FEWER = (8, 4)
METHODS = ("dense_k2", "superposition_k2", "bm25_k2", "prompt_cache", "dense_k1", "closed_book")  # the first goes first
UNTIMED = "the latency protocol: costs are compute cycles, and seconds of the answering run"
DATASET = "questions"  # the label of the study's data set

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Fitted:
    """A study's configuration, and what was cut of the one before."""

    settings: dict[str, Any]
    cuts: tuple[str, ...]


def fit(
    settings: Settings, questions: int, seconds: Callable[[Settings], float], available: float, *, busy: bool = False
) -> Fitted:
    """The configuration that takes no longer than is available, with as little cut as the order above allows.

    Args:
        questions: of the study.
        seconds: that a configuration takes.
        busy: other work keeps the machine so busy that times would be refused: they are left out first.

    Raises:
        UserError: the smallest takes longer.
    """
    takes, fitted = 0.0, Fitted({}, ())
    for fitted in _smaller(copy.deepcopy(dict(settings)), questions, busy):
        takes = seconds(fitted.settings)
        if takes <= available:
            return fitted
    left = f"{max(0.0, available):.0f} s are left for it"
    raise UserError(f"even {size(fitted.settings, questions)}, without times, take about {takes:.0f} s, and {left}")


def size(settings: Settings, questions: int) -> str:
    """How much a configuration asks."""
    count = settings["datasets"][DATASET].get("limit", questions)
    return f"{count} questions by {len(settings['methods'])} methods"


def _smaller(settings: dict[str, Any], questions: int, busy: bool) -> Iterator[Fitted]:
    """The configuration with ever more cut; what each step cuts further replaces what it said before."""
    said = dict[str, str]()
    if busy:
        del settings["latency"]
        said["times"] = f"{UNTIMED}; other work keeps the machine busy, so that times would be refused"
    yield Fitted(copy.deepcopy(settings), tuple(said.values()))
    for cut in (_questions, _methods, _fewer) if busy else (_trials, _questions, _times, _methods, _fewer):
        for topic, text in cut(settings, questions):
            said[topic] = text
            yield Fitted(copy.deepcopy(settings), tuple(said.values()))


def _trials(settings: dict[str, Any], questions: int) -> Iterator[tuple[str, str]]:
    before = settings["latency"]["trials"]
    for trials in TRIALS:
        settings["latency"]["trials"] = trials
        yield "times", f"timed trials: {trials} of {before}"


def _questions(settings: dict[str, Any], questions: int) -> Iterator[tuple[str, str]]:
    yield from _limited(settings, questions, QUESTIONS)


def _fewer(settings: dict[str, Any], questions: int) -> Iterator[tuple[str, str]]:
    yield from _limited(settings, questions, FEWER)


def _limited(settings: dict[str, Any], questions: int, limits: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    for limit in limits:
        if limit < questions:
            settings["datasets"][DATASET]["limit"] = limit
            yield "questions", f"questions: the first {limit} of {questions}"


def _times(settings: dict[str, Any], questions: int) -> Iterator[tuple[str, str]]:
    del settings["latency"]
    yield "times", UNTIMED


def _methods(settings: dict[str, Any], questions: int) -> Iterator[tuple[str, str]]:
    gone: list[str] = []
    for name in METHODS:
        if name in settings["methods"]:
            del settings["methods"][name]
            if "judge" in settings:
                settings["judge"]["methods"].remove(name)
            if "latency" in settings and name in settings["latency"]["methods"]:
                settings["latency"]["methods"].remove(name)
            gone.append(name)
            yield "methods", f"methods: {', '.join(gone)}"
