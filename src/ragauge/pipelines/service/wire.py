"""Lossless conversion between the package's types and the messages of the retrieval service."""

from collections.abc import Sequence

import numpy as np

from ragauge.errors import UserError
from ragauge.pipelines.retrieval.retriever import Neighbours, Query
from ragauge.pipelines.service.proto import ragauge_pb2 as pb

SERVICE: str = pb.DESCRIPTOR.services_by_name["Retrieval"].full_name


def search_request(queries: Sequence[Query]) -> pb.SearchRequest:
    """Raises UserError on a number that the message cannot represent."""
    request = pb.SearchRequest()
    try:
        for query in queries:
            numbers = {"k": query.k, "nprobe": query.nprobe, "budget_s": query.budget_s}
            tokens = None if query.tokens is None else pb.Tokens(ids=query.tokens)
            request.queries.add(
                text=query.text, tokens=tokens, continuation=query.continuation, **numbers
            )
    except (ValueError, TypeError) as error:
        raise UserError(f"query: {error}") from error
    return request


def query(message: pb.Query) -> Query:
    """Raises UserError on a query that cannot be sent."""
    stated_fields = {
        name: getattr(message, name)
        for name in ("text", "nprobe", "budget_s")
        if message.HasField(name)
    }
    tokens = list(message.tokens.ids) if message.HasField("tokens") else None
    return Query(tokens=tokens, k=message.k, continuation=message.continuation, **stated_fields)


def neighbours_message(answer: Neighbours, queue_s: float) -> pb.Neighbours:
    """Return the neighbours of one query, whose request waited for `queue_s` seconds."""
    return pb.Neighbours(
        neighbours=[
            pb.Neighbour(
                id=answer.ids[i],
                distance=answer.distances[i],
                document=answer.documents[i],
                tokens=answer.tokens[i, : answer.lengths[i]].tolist(),
                continuation=answer.continuations[i, : answer.continuation_lengths[i]].tolist(),
            )
            for i in range(len(answer.ids))
        ],
        nprobe=answer.nprobe,
        chunk_tokens=answer.tokens.shape[1],
        continuation_tokens=answer.continuations.shape[1],
        seconds={"queue": queue_s, **answer.seconds},
    )


def neighbours(message: pb.Neighbours, total_s: float) -> Neighbours:
    """Return the neighbours of one query.

    Of the whole call's seconds, what the server's stages leave is the network's.
    """
    rows = message.neighbours
    tokens, lengths = _padded([row.tokens for row in rows], message.chunk_tokens)
    after = _padded([row.continuation for row in rows], message.continuation_tokens)
    return Neighbours(
        np.array([row.id for row in rows], dtype=np.int64),
        np.array([row.distance for row in rows], dtype=np.float32),
        np.array([row.document for row in rows], dtype=np.int64),
        tokens,
        lengths,
        *after,
        nprobe=message.nprobe,
        seconds={**message.seconds, "network": max(0.0, total_s - sum(message.seconds.values()))},
    )


def _padded(rows: Sequence[Sequence[int]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ((row, width) int32 with zeros after the tokens, (row,) int32 lengths)."""
    padded = np.zeros((len(rows), width), dtype=np.int32)
    for target, row in zip(padded, rows, strict=True):
        target[: len(row)] = row
    return padded, np.array([len(row) for row in rows], dtype=np.int32)
