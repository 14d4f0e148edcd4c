"""The audit of the dependencies: known flaws fail it."""

import pytest

import audit

SOUND = {"name": "a", "version": "1", "vulns": []}
FLAWED = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("packages", "required", "code"),
    [
        ([SOUND, UNKNOWN], "1", 0),
        ([SOUND, FLAWED], "", 1),
        ([UNKNOWN], "1", 1),
        ([UNKNOWN], "0", 0),
    ],
)
def test_the_findings_decide(packages, required, code, monkeypatch):
    monkeypatch.setenv("AUDIT_REQUIRED", required)
    assert audit.judged(packages) == code
