"""A study within a budget: what is cut, in which order, and a command that ends in time."""

import sys
import time
from contextlib import suppress

import psutil
import pytest

from ragauge.cli._main import main
from ragauge.cli._parser import command_parser
from ragauge.config import loading
from ragauge.errors import UserError
from ragauge.measure.protocols.estimate import Rates, Work
from ragauge.study import budget, writing
from ragauge.study.deadline import Deadline
from service_parts import wait_for
from tables import rows

QUESTIONS = 100


def settings(tmp_path):
    data = tmp_path / "q.jsonl"
    data.touch()
    return writing.configuration("s", {"source": "smollm2-135m-instruct"}, data)


def seconds(made):
    """A second a question and method, and one a trial and timed method."""
    count = made["datasets"]["questions"].get("limit", QUESTIONS)
    latency = made.get("latency")
    trials = len(latency["methods"]) * latency["trials"] if latency else 0
    return float(count * len(made["methods"]) + trials)


def fit(tmp_path, available):
    """What is cut to fit."""
    fitted, cuts = budget.fit(settings(tmp_path), QUESTIONS, seconds, available)
    loading.parse(fitted, "config.yaml")
    assert seconds(fitted) <= available
    return cuts


@pytest.mark.parametrize(
    ("available", "cuts"),
    rows("""
1150, []
1130, ["timed trials: 3 of 5"]
1110, ["timed trials: 1 of 5"]
600, ["timed trials: 1 of 5", "questions: the first 50 of 100"]
550, [the latency protocol, "questions: the first 50 of 100"]
132, [the latency protocol, "questions: the first 12 of 100"]
108, [the latency protocol, the first 12 of, "methods: context_pilot, superposition_k2"]
12, [the latency protocol, the first 4 of,
  "methods: context_pilot, superposition_k2, top_k2, top_k3"]
"""),
)
def test_cuts_come_in_their_order(tmp_path, available, cuts):
    found = fit(tmp_path, available)
    assert len(found) == len(cuts)
    assert all(expected in cut for expected, cut in zip(cuts, found, strict=True)), found


def test_what_cannot_fit_is_one_line(tmp_path):
    with pytest.raises(
        UserError,
        match="even 4 questions x 3 methods, without times, take about 12 s, and 5 s are left",
    ):
        fit(tmp_path, 5)


def test_the_smallest_study_may_be_ended_by_its_budget(tmp_path):
    fitted, cuts = budget.fit(settings(tmp_path), QUESTIONS, seconds, 7)
    assert seconds(fitted) == 12
    assert "the end of the run" in cuts[-1]


def test_what_the_others_are_compared_with_is_never_cut(tmp_path):
    fitted, _ = budget.fit(settings(tmp_path), QUESTIONS, seconds, 12)
    assert tuple(fitted["methods"]) == writing.REFERENCES


@pytest.mark.parametrize(
    ("cores", "fitting"), [(None, "100 questions x 11 methods"), (1, "50 questions x 11 methods")]
)
def test_a_budget_is_filled_by_timed_questions(
    tmp_path,
    monkeypatch,
    capsys,
    cores,
    fitting,
):
    """A second a question, also of what there was no time for; no times of the protocol."""

    def measured(config, within_s):
        work = [Work(job) for job in config.answers()]
        seconds = {work[0]: [(0.25, 0.75)]}
        return Rates(seconds, {"questions": QUESTIONS}, dict.fromkeys(work[1:], "no time"))

    monkeypatch.setattr(budget.estimate, "measure", measured)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    stated = settings(tmp_path)
    del stated["latency"]
    deadline = Deadline(1000.0)
    limited, cuts = budget.limit(stated, QUESTIONS, tmp_path / "config.yaml", deadline, cores)
    assert len(cuts) == (cores == 1)
    assert len(limited["methods"]) == 11
    assert fitting in capsys.readouterr().out
    with pytest.raises(UserError, match="--budget: 10 s are too short"):
        budget.limit(stated, QUESTIONS, tmp_path / "config.yaml", Deadline(10.0), cores)


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("2h", 7200), ("0.5s", 0.5)]
)
def test_a_budget_is_a_time(text, expected):
    asked = f"study --documents d --questions q.csv --model m --out o --budget {text}".split()
    assert command_parser(asked).parse_args(asked).budget == expected


@pytest.mark.parametrize("text", ["", "10", "0m", "10m x"])
def test_other_texts_are_no_times(text, capsys):
    with pytest.raises(SystemExit) as left:
        main(["study", "--documents", "d", "--model", "m", "--out", "o", f"--budget={text}"])
    printed = capsys.readouterr().err
    assert (left.value.code, printed.count("\n")) == (2, 1)
    assert f"--budget: {text!r} must be a time such as 0.5s, 30m or 1h30m" in printed


def test_a_command_is_ended_with_all_that_it_started(tmp_path):
    """A shell has what it starts in the background ignore interrupts."""
    deadline = Deadline(2.0)
    assert (
        deadline.run(["/bin/sh", "-c", "sleep 60 & echo $!; wait"], tmp_path / "log", reserve_s=1.0)
        is None
    )
    assert deadline.spent_s < 12  # on a busy machine
    child = int((tmp_path / "log").read_text())
    wait_for(lambda: has_ended(child))


def has_ended(process):
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process).status() == psutil.STATUS_ZOMBIE
    return True


@pytest.mark.parametrize("budget_s", [60.0, None])
def test_a_command_has_its_exit_code_and_a_log(tmp_path, budget_s, capsys):
    script = "import sys; print('job 3'); print('ragauge: 0:12 answers naive', file=sys.stderr); raise SystemExit(7)"
    assert Deadline(budget_s).run([sys.executable, "-c", script], tmp_path / "logs" / "log") == 7
    assert capsys.readouterr().out == "ragauge: 0:12 answers naive\n"
    assert "job 3" in (tmp_path / "logs" / "log").read_text(encoding="utf-8")


def stubborn():
    """Goes on after any mistake, as code does that counts the questions that failed."""
    try:
        time.sleep(30)
    except Exception:
        time.sleep(30)


def test_work_beyond_the_budget_is_ended_in_one_line():
    deadline = Deadline(0.2)
    with (
        pytest.raises(UserError, match="--budget: 0 s were over while it slept"),
        deadline.guarding("it slept"),
    ):
        stubborn()
    assert deadline.spent_s < 10
