"""How similar the chunks found by a stale query are to those of a fresh one (PipeRAG, appendix D.1
and Table 2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ragauge.cost.machine import provenance
from ragauge.errors import UserError
from ragauge.io import resumed
from ragauge.io.digest import digest
from ragauge.io.files import text_sha256, write_file
from ragauge.methods.rankers.base import TextEncoder, normalised
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.database.embed import Embeddings, EncoderChoice
from ragauge.pipelines.evaluation import texts
from ragauge.pipelines.retrieval.reports import ComparedQueries, StalenessReport
from ragauge.pipelines.retrieval.retriever import Query, Retriever, Searcher
from ragauge.pipelines.retrieval.settings import StalenessSettings

STALE_TOKENS = (1, 2, 4, 8, 16, 32, 64)  # the paper's


@dataclass(frozen=True)
class Comparison:
    """The searches of a comparison, and the encoder that compares."""

    searcher: Searcher
    database: Database
    encoder: TextEncoder
    nprobe: int | None = None  # of a search; None: the index's own
    stale_tokens: tuple[int, ...] = STALE_TOKENS

    def compare(self, key: str, ids: Sequence[int]) -> list[ComparedQueries]:
        """Compare the queries of all places of one text; none if it is too short.

        Fresh queries begin a chunk apart, the first with room for the stalest one before it.

        Raises:
            UserError: the retriever failed.
        """
        size = self.database.chunk_tokens
        delays = (0, *self.stale_tokens)
        starts = range(-(-max(delays) // size) * size, len(ids) - size + 1, size)
        queries = [
            Query(
                tokens=tuple(ids[start - delay : start - delay + size]),
                k=1,
                nprobe=self.nprobe,
                continuation=0,
            )
            for start in starts
            for delay in delays
        ]
        nearest = [next(iter(answer.ids), -1) for answer in self.searcher.search(queries)]
        vectors = self._vectors({chunk for chunk in nearest if chunk >= 0})
        compared = []
        for row, start in enumerate(starts):
            chunks = nearest[row * len(delays) : (row + 1) * len(delays)]
            cosine = [_cosine(vectors, chunks[0], stale) for stale in chunks[1:]]
            compared.append(ComparedQueries(key=key, start=start, chunks=chunks, cosine=cosine))
        return compared

    def _vectors(self, chunks: set[int]) -> dict[int, np.ndarray]:
        """Return the unit vector (dim,) of each chunk."""
        if not chunks:
            return {}
        ids = np.array(sorted(chunks))
        decode = self.database.tokenizer.decode
        decoded = [decode(row) for row in self.database.tokens(ids)]
        return dict(zip(ids.tolist(), normalised(self.encoder.encode(decoded)), strict=True))


def _cosine(vectors: dict[int, np.ndarray], fresh: int, stale: int) -> float | None:
    if -1 in (fresh, stale):
        return None
    return 1.0 if stale == fresh else float(vectors[fresh] @ vectors[stale])


def write_report(folder: Path, settings: StalenessSettings, out: Path, threads: int | None) -> None:
    """Compare the queries of a database's evaluation texts, for the settings' minutes.

    Args:
        folder: the database.
        settings: of the comparison.
        out: the file of the report; a file next to it has the texts of an unfinished comparison,
            with which the next call goes on.
        threads: of the encoder and of a search; None: the libraries' own choice.

    Raises:
        UserError: a file is missing or damaged, or the texts are too short.
    """
    vectors = Embeddings(folder, 0).manifest
    # that the vectors of the index were made with
    encoder = EncoderChoice(vectors["encoder"], vectors["engine"], threads)
    retriever = Retriever.open(folder, settings.index, encoder)
    database = retriever.database
    choice = EncoderChoice(settings.encoder, settings.engine, threads)
    comparison = Comparison(retriever, database, choice.load(), settings.nprobe)
    is_held_out = settings.evaluation in (None, settings.database)
    evaluation = None if is_held_out else settings.evaluation
    read = texts(database, settings.tokens, settings.limit, evaluation)
    unfinished = out.with_name(f".{out.name}.texts")
    identity = text_sha256(
        retriever.index.sha256,
        choice.sha256,
        settings.nprobe,
        settings.tokens,
        digest(__name__),
        [text.key for text in read],
    )
    compared = resumed.results(
        unfinished,
        identity,
        read,
        lambda text: [query.model_dump() for query in comparison.compare(text.key, text.ids)],
        settings.minutes,
    )
    queries = [query for text in compared for query in text]
    if not queries:
        longest = max(comparison.stale_tokens) + database.chunk_tokens
        raise UserError(
            f"--tokens: {settings.tokens} are too few for the stalest query; it needs at least {longest}"
        )
    recipe = retriever.index.recipe
    report = StalenessReport(
        **settings.model_dump(include={"encoder", "database", "index", "evaluation", "tokens"}),
        encoder_sha256=choice.sha256,
        nprobe=settings.nprobe or recipe.default_nprobe,
        filled=recipe.filled,
        texts=len(compared),
        stale_tokens=list(comparison.stale_tokens),
        provenance=provenance(),
        queries=queries,
    )
    write_file(out, f"{report.model_dump_json(indent=1)}\n".encode())
    if len(compared) == len(read):
        unfinished.unlink()
