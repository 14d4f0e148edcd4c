"""Expected Attention (Devoto et al., 2025, arXiv 2510.00636), as kvpress 0.5.5 has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragauge.methods.compressors.base import (
    ALL_QUERIES,
    SINKS,
    Compressor,
    Context,
    Window,
    by_group,
)

if TYPE_CHECKING:
    from torch import Tensor

FUTURE = 512  # positions after the context at which queries are expected


class ExpectedAttention(Compressor):
    """The attention that queries like the context's will pay: they are taken for a Gaussian at the
    next positions.

    score = mean over the heads that share keys of softmax(k mu / sqrt d + k Sigma k / 2d), times
    the value's norm; mu and Sigma are the mean and covariance of the context's queries without
    rotation, rotated by the average of the next positions. With ALiBi each key has its bias at the
    first of them.
    """

    def __init__(self, question_tokens: int) -> None:
        super().__init__(question_tokens)
        self.window: Window = Window(ALL_QUERIES)

    def scores(self, context: Context) -> list[Tensor]:
        return [self._scores(context, layer) for layer in range(context.cache.shape.layers)]

    def _scores(self, context: Context, layer: int) -> Tensor:
        import torch.nn.functional as F

        sinks = min(SINKS, len(context.span) - 1)
        mean, covariance = self._queries(context, layer, sinks)
        heads = context.cache.shape.heads[layer]
        kv_heads = context.cache.shape.kv_heads[layer]
        keys = context.keys(layer)[:, sinks:].float().repeat_interleave(heads // kv_heads, 0)
        raw = (keys @ mean[:, :, None])[..., 0] / keys.shape[-1] ** 0.5
        raw = raw + ((keys @ covariance) * keys).sum(-1) / (2 * keys.shape[-1])
        if context.cache.shape.position == "alibi":
            at = context.cache.positions[context.span.start + sinks : context.span.stop]
            raw = raw + keys.new_tensor(context.cache.shape.alibi_slopes)[:, None] * (
                at - at[-1] - 1
            )
        weights = by_group(raw.softmax(-1), kv_heads)
        scores = weights * context.values(layer)[:, sinks:].float().norm(dim=-1)
        return F.pad(scores, (sinks, 0), value=float("inf"))

    def _queries(self, context: Context, layer: int, sinks: int) -> tuple[Tensor, Tensor]:
        """Return mean (head, dim) and covariance (head, dim, dim) of the queries expected after the
        context.
        """
        import torch

        from ragauge.engines.rope import rotate, rotate_further, rotation

        shape = context.cache.shape
        cache = context.cache
        at = cache.positions[context.span.start : context.span.stop]
        q = self.window.queries[layer][:, -len(context.span) :].float()
        q = rotate_further(q, -at, shape, layer) if shape.is_rotated(layer) else q
        q = q[:, sinks:]
        mean = q.mean(1)
        centred = q - mean[:, None]
        covariance = centred.transpose(1, 2) @ centred / q.shape[1]
        if not shape.is_rotated(layer):
            return mean, covariance
        future = at[-1] + 1 + torch.arange(FUTURE, device=at.device)
        cos, sin = (x.mean((0, 1)) for x in rotation(future, shape, layer))
        turned = rotate(covariance, cos, sin).transpose(1, 2)
        return rotate(mean, cos, sin), rotate(turned, cos, sin).transpose(1, 2)
