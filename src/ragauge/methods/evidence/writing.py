"""Several texts written side by side, greedily, in one cache: a token of each in every pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ragauge.engines.protocol import Row, SpanEngine

if TYPE_CHECKING:
    from ragauge.engines.cache import KVCache


def write(
    engine: SpanEngine,
    cache: KVCache,
    rows: Sequence[Row],
    *,
    most: Sequence[int],
    stage: str,
    last: Callable[[int], bool] = lambda token: False,
) -> list[list[int]]:
    """Write at most `most` new tokens after each row, which is read first.

    An end-of-text token is left out, a text's `last` token is not.
    """
    written: list[list[int]] = [[] for _ in rows]
    pasts = [row.past for row in rows]
    new = list(rows)
    going = [i for i in range(len(rows)) if most[i]]
    while going:
        step = [new[i] for i in going]
        read = engine.extend(
            cache, step, stage=stage, parallel=True, last_logits=True, tree=bool(step[0].past)
        )
        assert read.last_logits is not None
        tokens = zip(going, read.spans, read.last_logits.argmax(-1).tolist(), strict=True)
        going = []
        for i, span, token in tokens:
            if token in engine.shape.eos:
                continue
            pasts[i] = (*pasts[i], span)
            written[i].append(token)
            if len(written[i]) < most[i] and not last(token):
                new[i] = Row([token], [rows[i].positions[-1] + len(written[i])], pasts[i])
                going.append(i)
    return written
