"""Search on the servers of a database's parts at once; the merged answer is that of one index over
all.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from ragauge.errors import UserError
from ragauge.pipelines.retrieval.retriever import About, Neighbours, Query
from ragauge.pipelines.service.client import Client, LostError, RetrievalError

logger = logging.getLogger(__name__)


class Fanout:
    """Searches on the servers of all parts at once."""

    def __init__(self, clients: Sequence[Client], *, partial: bool = False) -> None:
        """One client for each part; `partial`: a lost server is no error.

        Raises:
            UserError: the same address twice.
        """
        [(address, count)] = Counter(client.address for client in clients).most_common(1)
        if count > 1:
            raise UserError(
                f"retrieval server {address} is named twice: its part would count twice"
            )
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
            shared = sorted(vars(about).keys() - {"index", "vectors"})
            differing = ", ".join(
                name for name in shared if getattr(about, name) != getattr(other, name)
            )
            if differing:
                servers = f"retrieval servers {address} and {client.address}"
                raise RetrievalError(
                    f"{servers} hold parts of different databases: they differ in {differing}"
                )
        self._about[client.address] = about


def merge(parts: Sequence[Neighbours], k: int, larger_is_nearer: bool = False) -> Neighbours:
    """Return the k nearest of the answers of disjoint parts to one query; ties go to the smaller
    id. A part may name a chunk twice (a filled index).

    Raises:
        RetrievalError: a chunk that two parts hold.
    """
    chunks, counts = np.unique(
        [i for part in parts for i in {*part.ids.tolist()} if i >= 0], return_counts=True
    )
    if (counts > 1).any():
        chunk = chunks[counts > 1][0]
        raise RetrievalError(
            f"chunk {chunk} is held by two retrieval servers: their parts must be disjoint"
        )
    ids = np.concatenate([part.ids for part in parts])
    distances = np.concatenate([part.distances for part in parts])
    nearest = np.lexsort(
        (ids, np.where(ids < 0, np.inf, -distances if larger_is_nearer else distances))
    )[:k]
    names = [
        field.name
        for field in fields(Neighbours)
        if field.name not in ("nprobe", "seconds", "missing")
    ]
    rows: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts])[nearest] for name in names
    }
    stages = dict.fromkeys(stage for part in parts for stage in part.seconds)
    seconds = {stage: max(part.seconds.get(stage, 0.0) for part in parts) for stage in stages}
    return Neighbours(**rows, nprobe=min(part.nprobe for part in parts), seconds=seconds)
