"""An engine without weights, which records the same calls and computes nothing but shapes."""

from collections.abc import Sequence

import torch

from ragauge.cost.hardware import Precision
from ragauge.cost.shape import Shape
from ragauge.engines.cache import KVCache
from ragauge.engines.passes import Ended
from ragauge.engines.protocol import CallOptions, Extension
from ragauge.engines.recorded import RecordedEngine
from ragauge.engines.spans import Row

FULL_PRECISION = Precision()


class ShapeLM(RecordedEngine):
    """Every score is zero, every token 0.

    Observed attention decreases along the prompt, so steeply that each document outweighs all later
    ones together: attention sort then never converges early, and its trace has all rounds, as on
    almost every real prompt.
    """

    timed = False

    def __init__(self, shape: Shape, precision: Precision = FULL_PRECISION) -> None:
        super().__init__(shape, None, getattr(torch, precision.dtype), torch.device("meta"))
        self.precision = precision

    def compute(self, cache: KVCache, rows: Sequence[Row], options: CallOptions) -> Extension:
        spans = []
        attention = []
        for row in rows:
            spans.append(row.written(cache.length))
            cache.length += len(row.ids) - len(row.recomputed)
            if options.attention:
                # each entry more than all that follow it; in fp64, in which that holds for about
                # 900 keys
                keys = torch.arange(row.past_length + len(row.ids), dtype=torch.float64)
                attention.append(0.45**keys)
        lengths = [len(row.ids) for row in rows]
        states = lengths if options.layers else []
        return Extension(
            tuple(spans),
            torch.zeros(len(rows), 1) if options.last_logits else None,
            tuple(torch.zeros(n - 1) for n in lengths) if options.logp else (),
            tuple(attention),
            tuple(torch.zeros(len(at), 1) for at in options.logits_at),
            tuple(torch.empty(n, self.shape.d_model, device="meta") for n in states),
        )

    def decode(
        self, cache: KVCache, ids: list[int], position: float, most: int, ended: Ended | None
    ) -> list[int]:
        """See `RecordedEngine.decode`: nothing ends a response before `most` tokens."""
        cache.length += most - len(ids)
        return [*ids, *[0] * (most - len(ids))]
