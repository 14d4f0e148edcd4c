"""Look the installed packages up in the database of known vulnerabilities (pip-audit).

Exit code 1 where one is known. A database that cannot be reached is told in one line and fails
nothing: it says nothing about the packages. With AUDIT_REQUIRED=1 in the environment, as where a
release is made, it fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

LONGEST_S = 300
ACCEPTED: dict[str, str] = {}  # an advisory's number -> why it does not concern us


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--local", "--skip-editable", "--format", "json"]
    try:
        done = subprocess.run(
            [*command, "--progress-spinner", "off", "--timeout", "10"],
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return undone(f"audit: not done: the database did not answer within {LONGEST_S} s")
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1][:200]
        return undone(f"audit: not done: the database cannot be reached ({reason})")
    return judged(packages)


def judged(packages: list[dict[str, Any]]) -> int:
    """The exit code for what pip-audit found, told line by line."""
    audited = [package for package in packages if "skip_reason" not in package]
    if not audited:
        return undone(
            f"audit: not done: the database knows none of the {len(packages)} packages; it is not the real one"
        )
    known = [
        (package, flaw)
        for package in audited
        for flaw in package["vulns"]
        if flaw["id"] not in ACCEPTED
    ]
    for package, flaw in known:
        fixed = ", ".join(flaw["fix_versions"]) or "no version yet"
        print(f"audit: {package['name']} {package['version']}: {flaw['id']}, fixed in {fixed}")
    print(
        f"audit: {len(audited)} of {len(packages)} packages looked up, {len(known)} vulnerabilities known"
    )
    return int(bool(known))


def undone(line: str) -> int:
    """The exit code where nothing was looked up."""
    print(line)
    return int(os.environ.get("AUDIT_REQUIRED", "0") not in ("", "0"))


if __name__ == "__main__":
    sys.exit(main())
