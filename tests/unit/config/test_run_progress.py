"""What the screen says of a run while it runs."""

from ragauge.config.run_progress import JobProgress, line


def test_the_rest_is_estimated_by_the_questions_of_the_jobs():
    jobs = [JobProgress(name, bool, weight) for name, weight in (("data", 1), ("a", 7), ("b", 92))]
    assert line(jobs, jobs[1:], 4.0) == "1 of 3 jobs done"
    assert line(jobs, jobs[2:], 8.0) == "2 of 3 jobs done; about 92 s left"
