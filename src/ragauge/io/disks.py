"""What kind of file system a folder is on, and whether its locks can be trusted."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
import sys
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ragauge.errors import UserError

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
# Shared file systems on which a lock holds on all nodes, unless an option says otherwise.
REACHING = re.compile(r"nfs4?|lustre|gpfs|ceph|beegfs|glusterfs|fuse\.glusterfs|cifs|smb3|ocfs2|gfs2|wekafs")
BY_NODE = re.compile(r"localflock|nolock|nobrl|local_lock=(flock|all)")  # options by which each node has its own locks
REFUSALS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # as NFS without lockd and Lustre without `flock` answer


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


# --- locks ---


def locks_work(folder: Path) -> bool:
    """Whether a lock that this process holds in a folder keeps others out; some network drives ignore locks."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".lock-") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        taken = subprocess.run([sys.executable, "-IS", "-c", TAKE, file.name], capture_output=True, check=False)
    return taken.returncode == REFUSED


def take(file: IO[Any], wait: bool = True) -> None:
    """Lock an open file against every other process; the system releases it when this one ends.

    Raises:
        BlockingIOError: another process holds it, and `wait` is false.
        UserError: the file system has no locks.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        raise UserError(_refused(Path(file.name).parent, error)) from None


def lock_trouble(folder: Path) -> str:
    """What is wrong with locks in a folder, in one line; empty if they hold against processes everywhere.

    One is taken there, to see whether the file system refuses; whether it tells other nodes, its options say.

    Raises:
        UserError: it has no locks, so that nothing would keep two runs from writing the same files.
    """
    probe = folder / f".lock-probe-{uuid.uuid4().hex[:8]}"
    with suppress(PermissionError, FileNotFoundError), probe.open("w") as file:
        try:
            take(file, wait=False)
        finally:
            probe.unlink(missing_ok=True)
    kind, told = mount_of(folder) or ("", frozenset())
    alone = sorted(filter(BY_NODE.fullmatch, told)) or ["sshfs"] * (kind == "fuse.sshfs")
    if not alone or LOCAL.fullmatch(kind):
        return ""
    return (
        f"{folder}: its file system ({kind}, {alone[0]}) keeps locks for each node alone: start runs in this folder on "
        "one node only; jobs on several nodes may do the same work twice"
    )


def locks_reach_all(folder: Path) -> bool:
    """Whether a lock in a folder is known to hold against processes of every machine that may open its files."""
    found = mount_of(folder)
    if found is None or LOCAL.fullmatch(found[0]):
        return True
    return REACHING.fullmatch(found[0]) is not None and not any(map(BY_NODE.fullmatch, found[1]))


def _refused(folder: Path, error: OSError) -> str:
    kind = (mount_of(folder) or ("unknown",))[0]
    return (
        f"{folder}: its file system ({kind}) refuses locks ({os.strerror(error.errno or 0)}), without which two runs "
        "would write the same files; mount it with locks (NFS: lockd; Lustre: option flock) or use another folder"
    )
