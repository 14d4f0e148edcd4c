"""The jobs of a run that failed, from Snakemake's logs."""

import re
from collections.abc import Sequence
from pathlib import Path

FAILED_JOB = r"^Error in rule (\S+):\n(?:    .*\n)*?    jobid: (\d+)\n(?:    .*\n)*?    log: (.+?)(?:, .*)? \(check log"


def failed_jobs(logs: Sequence[str]) -> list[str]:
    """Return a line for each job that failed in every attempt: its rule, its own log, and how that
    ends.
    """
    text = "\n".join(Path(log).read_text(errors="replace") for log in logs if Path(log).is_file())
    failures = {}
    for match in re.finditer(FAILED_JOB, text, re.MULTILINE):
        rule, job, path = match.groups()
        if f"Finished jobid: {job} " not in text[match.end() :]:
            failures[job] = f"{rule} failed: {path}: {_last_line(Path(path))}"
    return list(failures.values())


def _last_line(log: Path) -> str:
    if not log.is_file():
        return "no log"
    lines = log.read_text(errors="replace").splitlines()
    return next(filter(str.strip, reversed(lines)), "empty")
