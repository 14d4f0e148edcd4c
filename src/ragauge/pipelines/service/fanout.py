"""Search on the servers of a database's parts at once; the merged answer is that of one index over
all.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from statistics import mode

from ragauge.pipelines.retrieval.retriever import About, Neighbours, Query
from ragauge.pipelines.service.client import Client, LostError, RetrievalError

logger = logging.getLogger(__name__)


class Fanout:
    """Searches on the servers of all parts at once."""

    def __init__(self, clients: Sequence[Client], *, partial: bool = False) -> None:
        """One client for each part; `partial`: a lost server is no error."""
        self._clients = list(clients)
        self._partial = partial
        self._about: dict[str, About] = {}

    def search(self, queries: Sequence[Query]) -> list[Neighbours]:
        """Return the neighbours of each query over all parts; `nprobe` is the smallest of the
        parts', `seconds` the longest.

        Raises:
            RetrievalError: a part, or with `partial` every part, gave no answer; parts that do not
                belong together.
        """
        pending = {client: client.start(queries) for client in self._clients}
        answers: dict[str, list[Neighbours]] = {}
        lost: dict[str, LostError] = {}
        try:
            for client, call in pending.items():
                try:
                    neighbours = call.result()
                    self._check(client)
                    answers[client.address] = neighbours
                except LostError as error:
                    if not self._partial:
                        raise
                    logger.warning("partial answer: %s", error)
                    lost[client.address] = error
        finally:
            for call in pending.values():
                call.cancel()
        if not answers:
            raise LostError("; ".join(map(str, lost.values())))
        larger = self._about[next(iter(answers))].metric == "inner_product"
        merged = [
            merge(parts, query.k, larger)
            for query, *parts in zip(queries, *answers.values(), strict=True)
        ]
        return [replace(answer, missing=tuple(lost)) for answer in merged]

    def round_trip_s(self) -> float:
        """Seconds of a message to the furthest server and back (`Client.round_trip_s`)."""
        return max(client.round_trip_s() for client in self._clients)

    def _check(self, client: Client) -> None:
        """Raise RetrievalError, at a server's first answer, if it holds a part of another database
        than the others.
        """
        if client.address in self._about:
            return
        about = client.describe()
        for address, other in self._about.items():
            differing = {name for name, _ in vars(about).items() ^ vars(other).items()}
            differing -= {"index", "vectors"}
            if differing:
                raise RetrievalError(
                    f"retrieval servers {address} and {client.address} hold parts of different"
                    f" databases: they differ in {', '.join(sorted(differing))}"
                )
        self._about[client.address] = about


def merge(parts: Sequence[Neighbours], k: int, larger_is_nearer: bool = False) -> Neighbours:
    """Return the k nearest of the answers of disjoint parts to one query; ties go to the smaller
    id. A part may name a chunk twice (a filled index).

    Raises:
        RetrievalError: a chunk that two parts hold.
    """
    chunks = [chunk for part in parts for chunk in set(part.ids)]
    if len(set(chunks)) < len(chunks):
        raise RetrievalError(
            f"chunk {mode(chunks)} is held by two retrieval servers: their parts must be disjoint"
        )
    sign = -1 if larger_is_nearer else 1
    rows = [neighbour for part in parts for neighbour in part.rows]
    nearest = sorted(rows, key=lambda neighbour: (sign * neighbour.distance, neighbour.id))[:k]
    stages = dict.fromkeys(stage for part in parts for stage in part.seconds)
    seconds = {stage: max(part.seconds.get(stage, 0.0) for part in parts) for stage in stages}
    return Neighbours(nearest, min(part.nprobe for part in parts), seconds)
