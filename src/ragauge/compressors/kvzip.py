"""KVzip (Kim et al., NeurIPS 2025, arXiv 2505.23416), as kvpress 0.5.5 has it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ragauge.compressors.base import Compressor, Context
from ragauge.engines.protocol import Row, Span
from ragauge.prompts import unit_steps
from ragauge.prompts.templates import token_ids, wrapper

if TYPE_CHECKING:
    from torch import Tensor

REPEAT = "\n\nRepeat the previous context exactly."
GO_ON = "\n\nRepeat the part of the previous context exactly, starting with"
PIECE = 2048  # tokens that are repeated at a time
LEAD_IN = 8  # of the piece before
SINKS = 4  # first tokens, which all stay


class KVzip(Compressor):
    """The largest attention that a token gets, from any head and token, while the context is read once more.

    After the context, a request to repeat it and the context itself are read, in pieces. Attention is over a piece, its
    repetition and the cache's first tokens alone (section 3.4, "chunked scoring"), not over the rest of the context.
    """

    reads_text = True
    budget = "all"

    def scores(self, context: Context) -> list[Tensor]:
        import torch

        shape, length = context.cache.shape, context.cache.length
        best = [torch.zeros(h, len(context.span), device=context.cache.positions.device) for h in shape.kv_heads]
        requests = self._pieces(context)
        scratch = context.engine.join(context.cache, [Span(0, length)], max(len(ids) for _, ids in requests))
        start = float(context.cache.positions[length - 1]) + 1
        for piece, ids in requests:
            scratch.watch = partial(_note, best, context, piece)
            row = Row(ids, unit_steps(start, len(ids)), (Span(0, length),))
            context.engine.extend(scratch, [row], stage="compress", offline=context.offline)
            scratch.truncate(length)
        for scores in best:
            scores[:, :SINKS] = float("inf")
        return best

    @staticmethod
    def _pieces(context: Context) -> list[tuple[Span, list[int]]]:
        """Each piece's slots, and the token ids of the request to repeat it with the repetition."""
        tokenizer, ids = context.engine.tokenizer, list(context.ids)
        turn = wrapper("chat", tokenizer)[1] if getattr(tokenizer, "chat_template", None) else "\n"
        repeat, go_on, reply = (token_ids(tokenizer, text) for text in (REPEAT, GO_ON, turn))
        pieces = []
        for at in range(0, len(ids), PIECE):
            lead = [*go_on, *ids[at - LEAD_IN : at]] if at else repeat
            piece, start = ids[at : at + PIECE], context.span.start + at
            pieces.append((Span(start, start + len(piece)), [*lead, *reply, *piece]))
        return pieces


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
