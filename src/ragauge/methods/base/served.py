"""Encoders and rerankers behind a server, as sources `openai:NAME`.

`RAGAUGE_ENCODER_BASE_URL` and `RAGAUGE_RERANKER_BASE_URL` name their servers, with `_API_KEY` or
`_API_KEY_FILE`; without them the variables of `OPENAI`. What they compute is not known: their calls
count no operations.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from pydantic import AliasChoices, BaseModel, Field

from ragauge.assets import resolver
from ragauge.engines.backends.openai import PREFIX, server_of
from ragauge.engines.served.http import EndpointError, JsonServer, Reply
from ragauge.errors import UserError
from ragauge.methods.rankers.base import normalised

ENCODER = "RAGAUGE_ENCODER"  # begins the variables of its server
RERANKER = "RAGAUGE_RERANKER"
BATCH = 32  # texts of a request: the most that TEI takes, unless it is told otherwise


class _Entry(BaseModel):
    index: int
    values: Any = Field(validation_alias=AliasChoices("embedding", "relevance_score", "score"))


class _Reply(BaseModel):
    entries: list[_Entry] = Field(validation_alias=AliasChoices("data", "results"))


@dataclass
class Served:
    """A model behind a server: an encoder, or a reranker as vLLM, Jina and TEI serve it."""

    server: JsonServer
    model: str
    documents: str = "documents"  # the key of what is reranked; TEI's is `texts`
    widths: set[int] = field(default_factory=set)  # of its replies: one, else they are refused

    def embed(self, texts: Sequence[str], query: bool = False) -> np.ndarray:
        """Return embeddings (text, dim) float32 of length 1.

        Raises:
            UserError: the server gives none, or of several dimensions.
        """
        return normalised(self._values("embeddings", "input", texts))

    def scores(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """Return a score for each document, higher is better: (document,) float32.

        Raises:
            UserError: the server gives none.
        """
        try:
            return self._values("rerank", self.documents, documents, query=query)[:, 0]
        except EndpointError as error:
            if self.documents == "texts" or "texts" not in error.detail:
                raise
        self.documents = "texts"
        return self.scores(query, documents)

    def encoding_macs(self, *_: object, query: bool = False) -> int:
        return 0

    pair_macs = encoding_macs

    def _values(self, path: str, key: str, texts: Sequence[str], **body: str) -> np.ndarray:
        """Return a list of numbers for each text: (text, number)."""
        parts = []
        for start in range(0, len(texts), BATCH):
            part = texts[start : start + BATCH]
            sent = {"model": self.model, **body, key: part}
            parts.append(self.server.ask(path, sent, partial(_read, count=len(part)), self.model))
            self.widths.add(parts[-1].shape[1])
        if len(self.widths) > 1:
            raise UserError(
                f"endpoint {self.server.url}: embeddings of dimensions {sorted(self.widths)}"
            )
        return np.concatenate(parts)


def _read(reply: Reply, count: int) -> np.ndarray:
    """Raises ValueError: other than a list of finite numbers, or a number, for each text."""
    content = b"".join(reply.pieces)
    if content.lstrip().startswith(b"["):  # TEI's scores
        content = b'{"results": %s}' % content
    entries = sorted(_Reply.model_validate_json(content).entries, key=lambda entry: entry.index)
    if [entry.index for entry in entries] != [*range(count)]:
        raise ValueError(f"{len(entries)} entries in the reply, not one for each of {count}")
    array = np.array([entry.values for entry in entries], np.float32).reshape(count, -1)
    if not np.isfinite(array).all():
        raise ValueError("a number in the reply is not finite")
    return array


def served(source: str, variables: str) -> Served:
    """Return a model at the server of the variables that begin so, or else of `OPENAI`.

    Raises:
        UserError: they name none.
    """
    prefix = variables if f"{variables}_BASE_URL" in os.environ else "OPENAI"
    return Served(server_of(source, prefix), source.removeprefix(PREFIX))


def fingerprint(source: str) -> str:
    """Return what embeddings depend on: the hash of an encoder's files, or a server's address."""
    if source.startswith(PREFIX):
        return f"{source} of {served(source, ENCODER).server.url}"
    return resolver.fingerprint(source)
