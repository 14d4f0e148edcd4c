"""A database in parts: every server holds one, all are asked at once, and the nearest of all answers are kept.

The merged answer is that of one index over all parts, provided the parts share what was trained, search with the same
nprobe, and number chunks and documents as the whole does.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from ragauge.errors import UserError
from ragauge.retrieval.retriever import Neighbours, Query
from ragauge.retrieval.service.client import Client, LostError, Pending, RetrievalError
from ragauge.retrieval.service.wire import About

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PartialNeighbours(Neighbours):
    """An answer that is missing parts of the database."""

    missing: tuple[str, ...] = ()  # addresses of the servers that gave no answer


class Fanout:
    """Asks the servers of all parts at once."""

    def __init__(self, clients: Sequence[Client], *, partial: bool = False) -> None:
        """
        Args:
            clients: one for each part.
            partial: answer without the parts whose server is lost, as `PartialNeighbours`; else that is an error.

        Raises:
            UserError: no clients, or two with the same address.
        """
        counts = Counter(client.address for client in clients)
        if not counts:
            raise UserError("a sharded retrieval service needs at least one server")
        twice = [address for address, count in counts.items() if count > 1]
        if twice:
            raise UserError(f"retrieval server {twice[0]} is named twice: its part would count twice")
        self._clients, self._partial = list(clients), partial
        self._about: dict[str, About] = {}

    def search(self, queries: Sequence[Query]) -> list[Neighbours]:
        """The neighbours of each query over all parts; ties go to the smaller id.

        `nprobe` is the smallest of the parts', `seconds` the longest of each stage: the parts work at the same time.

        Raises:
            RetrievalError: a part, or with `partial` every part, gave no answer; parts that do not belong together.
        """
        pending = [(client, client.start(queries)) for client in self._clients]
        try:
            answers, lost = self._collect(pending)
        finally:
            for _, search in pending:
                search.cancel()  # no effect on calls that have ended
        if not answers:
            raise LostError("; ".join(map(str, lost.values())))
        for error in lost.values():
            logger.warning("partial answer: %s", error)
        larger = self._about[next(iter(answers))].metric == "inner_product"
        merged = [merge(parts, query.k, larger) for query, *parts in zip(queries, *answers.values(), strict=True)]
        return [PartialNeighbours(**vars(found), missing=tuple(lost)) for found in merged] if lost else merged

    def round_trip_s(self) -> float:
        """Seconds of a message to the furthest server and back (`Client.round_trip_s`): all are asked at once."""
        return max(client.round_trip_s() for client in self._clients)

    def _collect(
        self, pending: Sequence[tuple[Client, Pending]]
    ) -> tuple[dict[str, list[Neighbours]], dict[str, LostError]]:
        """(answers, losses) by address, in the order of the clients; without `partial` the first loss is raised."""
        answers: dict[str, list[Neighbours]] = {}
        lost: dict[str, LostError] = {}
        for client, search in pending:
            try:
                found = search.result()
                self._check(client)
                answers[client.address] = found
            except LostError as error:
                if not self._partial:
                    raise
                lost[client.address] = error
        return answers, lost

    def _check(self, client: Client) -> None:
        """Learn once what a server holds, and that it belongs with the others."""
        if client.address in self._about:
            return
        about = client.describe()
        for address, other in self._about.items():
            differing = sorted(key for key, value in about.shared.items() if other.shared[key] != value)
            if differing:
                raise MismatchError(
                    f"retrieval servers {address} and {client.address} hold parts of different databases: they differ "
                    f"in {', '.join(differing)}"
                )
        self._about[client.address] = about


class MismatchError(RetrievalError):
    """Servers whose answers cannot be merged."""


def merge(parts: Sequence[Neighbours], k: int, larger_is_nearer: bool = False) -> Neighbours:
    """The k nearest of the answers of disjoint parts to one query; ties go to the smaller id.

    One part may name a chunk more than once: a filled index has several vectors of it.

    Raises:
        RetrievalError: a chunk that two parts hold.
    """
    ids = np.concatenate([part.ids for part in parts])
    distances = np.concatenate([part.distances for part in parts])
    _check_disjoint([part.ids for part in parts])
    keys = np.where(ids < 0, np.inf, -distances if larger_is_nearer else distances)
    nearest = np.lexsort((ids, keys))[:k]
    rows = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])[nearest]
        for field in fields(Neighbours)
        if field.name not in ("nprobe", "seconds")
    }
    stages = dict.fromkeys(stage for part in parts for stage in part.seconds)
    seconds = {stage: max(part.seconds.get(stage, 0.0) for part in parts) for stage in stages}
    return Neighbours(**rows, nprobe=min(part.nprobe for part in parts), seconds=seconds)


def _check_disjoint(parts: Sequence[np.ndarray]) -> None:
    held, counts = np.unique(np.concatenate([np.unique(ids[ids >= 0]) for ids in parts]), return_counts=True)
    if (counts > 1).any():
        raise MismatchError(
            f"chunk {held[counts > 1][0]} is held by two retrieval servers: their parts must be disjoint"
        )
