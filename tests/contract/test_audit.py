"""The audit of the dependencies: known flaws fail it, a database that does not answer is told in one line."""

import json
import subprocess
from typing import Any

import pytest

import audit

SOUND = {"name": "a", "version": "1", "vulns": []}
FLAWED = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "c", "skip_reason": "not found"}


@pytest.fixture(autouse=True)
def not_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUDIT_REQUIRED", raising=False)


@pytest.mark.parametrize(
    ("packages", "code", "line"),
    [
        ([SOUND, UNKNOWN], 0, "audit: 1 of 2 packages looked up, 0 vulnerabilities known"),
        ([SOUND, FLAWED], 1, "audit: b 2: CVE-1, fixed in 3"),
        ([UNKNOWN], 0, "audit: not done: the database knows none of the 1 packages; it is not the real one"),
    ],
)
def test_what_is_found_decides(packages: list[Any], code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.judged(packages) == code
    assert line in capsys.readouterr().out.splitlines()


def test_an_accepted_flaw_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(audit.ACCEPTED, "CVE-1", "the function is not called")
    assert audit.judged([FLAWED]) == 0


@pytest.mark.parametrize("stdout", ["", "Traceback", json.dumps({"error": 1})])
def test_no_answer_is_one_line(
    stdout: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = subprocess.CompletedProcess([], 1, stdout, "…\nConnectionError: no route to host\n")
    monkeypatch.setattr(audit.subprocess, "run", lambda *_, **__: done)
    assert audit.main() == 0
    printed = capsys.readouterr().out
    assert printed == "audit: not done: the database cannot be reached (ConnectionError: no route to host)\n"


@pytest.mark.parametrize(("required", "code"), [("1", 1), ("0", 0), ("", 0)])
def test_a_release_wants_the_database(required: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUDIT_REQUIRED", required)
    assert audit.judged([UNKNOWN]) == code
