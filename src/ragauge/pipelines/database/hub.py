"""Corpora of the hub as streams of their documents."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ragauge.assets import pins
from ragauge.assets.hub import dataset_commit
from ragauge.assets.pins import Pin
from ragauge.errors import UserError
from ragauge.io.redaction import redacted
from ragauge.pipelines.database.documents import ParseDocument, ShardShare, parse_record

SOURCE = re.compile(r"hf:(?P<path>[\w.-]+/[\w.-]+)(:(?P<name>[\w.-]+))?(@(?P<revision>[\w.-]+))?")


def fields(source: str) -> dict[str, str | None]:
    """Path, configuration (name) and revision of a source.

    Raises:
        UserError: it is not spelled so.
    """
    match = SOURCE.fullmatch(source)
    if match is None:
        raise UserError(f"corpus {source!r}: must be hf:org/name:configuration@revision")
    return match.groupdict()


def revision(source: str) -> str:
    """Return the commit that the source names or the lock in use has, else the hub's current one."""
    return pinned(source).revision or _commit(source)


def pinned(source: str, commit: bool = False) -> Pin:
    """Return the revision that the source names or the lock in use has; with `commit`, its commit
    on the hub now.
    """
    pin = pins.required_pin("corpora", source, Pin(revision=fields(source)["revision"]))
    return Pin(revision=_commit(source, pin.revision)) if commit and not pin.is_exact else pin


def _commit(source: str, revision: str | None = None) -> str:
    with _asking(source):
        return dataset_commit(str(fields(source)["path"]), revision)


@contextmanager
def _asking(source: str) -> Iterator[None]:
    """Raise any error of the block as one of the hub: there are many types, of the network, of the
    hub, of two generations of its HTTP library, of the parser.
    """
    try:
        yield
    except Exception as error:
        reason = redacted(" ".join(str(error).split()))[:200]
        raise UserError(
            f"corpus {source}: the hub does not answer ({type(error).__name__}: {reason}); name local files"
        ) from error


def read(source: str, text_field: str, share: ShardShare) -> tuple[Iterator[ParseDocument], bool]:
    """Return the documents of a hub data set as a stream, and whether they are of files that only
    this shard reads. With at least as many files as shards, no shard downloads another's.

    Raises:
        UserError: the hub cannot be reached.
    """
    from datasets import load_dataset

    named = fields(source)
    commit = pinned(source).revision
    with _asking(source):
        stream: Any = load_dataset(
            named["path"], named["name"], revision=commit, split="train", streaming=True
        )
        owned = 1 < share.of <= getattr(stream, "num_shards", 1)
        return _read_stream(
            source, text_field, stream.shard(share.of, share.number) if owned else stream
        ), owned


def _read_stream(source: str, text_field: str, stream: Any) -> Iterator[ParseDocument]:
    with _asking(source):
        for number, record in enumerate(stream):
            yield partial(parse_record, record, text_field, f"{source}: record {number}")
