"""What kind of file system a folder is on, and whether its locks can be trusted."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LOCAL = re.compile(r"ext[234]|xfs|btrfs|zfs|f2fs|tmpfs|ramfs|overlay|aufs|squashfs|rootfs|vfat|ntfs3?|apfs|fuseblk|9p")
MOUNTS = Path("/proc/self/mounts")
REFUSED = 3
TAKE = f"""
import fcntl, sys
try:
    fcntl.flock(open(sys.argv[1], "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit({REFUSED})
"""


def is_shared(folder: Path) -> bool:
    """Whether other machines may change files in a folder: it is on a file system that is not known to be local."""
    options = mount_of(folder)
    return options is not None and LOCAL.fullmatch(options[0]) is None


def mount_of(folder: Path) -> tuple[str, frozenset[str]] | None:
    """(type, options) of the file system that a folder is on; None where the system does not tell."""
    try:
        lines = MOUNTS.read_text(errors="replace").splitlines()
        here = os.path.realpath(folder)
    except OSError:
        return None
    found, longest = None, -1
    for _, place, kind, options, *_ in (fields for line in lines if len(fields := line.split(" ")) >= 4):
        place = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), place)  # a blank is \040
        if len(place) >= longest and os.path.commonpath([here, place]) == place:  # a later mount covers an earlier
            found, longest = (kind, frozenset(options.split(","))), len(place)
    return found


def locks_work(folder: Path) -> bool:
    """Whether a lock that this process holds in a folder keeps others out; some network drives ignore locks."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".lock-") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        taken = subprocess.run([sys.executable, "-IS", "-c", TAKE, file.name], capture_output=True, check=False)
    return taken.returncode == REFUSED
