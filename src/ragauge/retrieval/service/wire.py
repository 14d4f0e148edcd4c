"""Lossless conversion between our types and the messages of the retrieval service."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from ragauge.errors import UserError
from ragauge.retrieval.retriever import Neighbours, Query
from ragauge.retrieval.service.proto import ragauge_pb2 as pb

SERVICE: str = pb.DESCRIPTOR.services_by_name["Retrieval"].full_name
WIDEST = 1 << 16  # tokens of a neighbour's row: a reply must not make the client take memory beyond its own size


@dataclass(frozen=True)
class About:
    """What a server holds. Servers whose answers are merged agree in all but `index` and `vectors`."""

    index: str  # digest
    tokenizer: str  # digest
    encoder: str  # digest
    metric: str  # "l2" or "inner_product"
    vectors: int
    max_nprobe: int  # the largest nprobe of a search; 0 if it has none
    vocabulary: int  # token ids are below it
    chunk_tokens: int

    @property
    def shared(self) -> dict[str, object]:
        """The fields in which servers must agree for their answers to be merged."""
        return {key: value for key, value in asdict(self).items() if key not in ("index", "vectors")}


@dataclass(frozen=True)
class RequestLimits:
    """The most that one request may ask for, so that none can take the server's memory or time from the others."""

    message_bytes: int = 1 << 20
    queries: int = 256
    k: int = 256
    continuation: int = 16  # chunks
    tokens: int = 4096
    characters: int = 32768
    chunks: int = 16384  # in one reply: sum of k * (1 + continuation)
    concurrent: int = 64  # requests under way
    work: int = 1 << 18  # nprobe of one request's searches, summed over its queries


def request(request_id: str, queries: Sequence[Query]) -> pb.SearchRequest:
    """Raises UserError on a number that the message cannot represent."""
    try:
        return pb.SearchRequest(request_id=request_id, queries=[_query_message(query) for query in queries])
    except (ValueError, TypeError) as error:
        raise UserError(f"request {request_id}: {error}") from error


def _query_message(query: Query) -> pb.Query:
    message = pb.Query(k=query.k, nprobe=query.nprobe, budget_s=query.budget_s, continuation=query.continuation)
    if query.text is not None:
        message.text = query.text
    else:
        message.tokens.ids.extend(query.tokens or ())
    return message


def query(message: pb.Query) -> Query:
    """Raises UserError on a query that cannot be sent."""
    is_text = message.WhichOneof("content") == "text"
    return Query(
        tokens=None if is_text else list(message.tokens.ids),
        text=message.text if is_text else None,
        k=message.k,
        nprobe=message.nprobe if message.HasField("nprobe") else None,
        budget_s=message.budget_s if message.HasField("budget_s") else None,
        continuation=message.continuation,
    )


def reply(request_id: str, results: Sequence[Neighbours], queue_s: float) -> pb.SearchReply:
    """The reply to a request that waited for `queue_s` seconds before its search."""
    return pb.SearchReply(request_id=request_id, results=[_neighbours_message(found, queue_s) for found in results])


def _neighbours_message(found: Neighbours, queue_s: float) -> pb.Neighbours:
    return pb.Neighbours(
        neighbours=[
            pb.Neighbour(
                id=found.ids[i],
                distance=found.distances[i],
                document=found.documents[i],
                tokens=found.tokens[i, : found.lengths[i]].tolist(),
                continuation=found.continuations[i, : found.continuation_lengths[i]].tolist(),
            )
            for i in range(len(found.ids))
        ],
        nprobe=found.nprobe,
        chunk_tokens=found.tokens.shape[1],
        continuation_tokens=found.continuations.shape[1],
        seconds={"queue": queue_s, **found.seconds},
    )


def neighbours(message: pb.Neighbours) -> Neighbours:
    """Raises ValueError on a message whose tokens do not fit the lengths that it states."""
    rows = message.neighbours
    tokens, lengths = _padded([row.tokens for row in rows], message.chunk_tokens)
    continuations, continuation_lengths = _padded([row.continuation for row in rows], message.continuation_tokens)
    return Neighbours(
        ids=np.array([row.id for row in rows], dtype=np.int64),
        distances=np.array([row.distance for row in rows], dtype=np.float32),
        documents=np.array([row.document for row in rows], dtype=np.int64),
        tokens=tokens,
        lengths=lengths,
        continuations=continuations,
        continuation_lengths=continuation_lengths,
        nprobe=message.nprobe,
        seconds=dict(message.seconds),
    )


def _padded(rows: Sequence[Sequence[int]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """((row, width) int32 with zeros after the tokens, (row,) int32 lengths)."""
    if width > WIDEST:
        raise ValueError(f"the message states rows of {width} tokens; the most is {WIDEST}")
    if any(len(row) > width for row in rows):
        raise ValueError(f"a row of tokens is longer than the {width} that the message states")
    padded = np.zeros((len(rows), width), dtype=np.int32)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded, np.array([len(row) for row in rows], dtype=np.int32)


def description(about: About, limits: RequestLimits) -> pb.Description:
    """The answer to Describe."""
    return pb.Description(**asdict(about), limits=pb.Limits(**asdict(limits)))


def about(message: pb.Description) -> About:
    """What a description says of a server's index."""
    return About(**{name: getattr(message, name) for name in About.__dataclass_fields__})
