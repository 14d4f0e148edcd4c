"""A record of calls, for everything that runs a model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ragauge.cost.trace import Call, Trace


class Traced:
    """Calls are recorded while `tracing`."""

    _trace: Trace | None = None

    def synchronize(self) -> None:
        """Wait until the device has finished its work; does nothing if calls return with their results."""

    @contextmanager
    def tracing(self) -> Iterator[Trace]:
        """Record every call made inside the block into the list it yields."""
        outer, self._trace = self._trace, []
        try:
            yield self._trace
        finally:
            self._trace = outer

    def note(self, call: Call) -> None:
        """Add a call to the trace."""
        if self._trace is not None:
            self._trace.append(call)
