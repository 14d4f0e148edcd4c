"""Process settings that must precede the import of torch: how OpenMP's threads wait for each
other, and whether freed memory is retained.

A waiting thread spins, by default for milliseconds: fast on an idle machine, but next to a
busy process it occupies the core that the thread it waits for needs. On two cores six questions took 7.5
s alone and 24.6 s next to a busy process; with `GOMP_SPINCOUNT=3000` 7.6 and 19.2 s, with
`OMP_WAIT_POLICY=PASSIVE` 9.7 and 13.9 s.

glibc returns the memory of freed large tensors to the system, which must zero new pages for the
next layer. With that memory retained, reading 20 documents took 5 to 10% less time on two cores of
an AMD EPYC. A training frees blocks of many sizes, between which retained memory cannot be used
again: of half a billion parameters it grew to 24 GB in 18 steps, and without takes 17 at most in
60.
"""

import ctypes
import os
import sys
from collections.abc import MutableMapping

SHORT_SPIN = "3000"  # rounds
RETAINED_BYTES = 2**30, 2**25  # of freed memory; older versions take no more than the latter
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3  # what mallopt(3) calls M_TRIM_THRESHOLD and M_MMAP_THRESHOLD


def choose_waiting(environment: MutableMapping[str, str] = os.environ) -> None:
    """Have threads spin for a short time, unless the user says how they wait."""
    if not environment.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}:
        environment["GOMP_SPINCOUNT"] = SHORT_SPIN


def retain_freed_memory() -> None:
    """Have glibc retain freed memory for the next tensors; other C libraries have no such choice."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):
        return
    # Where the threshold of mapping is refused, one of trimming would have every large tensor
    # mapped anew.
    if any(library.mallopt(MMAP_THRESHOLD, size) for size in RETAINED_BYTES):
        library.mallopt(TRIM_THRESHOLD, RETAINED_BYTES[0])
