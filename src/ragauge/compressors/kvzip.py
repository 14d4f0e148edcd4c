"""KVzip (Kim et al., NeurIPS 2025, arXiv 2505.23416), as kvpress 0.5.5 has it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ragauge.compressors.base import Compressor, Context, read_again
from ragauge.engines.protocol import Span

if TYPE_CHECKING:
    from torch import Tensor

SINKS = 4  # first tokens, which all stay


class KVzip(Compressor):
    """The largest attention that a token gets, from any head and token, while the context is read once more. After the
    context, a request to repeat it and the context itself are read, in pieces. Attention is over a piece, its
    repetition and the cache's first tokens alone (section 3.4, "chunked scoring"), not over the rest of the context."""

    reads_text = True
    budget = "all"

    def scores(self, context: Context) -> list[Tensor]:
        import torch

        heads, device = context.cache.shape.kv_heads, context.cache.positions.device
        best = [torch.zeros(count, len(context.span), device=device) for count in heads]
        read_again(context, partial(_note, best, context))
        for scores in best:
            scores[:, :SINKS] = float("inf")
        return best


def _note(
    best: list[Tensor], context: Context, piece: Span, layer: int, q: Tensor, k: Tensor, bias: Tensor | None
) -> None:
    """Raise the scores of a piece to the attention that new tokens pay it."""
    import torch

    from ragauge.engines.decoder import scores

    sinks, new = min(SINKS, piece.start), range(context.cache.length, k.shape[2])
    seen = torch.tensor([*range(sinks), *range(*piece), *new], device=q.device)
    raw = scores(q, k[:, :, seen], None if bias is None else bias[..., seen])[0]
    causal = torch.ones(raw.shape[-2:], dtype=torch.bool, device=q.device).tril(len(seen) - q.shape[2])
    weights = raw.masked_fill(~causal, float("-inf")).softmax(-1)[..., sinks : sinks + len(piece)]
    largest = weights.amax(1).unflatten(0, (best[layer].shape[0], -1)).amax(1)
    at = slice(piece.start - context.span.start, piece.stop - context.span.start)
    best[layer][:, at] = torch.maximum(best[layer][:, at], largest)
