"""Files that a native library parses (faiss, ONNX Runtime) are read once by a process of its own before this one does.

Such a library trusts what a file says: a hostile or damaged one may crash the process or take all memory. So what this
program did not write on this machine is tried first, with a bound on memory and time. What went well is remembered by
hash below `$RAGAUGE_HOME/tried`, and so is what this program writes: neither is tried again.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ragauge.errors import UserError
from ragauge.io.home import home

LONGEST_S = 60  # beside the time that its bytes take
SLOWEST = 20e6  # bytes a second of a disk
ROOM_BYTES = 6 << 30  # of address space beside the files: libraries reserve much that they never touch
CODE = """\
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
from {module} import trial
trial(Path(sys.argv[1]))
"""


def mark(sha256: str) -> None:
    """Remember what was tried, or was made here."""
    with suppress(OSError):  # it is tried once more
        path = _mark(sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def check(sha256: str, module: str, path: Path, what: str) -> None:
    """Have another process read a file or folder, unless that went well before.

    Args:
        sha256: the hash of all that it holds.
        module: whose function `trial(path)` reads it, and raises where something is wrong.
        what: it is, for the message.

    Raises:
        UserError: the process died, ran out of memory or time, or found something wrong.
    """
    if _mark(sha256).is_file():
        return
    if trouble := outcome(module, path):
        raise UserError(f"{path}: not {what} that can be read: {trouble}")
    mark(sha256)


def outcome(module: str, path: Path) -> str:
    """How a process that runs `module.trial(path)` fails, in one line; empty where it does not."""
    code = CODE.format(module=module)
    size = _bytes(path)
    command = [sys.executable, "-P", "-c", code, str(path), str(ROOM_BYTES + 8 * size)]
    longest = LONGEST_S + size / SLOWEST
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    path_here = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **threads, **path_here},
            timeout=longest,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"not read after {longest:.0f} s"
    if done.returncode < 0:
        return f"a process that reads it ends by {signal.Signals(-done.returncode).name}"
    lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it ends without a word"]
    return re.sub(r"\s+", " ", lines[-1])[-300:] if done.returncode else ""


def _mark(sha256: str) -> Path:
    return home() / "tried" / sha256


def _bytes(path: Path) -> int:
    """Of a folder, or of what lies beside a file, which may hold its weights."""
    files = path.parent.iterdir() if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())
