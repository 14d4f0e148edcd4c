"""How `ragauge run` ends: what was answered, what failed and why, and asking that again."""

import pytest

from json_lines import last_value, read_lines, write_lines
from ragauge.cli._main import main
from ragauge.io import records
from ragauge.testing import write_questions


@pytest.fixture
def arguments(model, tmp_path):
    """A run of four questions, the second and the third of which are longer than the context."""
    lines = read_lines(write_questions(tmp_path / "all.jsonl", 4))
    for number in (1, 2):
        lines[number]["ctxs"][2]["text"] = "long " * 300
    questions = write_lines(tmp_path / "long.jsonl", lines)
    what = f"--method naive --dataset nq_open --data {questions} --model {model}".split()
    return [
        "run",
        *what,
        "--threads",
        "1",
        "--max-new-tokens",
        "2",
        "--out",
        str(tmp_path / "x.jsonl"),
    ]


def test_failed_questions_are_reported_with_reasons_and_exit_code_3(arguments, tmp_path, capsys):
    assert main(arguments) == 3
    first, *reasons, hint = capsys.readouterr().out.splitlines()
    assert first == f"{tmp_path / 'x.jsonl'}: 2 answered, 2 failed"
    failed = [record for record in records.read(tmp_path / "x.jsonl") if record.status == "failed"]
    assert len(failed) == 2
    assert reasons == [f"  2 failed: {failed[0].reason} ({failed[0].key}, {failed[1].key})"]
    assert "--retry-failed" in hint
    assert main([*arguments, "--allow-failed", "--json", "--quiet"]) == 0
    captured = capsys.readouterr()
    result = last_value(captured.out)
    assert (result["answered"], result["failed"]) == (2, 2)
    assert sum(map(len, result["reasons"].values())) == 2
    assert captured.err == ""


def test_there_is_nothing_to_retry_without_records(arguments, capsys):
    assert main([*arguments, "--retry-failed"]) == 2
    printed = capsys.readouterr().err
    assert printed == f"ragauge: error: --retry-failed: {arguments[-1]}: no such file of records\n"
