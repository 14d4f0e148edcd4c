"""Parts of compressors of keys and values: `Compressor`, the `Context` that it scores, `Window`.

A compressor scores every token of every key-value head; the method `compressed` keeps those with
the largest scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

from ragauge.engines.protocol import Span, SpanEngine
from ragauge.methods.base.method import unit_row
from ragauge.methods.prompts.templates import token_ids, wrapper

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.cache import KVCache, Watch

REPEAT = "\n\nRepeat the previous context exactly."
GO_ON = "\n\nRepeat the part of the previous context exactly, starting with"
PIECE = 2048  # tokens that are repeated at a time
LEAD_IN = 8  # of the piece before
SINKS = 4  # first tokens, which some compressors all keep
ALL_QUERIES = 1 << 40  # more than any context has

Budget = Literal["head", "layer", "all"]
"""The tokens that compete: those of one head, of a layer's heads, of all heads in all layers."""


@dataclass(frozen=True)
class Context:
    """The tokens to compress: the last ones of a cache."""

    engine: SpanEngine
    cache: KVCache
    span: Span  # of the tokens
    ids: Sequence[int]  # theirs; empty for compressors that see the question
    offline: bool

    def keys(self, layer: int) -> Tensor:
        """Return the keys of a layer: (kv_head, token, dim)."""
        return self.cache.k[layer][:, self.span.start : self.span.stop]

    def values(self, layer: int) -> Tensor:
        """Return the values of a layer: (kv_head, token, dim)."""
        return self.cache.v[layer][:, self.span.start : self.span.stop]


class Compressor(ABC):
    """Scores tokens; every key-value head keeps those with the largest scores. One object serves
    one compression.
    """

    # scores depend on the question, so that nothing can be stored compressed
    question_aware: ClassVar[bool] = False
    reads_text: ClassVar[bool] = False  # it reads a prompt of its own
    # which tokens compete, unless the configuration says otherwise
    budget: ClassVar[Budget] = "head"
    contiguous: ClassVar[bool] = False  # the remaining tokens move to positions without gaps
    window: Window | None = None  # the queries that the scores need

    def __init__(self, question_tokens: int) -> None:
        """`question_tokens`: tokens at the prompt's end that are the question."""
        self.question_tokens = question_tokens

    def watch(self) -> Watch | None:
        """Return a callback that is shown the queries of the pass that reads the tokens; None where
        it needs none.
        """
        return self.window

    @abstractmethod
    def scores(self, context: Context) -> list[Tensor]:
        """Score the context's tokens: (kv_head, token) in fp32 a layer; infinity keeps a token in
        any case.
        """

    def fit(  # noqa: B027
        self, context: Context, cache: KVCache, slots: Sequence[Sequence[Sequence[int]]]
    ) -> None:
        """Change what the cache of the remaining tokens contains; the context has them in `slots`,
        by layer and head. Called after `scores`; most compressors change nothing.
        """


class Window:
    """Collects the queries of the last `size` tokens that are read: (head, query, dim) a layer."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.queries: dict[int, Tensor] = {}

    def __call__(self, layer: int, q: Tensor, k: Tensor, bias: Tensor | None) -> None:
        import torch

        joined = torch.cat([self.queries[layer], q[0]], 1) if layer in self.queries else q[0]
        self.queries[layer] = joined[:, -self.size :].clone()

    def attention(self, layer: int, cache: KVCache) -> Tensor:
        """Compute the weights on all tokens of a cache that ends with the window: (head, query,
        token) in fp32.
        """
        import torch

        from ragauge.engines.decoder import scores
        from ragauge.engines.rope import alibi_bias

        q = self.queries[layer]
        keys = cache.k[layer][:, : cache.length]
        raw = scores(q[None], keys[None], None)
        if cache.shape.position == "alibi":
            slopes = torch.tensor(cache.shape.alibi_slopes, device=q.device)
            at = cache.positions[: cache.length]
            raw = raw + alibi_bias(slopes, at[None, -q.shape[1] :], at[None])
        return causal_weights(raw[0], cache.length - q.shape[1])


class WindowCompressor(Compressor):
    """Scores by the attention of the prompt's last tokens, which all stay."""

    question_aware = True

    def __init__(self, question_tokens: int) -> None:
        super().__init__(question_tokens)
        self.window: Window = Window(question_tokens)

    @abstractmethod
    def averaged(self, attention: Tensor) -> Tensor:
        """Average the window's attention on the tokens before it: (head, query, token) -> (head,
        token).
        """

    def scores(self, context: Context) -> list[Tensor]:
        import torch.nn.functional as F

        scores = []
        for layer, queries in sorted(self.window.queries.items()):
            before = context.cache.length - queries.shape[1]
            attention = self.window.attention(layer, context.cache)[..., :before]
            grouped = by_group(self.averaged(attention), context.cache.shape.kv_heads[layer])
            scores.append(F.pad(grouped, (0, queries.shape[1]), value=float("inf")))
        return scores


def causal_weights(scores: Tensor, past: int) -> Tensor:
    """Compute attention weights (..., query, key) of queries that stand behind `past` of the keys."""
    import torch

    causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril(past)
    return scores.masked_fill(~causal, float("-inf")).softmax(-1)


def by_group(scores: Tensor, kv_heads: int) -> Tensor:
    """Average over the query heads that share keys: (head, ...) -> (kv_head, ...)."""
    return scores.unflatten(0, (kv_heads, -1)).mean(1)


def read_again(context: Context, note: Callable[..., None]) -> None:
    """Read, behind the context, a request to repeat it and the context itself, in pieces. `note` is
    shown each layer of a pass as a cache's `watch` is, after the piece (a Span) that is repeated.
    """
    length = context.cache.length
    requests = _pieces(context)
    scratch = context.engine.join(
        context.cache, [Span(0, length)], max(len(ids) for _, ids in requests)
    )
    start = float(context.cache.positions[length - 1]) + 1
    for piece, ids in requests:
        scratch.watch = partial(note, piece)
        row = unit_row(ids, start, (Span(0, length),))
        context.engine.extend(scratch, [row], stage="compress", offline=context.offline)
        scratch.truncate(length)


def _pieces(context: Context) -> list[tuple[Span, list[int]]]:
    """Return each piece's slots, and the token ids of the request to repeat it with the repetition."""
    tokenizer = context.engine.tokenizer
    ids = list(context.ids)
    turn = wrapper("chat", tokenizer)[1] if getattr(tokenizer, "chat_template", None) else "\n"
    repeat, go_on, reply = (token_ids(tokenizer, text) for text in (REPEAT, GO_ON, turn))
    pieces = []
    for at in range(0, len(ids), PIECE):
        lead = [*go_on, *ids[at - LEAD_IN : at]] if at else repeat
        piece = ids[at : at + PIECE]
        start = context.span.start + at
        pieces.append((Span(start, start + len(piece)), [*lead, *reply, *piece]))
    return pieces
