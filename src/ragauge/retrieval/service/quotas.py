"""How much each client may ask for in a second: buckets that hold one second's worth."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields
from urllib.parse import unquote

import grpc

from ragauge.retrieval.service.admission import RefusedError

MOST_CLIENTS = 4096  # whose buckets are kept; beyond that, the one not seen for longest starts afresh


@dataclass(frozen=True)
class Rates:
    """The most that one client may ask for in a second; None: no limit."""

    requests: float | None = None
    queries: float | None = None
    lists: float | None = None  # nprobe of the searches, summed over the queries


class Quotas:
    """The buckets of all clients. Memory: three numbers for each of at most `MOST_CLIENTS` clients."""

    def __init__(self, rates: Rates, clock: Callable[[], float] = time.monotonic) -> None:
        self._rates = {f.name: rate for f in fields(rates) if (rate := getattr(rates, f.name)) is not None}
        self._clock = clock
        self._lock = threading.Lock()
        self.clients: OrderedDict[str, tuple[float, dict[str, float]]] = OrderedDict()

    def take(self, client: str, requests: int, queries: int, lists: int) -> None:
        """Count a request. Raises RefusedError, counting nothing, if the client is over one of its limits.

        A request of more than a second's worth passes when the bucket is full, and the client then pays it off.
        """
        if not self._rates:
            return
        asked = {"requests": requests, "queries": queries, "lists": lists}
        with self._lock:
            levels = self._filled(client)
            for kind, rate in self._rates.items():
                if (short := min(asked[kind], rate) - levels[kind]) > 1e-9:
                    raise RefusedError(
                        grpc.StatusCode.UNAVAILABLE,
                        f"over the limit of {rate:g} {kind} a second for one client; ask again in {short / rate:.2f} s",
                    )
            for kind in self._rates:
                levels[kind] -= asked[kind]

    def _filled(self, client: str) -> dict[str, float]:
        """The levels of a client's buckets now."""
        now = self._clock()
        seen, levels = self.clients.pop(client, (now, dict(self._rates)))
        for kind, rate in self._rates.items():
            levels[kind] = min(rate, levels[kind] + (now - seen) * rate)
        self.clients[client] = (now, levels)
        if len(self.clients) > MOST_CLIENTS:
            self.clients.popitem(last=False)
        return levels


def client_of(peer: str) -> str:
    """A client's name from gRPC's name of its connection: the address without the port; `unix` for a socket."""
    kind, _, address = unquote(peer).partition(":")
    return address.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else kind
