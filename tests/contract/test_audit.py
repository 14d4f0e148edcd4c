"""The audit of the dependencies: known flaws fail it."""

from typing import Any

import pytest

import audit

SOUND = {"name": "a", "version": "1", "vulns": []}
FLAWED = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "code", "line"),
    [
        ([SOUND, UNKNOWN], 0, "audit: 1 of 2 packages looked up, 0 vulnerabilities known"),
        ([SOUND, FLAWED], 1, "audit: b 2: CVE-1, fixed in 3"),
    ],
)
def test_what_is_found_decides(
    packages: list[Any], code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.judged(packages) == code
    assert line in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("required", "code"), [("1", 1), ("0", 0), ("", 0)])
def test_a_release_wants_the_database(
    required: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUDIT_REQUIRED", required)
    assert audit.judged([UNKNOWN]) == code
