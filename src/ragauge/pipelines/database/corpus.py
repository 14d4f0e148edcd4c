"""Corpora as streams of documents, shard by shard (docs/retrieval.md): local files, and data sets
of the hub.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ragauge.assets import pins, resolver
from ragauge.assets.catalog import entries
from ragauge.errors import UserError, unknown
from ragauge.io.digest import digest
from ragauge.io.files import file_sha256
from ragauge.pipelines.database import hub
from ragauge.pipelines.database.documents import CorpusDocument, ShardShare, read_file

if TYPE_CHECKING:
    from ragauge.pipelines.retrieval.settings import CorpusSettings

logger = logging.getLogger(__name__)

SUFFIXES = (".jsonl", ".jsonl.gz", ".json.gz", ".txt", ".txt.gz", ".bz2")


@dataclass(frozen=True)
class Corpus:
    """Where documents come from, and which field of a JSON record is their text."""

    sources: tuple[str, ...]
    text_field: str = "text"
    limit: int | None = None  # documents that are not blank, from the first

    @classmethod
    def from_settings(cls, settings: CorpusSettings) -> Self:
        return cls(settings.sources, settings.text_field, settings.limit)

    def documents(self, share: ShardShare) -> Iterator[CorpusDocument]:
        """Yield the documents of a shard that are not blank, in order.

        Raises:
            UserError: with file and line.
        """
        parts, share = self._assigned(share)
        position = 0
        documents = 0
        blank = 0
        stream_share = share if self.limit is None else ShardShare()
        for part in parts:
            if part.startswith("hf:"):  # owned: of files that no other shard reads
                reads, owned = hub.read(part, self.text_field, stream_share)
            else:
                reads = read_file(Path(part), self.text_field)
                owned = False
            for read in reads:
                if self.limit is not None and documents >= self.limit:
                    break
                is_assigned = owned or position % share.of == share.number
                if is_assigned or self.limit is not None:
                    document = read()
                    documents += document is not None
                    blank += is_assigned and document is None
                    if document and is_assigned:
                        yield document
                position += not owned
        if blank:
            logger.info(
                "corpus %s: %d records without text left out", ", ".join(self.sources), blank
            )

    def identity(self, share: ShardShare) -> dict[str, Any]:
        """Return what the documents of a shard depend on: the hashes of its files, the revisions of
        its hub data sets, the code that reads them.
        """
        parts, _ = self._assigned(share)
        return {
            "parts": [
                {"hub": part, "revision": hub.revision(part)}
                if part.startswith("hf:")
                else {"file": Path(part).name, "sha256": file_sha256(Path(part))}
                for part in parts
            ],
            "text_field": self.text_field,
            "limit": self.limit,
            "share": [share.number, share.of],
            "code": digest(__name__),
        }

    def _assigned(self, share: ShardShare) -> tuple[list[str], ShardShare]:
        """Return the files and hub data sets that a shard reads, and its share of their documents."""
        parts = [part for source in self.sources for part in _resolve(source)]
        if len(parts) >= share.of and self.limit is None:
            return parts[share.number :: share.of], ShardShare()
        return parts, share


def check_source(source: str, where: str) -> None:
    """Raise UserError if a corpus is neither a name, nor a source, nor existing files."""
    names = _names()
    if source.startswith(pins.REMOTE):
        resolver.refuse_secret(source, where)
        try:
            _ = hub.fields(source) if source.startswith("hf:") else pins.split_pin(source)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
    elif source not in names and not is_asset(source) and not glob(source):
        raise unknown("corpus", source, [*names, "hf:org/name:configuration", "files"], where)


def is_asset(source: str) -> bool:
    """Return whether a corpus is fetched as models are: no stream of the hub, no pattern of files."""
    return _in_full(source).startswith(("pypi:", "http://", "https://", "path:"))


def streamed(sources: Iterable[str]) -> list[str]:
    """Return the streams of the hub among corpora, each in full."""
    return [source for source in map(_in_full, sources) if source.startswith("hf:")]


def _names() -> list[str]:
    return [name for name, entry in entries().items() if entry.kind == "corpus"]


def _in_full(source: str) -> str:
    """Return the source of a corpus of the catalog; others as they are."""
    return entries()[source].source if source in _names() else source


def _resolve(source: str) -> list[str]:
    """Return a source as files, or as one hub data set."""
    stream = _in_full(source)
    if stream.startswith("hf:"):
        hub.fields(stream)  # refuses other spellings
        return [stream]
    if is_asset(source):
        return [str(resolver.resolve(source))]
    paths = sorted(path for path in glob(source) if Path(path).is_file())
    if not paths:
        raise UserError(
            f"corpus {source!r}: no such file; known: {', '.join(_names())}, files, hf:..."
        )
    for path in paths:
        if not path.endswith(SUFFIXES):
            raise UserError(
                f"corpus {path}: unsupported file type; supported: {', '.join(SUFFIXES)}"
            )
    return paths
