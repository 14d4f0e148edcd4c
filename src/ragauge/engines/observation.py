"""Attention weights as they are observed during a pass: the mean over layers, heads and query tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ragauge.engines.cache import Watch
from ragauge.engines.decoder import scores
from ragauge.engines.layout import Layout
from ragauge.engines.protocol import Observed
from ragauge.engines.spans import Row


class AttentionMean:
    """Accumulates each row's attention weights over layers, heads and observed query tokens."""

    def __init__(self, layers: int, observed: Observed, rows: Sequence[Row], device: torch.device) -> None:
        self.layers, self.observed, self.rows = layers, observed, rows
        self.sums = [torch.zeros(r.past_length + len(r.ids), device=device) for r in rows]

    def observer(self, layout: Layout, batch: Sequence[int]) -> Watch:
        """The hook for one forward pass over these rows, or over a chunk of one of them."""

        def observe(layer: int, q: Tensor, k: Tensor, bias: Tensor | None) -> None:
            for row, index in enumerate(batch):
                new, keys = layout.lengths[row], layout.lengths[row] + layout.past[row]
                first = self._first(index, new, keys)
                if first < new:
                    weights = self._weights(q[row, :, first:new], k[row, :, :keys], bias, row, first, layout.past[row])
                    self.sums[index][:keys] += weights / self.layers

        return observe

    def means(self) -> tuple[Tensor, ...]:
        """A row: the mean weight of each key (key,)."""
        if self.observed == "last":
            return tuple(self.sums)
        return tuple(total / len(row.ids) for total, row in zip(self.sums, self.rows, strict=True))

    def _first(self, index: int, new: int, keys: int) -> int:
        """The first observed of a pass's `new` tokens: none of a chunk, where only the row's last token is."""
        if self.observed == "all":
            return 0
        return new - 1 if keys == len(self.sums[index]) else new

    @staticmethod
    def _weights(q: Tensor, k: Tensor, bias: Tensor | None, row: int, first: int, past: int) -> Tensor:
        """Weights (key,) of queries (head, query, dim) on keys (kv_head, key, dim): the heads' mean, queries' sum."""
        part = None if bias is None else bias[row : row + 1, :, first : first + q.shape[1], : k.shape[1]]
        raw = scores(q[None], k[None], part)[0]
        causal = torch.ones(raw.shape[-2:], dtype=torch.bool, device=raw.device).tril(past + first)
        return raw.masked_fill(~causal, float("-inf")).softmax(-1).mean(0).sum(0)
