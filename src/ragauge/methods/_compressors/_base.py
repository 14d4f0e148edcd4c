"""What a compressor sees and gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ragauge.engines.protocol import Span, SpanEngine

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.cache import KVCache, Watch


Budget = Literal["head", "layer", "all"]
"""What keeps the same share: every head; every layer, its heads by one threshold; all heads of all layers together."""


@dataclass(frozen=True)
class Context:
    """Tokens to compress: the last ones of a cache."""

    engine: SpanEngine
    cache: KVCache
    span: Span  # of the tokens
    ids: Sequence[int]  # theirs; empty for compressors that see the question
    offline: bool

    def keys(self, layer: int) -> Tensor:
        """(kv_head, token, dim)."""
        return self.cache.k[layer][:, self.span.start : self.span.stop]

    def values(self, layer: int) -> Tensor:
        """(kv_head, token, dim)."""
        return self.cache.v[layer][:, self.span.start : self.span.stop]


class Compressor(ABC):
    """Scores tokens; of each key-value head those of the largest score are kept. One serves one compression."""

    question_aware: ClassVar[bool]  # scores depend on the question, so that a store cannot hold what is kept
    reads_text: ClassVar[bool] = False  # it reads a prompt of its own
    budget: ClassVar[Budget] = "head"  # what keeps the same share of its tokens, unless it is asked for another
    contiguous: ClassVar[bool] = False  # what is kept moves to positions without gaps

    def watch(self) -> Watch | None:
        """What is to be shown the queries of the pass that reads the tokens; None: nothing."""
        return None

    @abstractmethod
    def scores(self, context: Context) -> list[Tensor]:
        """A layer: (kv_head, token) in fp32; infinite: kept in any case."""


class Window:
    """The queries of the last `size` tokens read: (head, query, dim) a layer."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.queries: dict[int, Tensor] = {}

    def __call__(self, layer: int, q: Tensor, k: Tensor, bias: Tensor | None) -> None:
        import torch

        new = q[0]
        before = self.queries.get(layer)
        joined = new if before is None else torch.cat([before, new], 1)
        self.queries[layer] = joined[:, -self.size :].clone()

    def attention(self, layer: int, cache: KVCache) -> Tensor:
        """Weights of the window on all tokens of a cache whose last ones it is: (head, query, token) in fp32."""
        import torch

        from ragauge.engines.decoder import scores
        from ragauge.engines.rope import alibi_bias

        q, keys = self.queries[layer], cache.k[layer][:, : cache.length]
        raw = scores(q[None], keys[None], None)
        if cache.shape.position == "alibi":
            slopes = torch.tensor(cache.shape.alibi_slopes, device=q.device)
            at = cache.positions[: cache.length]
            raw = raw + alibi_bias(slopes, at[None, -q.shape[1] :], at[None])
        causal = torch.ones(raw.shape[-2:], dtype=torch.bool, device=q.device).tril(cache.length - q.shape[1])
        return raw[0].masked_fill(~causal, float("-inf")).softmax(-1)


class WindowCompressor(Compressor):
    """Scores by the attention of the last tokens of the prompt, which are all kept."""

    question_aware: ClassVar[bool] = True

    def __init__(self, size: int) -> None:
        self.window = Window(size)

    def watch(self) -> Watch:
        return self.window

    @abstractmethod
    def averaged(self, attention: Tensor) -> Tensor:
        """(head, query, token) of the window on the tokens before it -> one score a token: (head, token)."""

    def scores(self, context: Context) -> list[Tensor]:
        import torch.nn.functional as F

        found = []
        for layer, queries in sorted(self.window.queries.items()):
            before = context.cache.length - queries.shape[1]
            attention = self.window.attention(layer, context.cache)[..., :before]
            grouped = by_group(self.averaged(attention), context.cache.shape.kv_heads[layer])
            found.append(F.pad(grouped, (0, queries.shape[1]), value=float("inf")))
        return found


def by_group(scores: Tensor, kv_heads: int) -> Tensor:
    """(head, ...) -> the mean over the query heads that share keys (kv_head, ...)."""
    return scores.unflatten(0, (kv_heads, -1)).mean(1)
