"""KVzip (Kim et al., NeurIPS 2025, arXiv 2505.23416), as kvpress 0.5.5 has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragauge.engines.protocol import Span
from ragauge.methods.compressors.base import (
    SINKS,
    Compressor,
    Context,
    causal_weights,
    read_again,
)

if TYPE_CHECKING:
    from torch import Tensor


class KVzip(Compressor):
    """The largest attention that a token gets, from any head and token, while the context is read
    once more. After the context, a request to repeat it and the context itself are read, in pieces.
    Attention is over a piece, its repetition and the cache's first tokens alone (section 3.4,
    "chunked scoring"), not over the rest of the context.
    """

    reads_text = True
    budget = "all"

    def scores(self, context: Context) -> list[Tensor]:
        import torch

        from ragauge.engines.decoder import scores

        heads = context.cache.shape.kv_heads
        device = context.cache.positions.device
        best = [torch.zeros(count, len(context.span), device=device) for count in heads]

        def note(piece: Span, layer: int, q: Tensor, k: Tensor, bias: Tensor | None) -> None:
            """Raise the scores of a piece to the attention that new tokens pay it."""
            sinks = min(SINKS, piece.start)
            new = range(context.cache.length, k.shape[2])
            seen = torch.tensor([*range(sinks), *range(*piece), *new], device=q.device)
            raw = scores(q, k[:, :, seen], None if bias is None else bias[..., seen])[0]
            weights = causal_weights(raw, len(seen) - q.shape[2])[..., sinks : sinks + len(piece)]
            largest = weights.amax(1).unflatten(0, (best[layer].shape[0], -1)).amax(1)
            at = slice(piece.start - context.span.start, piece.stop - context.span.start)
            best[layer][:, at] = torch.maximum(best[layer][:, at], largest)

        read_again(context, note)
        for best_of_layer in best:
            best_of_layer[:, :SINKS] = float("inf")
        return best
