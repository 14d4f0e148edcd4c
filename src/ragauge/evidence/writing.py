"""Several texts written side by side, greedily, in one cache: a token of each in every pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ragauge.engines.protocol import Extension, Row, SpanEngine

if TYPE_CHECKING:
    from ragauge.engines.cache import KVCache


def write(
    engine: SpanEngine,
    cache: KVCache,
    rows: Sequence[Row],
    *,
    most: Sequence[int],
    ended: Callable[[int], bool],
    stage: str,
    tree: bool,
) -> list[list[int]]:
    """The new tokens after each row, which is read first; those for which `ended` holds are left out.

    Args:
        most: tokens that may be written after each row.
        ended: whether a text ends with this token.
        tree: how the rows themselves are read; see `SpanEngine.extend`.
    """
    written: list[list[int]] = [[] for _ in rows]
    going = [index for index in range(len(rows)) if most[index]]
    if not going:
        return written
    read = engine.extend(cache, [rows[i] for i in going], stage=stage, parallel=True, last_logits=True, tree=tree)
    pasts = {i: (*rows[i].past, span) for i, span in zip(going, read.spans, strict=True)}
    while going := _taken(going, read, written, most, ended):
        steps = [Row([written[i][-1]], [rows[i].positions[-1] + len(written[i])], pasts[i]) for i in going]
        read = engine.extend(cache, steps, stage=stage, parallel=True, last_logits=True, tree=True)
        for i, span in zip(going, read.spans, strict=True):
            pasts[i] = (*pasts[i], span)
    return written


def _taken(
    going: Sequence[int],
    read: Extension,
    written: list[list[int]],
    most: Sequence[int],
    ended: Callable[[int], bool],
) -> list[int]:
    """Adds each text's next token; those that go on."""
    assert read.last_logits is not None
    for_each = zip(going, read.last_logits.argmax(-1).tolist(), strict=True)
    open_ones = [(i, token) for i, token in for_each if not ended(token)]
    for i, token in open_ones:
        written[i].append(token)
    return [i for i, _ in open_ones if len(written[i]) < most[i]]
