"""FINCH (Corallo and Papotti, TACL 2024), as kvpress 0.5.5 has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ragauge.methods._compressors._base import Compressor, Context, Window, by_group

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.cache import Watch


class Finch(Compressor):
    """Attention of the question, each of its tokens weighted by the number of keys it sees; keys move together."""

    question_aware: ClassVar[bool] = True
    contiguous: ClassVar[bool] = True

    def __init__(self, question: int) -> None:
        """
        Args:
            question: its tokens, the last ones of the prompt, which are all kept.
        """
        self.window = Window(question)

    def watch(self) -> Watch:
        return self.window

    def scores(self, context: Context) -> list[Tensor]:
        import torch
        import torch.nn.functional as F

        found = []
        for layer, queries in sorted(self.window.queries.items()):
            before = context.cache.length - queries.shape[1]
            seen = torch.arange(before + 1, context.cache.length + 1, device=queries.device)
            weights = (self.window.attention(layer, context.cache)[..., :before] * seen[:, None]).mean(1)
            grouped = by_group(weights, context.cache.shape.kv_heads[layer])
            found.append(F.pad(grouped, (0, queries.shape[1]), value=float("inf")))
        return found
