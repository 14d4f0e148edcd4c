"""KVzip (Kim et al., NeurIPS 2025, arXiv 2505.23416), as kvpress 0.5.5 has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ragauge.engines.protocol import Row, Span
from ragauge.methods._compressors._base import Compressor, Context
from ragauge.prompts import unit_steps

if TYPE_CHECKING:
    from torch import Tensor

REPEAT = "\n\nRepeat the previous context exactly."
GO_ON = "\n\nRepeat the part of the previous context exactly, starting with "
PIECE = 2048  # tokens that are repeated at a time
LEAD_IN = 8  # of the piece before
SINKS = 4  # first tokens, which are kept


class KVzip(Compressor):
    """The largest attention that a token gets, from any head and token, while the context is read once more.

    After the context, a request to repeat it and the context itself are read, in pieces; what is kept of the heads is
    ragged, by one threshold over all layers.
    """

    question_aware: ClassVar[bool] = False
    reads_text: ClassVar[bool] = True
    even: ClassVar[bool] = False

    def scores(self, context: Context) -> list[Tensor]:
        import torch

        shape, length = context.cache.shape, context.cache.length
        best = [torch.zeros(h, len(context.span), device=context.cache.positions.device) for h in shape.kv_heads]

        def watch(layer: int, q: Tensor, k: Tensor, bias: Tensor | None) -> None:
            from ragauge.engines.decoder import scores

            raw = scores(q, k, bias)[0]
            causal = torch.ones(raw.shape[-2:], dtype=torch.bool, device=q.device).tril(k.shape[2] - q.shape[2])
            weights = raw.masked_fill(~causal, float("-inf")).softmax(-1)[..., context.span.start : context.span.stop]
            found = weights.amax(1).unflatten(0, (shape.kv_heads[layer], -1)).amax(1)
            best[layer].copy_(torch.maximum(best[layer], found))

        scratch = context.engine.join(context.cache, [Span(0, length)], PIECE + len(REPEAT) + len(GO_ON))
        scratch.watch = watch
        start = float(context.cache.positions[length - 1]) + 1
        for ids in self._pieces(context):
            row = Row(ids, unit_steps(start, len(ids)), (Span(0, length),))
            context.engine.extend(scratch, [row], stage="compress", offline=context.offline)
            scratch.truncate(length)
        for scores in best:
            scores[:, :SINKS] = float("inf")
        return best

    @staticmethod
    def _pieces(context: Context) -> list[list[int]]:
        """The token ids of each request with its piece of the context."""
        tokenizer, ids = context.engine.tokenizer, list(context.ids)
        repeat, go_on = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (REPEAT, GO_ON))
        pieces = []
        for at in range(0, len(ids), PIECE):
            lead = [*go_on, *ids[at - LEAD_IN : at]] if at else repeat
            pieces.append([*lead, *ids[at : at + PIECE]])
        return pieces
