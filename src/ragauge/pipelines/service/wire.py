"""Lossless conversion between the package's types and the messages of the retrieval service."""

from collections.abc import Sequence

from ragauge.errors import UserError
from ragauge.pipelines.retrieval.retriever import Neighbour, Neighbours, Query
from ragauge.pipelines.service.proto import ragauge_pb2 as pb

SERVICE: str = pb.DESCRIPTOR.services_by_name["Retrieval"].full_name


def search_request(queries: Sequence[Query]) -> pb.SearchRequest:
    """Return the message of a search.

    Raises:
        UserError: a number that the message cannot represent.
    """
    request = pb.SearchRequest()
    try:
        for query in queries:
            tokens = None if query.tokens is None else pb.Tokens(ids=query.tokens)
            request.queries.add(**vars(query) | {"tokens": tokens})
    except (ValueError, TypeError) as error:
        raise UserError(f"query: {error}") from error
    return request


def query(message: pb.Query) -> Query:
    """Return the query of a message.

    Raises:
        UserError: a query that cannot be sent.
    """
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
        neighbours=[pb.Neighbour(**vars(neighbour)) for neighbour in answer.rows],
        nprobe=answer.nprobe,
        seconds={"queue": queue_s, **answer.seconds},
    )


def neighbours(message: pb.Neighbours, total_s: float) -> Neighbours:
    """Return the neighbours of one query.

    Of the whole call's seconds, what the server's stages leave is the network's.
    """
    rows = [
        Neighbour(one.id, one.distance, one.document, list(one.tokens), list(one.continuation))
        for one in message.neighbours
    ]
    network_s = max(0.0, total_s - sum(message.seconds.values()))
    return Neighbours(rows, message.nprobe, {**message.seconds, "network": network_s})
