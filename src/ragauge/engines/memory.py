"""Memory that does not suffice, as one kind of error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def allocations_told() -> Iterator[None]:
    """Raise MemoryError where torch's allocator for the CPU fails, which has no exception of its own."""
    try:
        yield
    except RuntimeError as error:
        if "DefaultCPUAllocator: can't allocate memory" not in str(error):
            raise
        raise MemoryError(str(error).partition("DefaultCPUAllocator: ")[2].splitlines()[0]) from None
