"""What the screen says of a run while it runs."""

from ragauge.config.run_progress import JobProgress, line, status


def test_questions_are_counted_while_their_job_runs(tmp_path):
    examples = tmp_path / "questions.jsonl"
    records = tmp_path / "naive.jsonl"
    finished = set()
    jobs = [
        JobProgress(lambda: "data" in finished),
        JobProgress(lambda: "naive" in finished, examples, records, limit=6),
        JobProgress(lambda: False, examples, tmp_path / "1-of-3.jsonl", part=1, parts=3),
    ]
    first = status(jobs)
    assert line(first, first, 0.0) == "0 of 3 jobs and 0 of 6 questions done"
    examples.write_text("{}\n" * 10)
    finished.add("data")
    (tmp_path / "naive.jsonl.partial").write_text("header\n" + "{}\n" * 4 + '{"torn')
    now = status(jobs)
    assert (now.questions, now.questions_done) == (6 + 3, 4)
    assert line(now, first, 60.0) == "1 of 3 jobs and 4 of 9 questions done; about 84 s left"
    (tmp_path / "naive.jsonl.partial").unlink()
    finished.add("naive")
    assert status(jobs)[:4] == (3, 2, 9, 6)
