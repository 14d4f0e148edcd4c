"""Limits that make a study end within a budget.

In this order, as much as it takes: fewer timed trials, fewer questions (at least as many as a recommendation takes), no
times at all, fewer methods, still fewer questions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ragauge.errors import UserError

TRIALS = (3, 1)
QUESTIONS = (50, 20, 12)  # the last are two more than those below which a report recommends nothing
FEWER_QUESTIONS = (8, 4)
METHODS = ("dense_k2", "superposition_k2", "bm25_k2", "prompt_cache", "dense_k1", "closed_book")  # the first goes first
UNTIMED = "the latency protocol: costs are compute cycles, and seconds of the answering run"
DATASET = "questions"  # the label of the study's data set

Settings = Mapping[str, Any]
Cut = tuple[str, str]  # (what is limited, a line about it); a later line about the same replaces it


@dataclass(frozen=True)
class Limited:
    """A study's configuration, and a line for each limit in it."""

    settings: dict[str, Any]
    cuts: tuple[str, ...]


def fit(
    settings: Settings, questions: int, seconds: Callable[[Settings], float], available: float, *, busy: bool = False
) -> Limited:
    """Find the configuration that fits the available seconds with as few limits as the order above allows.

    Args:
        questions: of the study.
        seconds: forecasts a configuration.
        busy: other processes keep the machine so busy that times would be refused: they are left out first.

    Raises:
        UserError: the smallest configuration takes longer.
    """
    takes, limited = 0.0, Limited({}, ())
    for limited in _ever_smaller(copy.deepcopy(dict(settings)), questions, busy):
        takes = seconds(limited.settings)
        if takes <= available:
            return limited
    left = f"{max(0.0, available):.0f} s are left for it"
    raise UserError(f"even {size(limited.settings, questions)}, without times, take about {takes:.0f} s, and {left}")


def size(settings: Settings, questions: int) -> str:
    """Say how many questions and methods a configuration has."""
    return f"{settings['datasets'][DATASET].get('limit', questions)} questions x {len(settings['methods'])} methods"


def _ever_smaller(settings: dict[str, Any], questions: int, busy: bool) -> Iterator[Limited]:
    lines = dict[str, str]()
    if busy:
        del settings["latency"]
        lines["times"] = f"{UNTIMED}; other processes keep the machine busy, so that times would be refused"
    yield Limited(copy.deepcopy(settings), tuple(lines.values()))
    for topic, line in _cuts(settings, questions, busy):
        lines[topic] = line
        yield Limited(copy.deepcopy(settings), tuple(lines.values()))


def _cuts(settings: dict[str, Any], questions: int, busy: bool) -> Iterator[Cut]:
    """Cut the settings, one step after another."""
    if not busy:
        before = settings["latency"]["trials"]
        for trials in TRIALS:
            settings["latency"]["trials"] = trials
            yield "times", f"timed trials: {trials} of {before}"
    yield from _limit(settings, questions, QUESTIONS)
    if not busy:
        del settings["latency"]
        yield "times", UNTIMED
    yield from _drop_methods(settings)
    yield from _limit(settings, questions, FEWER_QUESTIONS)


def _limit(settings: dict[str, Any], questions: int, limits: tuple[int, ...]) -> Iterator[Cut]:
    for limit in limits:
        if limit < questions:
            settings["datasets"][DATASET]["limit"] = limit
            yield "questions", f"questions: the first {limit} of {questions}"


def _drop_methods(settings: dict[str, Any]) -> Iterator[Cut]:
    dropped: list[str] = []
    for name in METHODS:
        if name in settings["methods"]:
            del settings["methods"][name]
            if "judge" in settings:
                settings["judge"]["methods"].remove(name)
            dropped.append(name)
            yield "methods", f"methods: {', '.join(dropped)}"
