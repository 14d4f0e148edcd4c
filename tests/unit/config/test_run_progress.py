"""What the screen says of a run while it runs."""

from types import SimpleNamespace

import pytest

from ragauge.config.run_progress import ALL_QUESTIONS, TIMED_QUESTIONS, JobProgress, job_of, line


def test_the_rest_is_estimated_by_the_questions_of_the_jobs():
    jobs = [JobProgress(name, bool, weight) for name, weight in (("data", 1), ("a", 7), ("b", 92))]
    assert line(jobs, jobs[1:], 4.0) == "1 of 3 jobs done"
    assert line(jobs, jobs[2:], 8.0) == "2 of 3 jobs done; about 92 s left"


@pytest.mark.parametrize(
    ("rule", "answers", "limit", "weight"),
    [
        ("answers", True, 7, 8),
        ("answers", True, None, 1 + ALL_QUESTIONS),
        ("latency", False, 7, 1 + TIMED_QUESTIONS),
        ("load", False, None, 1 + TIMED_QUESTIONS),
        ("data", False, 7, 1),
    ],
)
def test_a_job_weighs_what_it_asks_and_times(rule, answers, limit, weight):
    files = SimpleNamespace(records="", examples="") if answers else SimpleNamespace()
    job = SimpleNamespace(
        rule=SimpleNamespace(name=rule), wildcards=["nq_open"], output=files, input=files
    )
    assert job_of(None, job, lambda labels: limit).weight == weight
