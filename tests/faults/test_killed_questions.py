"""Processes that are killed at a question: the run gets past a question that kills every process."""

import os
import signal

import pytest

from killed_processes import in_child
from ragauge.cli._main import main
from ragauge.io import records
from ragauge.measure import concurrency
from ragauge.testing import write_questions

QUESTIONS = 4
FATAL = 1


@pytest.fixture
def arguments(model, tmp_path):
    data = write_questions(tmp_path / "nq.jsonl", QUESTIONS)
    question = f"--method naive --dataset nq_open --data {data} --model {model}"
    return f"run {question} --threads 1 --max-new-tokens 2 --out {tmp_path / 'x.jsonl'}".split()


def end_of(arguments, fatal, number=signal.SIGKILL):
    """How a process ends that gets this signal at the fatal question: its exit code, or minus the
    signal.
    """
    ask = concurrency.ask

    def dying(engine, method, example, *more, **options):
        if example.key == fatal:
            os.kill(os.getpid(), number)
        return ask(engine, method, example, *more, **options)

    def work():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored
        concurrency.ask = dying
        raise SystemExit(main(arguments))

    return in_child(work)


def keys(arguments, out):
    assert main([*arguments[:-1], str(out)]) == 0
    return [record.key for record in records.read(out)]


@pytest.mark.parametrize("batch", ["1", "4"])
def test_the_third_time_it_is_recorded_as_failed_and_the_run_goes_on(arguments, tmp_path, batch):
    """Side by side, nobody knows which one it was: those that were under way are asked alone, after
    the others.
    """
    all_keys = keys(arguments, tmp_path / "all.jsonl")
    out = tmp_path / "x.jsonl"
    command = [*arguments, "--batch", batch]
    assert [end_of(command, all_keys[FATAL]) for _ in range(2)] == [-signal.SIGKILL] * 2
    assert end_of(command, all_keys[FATAL]) == 3
    answers = records.read(out)
    assert [record.key for record in answers] == all_keys
    assert [record.status for record in answers] == ["ok", "failed", "ok", "ok"]
    assert "2 processes were killed" in str(answers[FATAL].reason)
    assert main([*command, "--retry-failed"]) == 0  # where there is more memory
    assert [record.status for record in records.read(out)] == ["ok"] * QUESTIONS


def test_ends_in_order_are_no_deaths(arguments, tmp_path):
    """As a scheduler ends a job, or Ctrl-C."""
    all_keys = keys(arguments, tmp_path / "all.jsonl")
    for number, code in ((signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)):
        assert [end_of(arguments, all_keys[FATAL], number) for _ in range(3)] == [code] * 3
    assert main(arguments) == 0
    assert [record.status for record in records.read(tmp_path / "x.jsonl")] == ["ok"] * QUESTIONS
