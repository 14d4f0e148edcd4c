"""Attention Matching (Zweiger et al., 2026, arXiv 2602.16284)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import exp
from typing import TYPE_CHECKING

from ragauge.engines.protocol import Span
from ragauge.methods.compressors.base import ALL_QUERIES, Compressor, Context, Window, read_again

if TYPE_CHECKING:
    from torch import Tensor

    from ragauge.engines.cache import KVCache

MOST = 1024  # reference queries of a head that values and biases are fitted to, evenly spaced
BOUNDS = exp(-3), exp(3)  # of a key's weight, as in the released configuration
STEPS = 100  # of the accelerated projected gradient
RIDGE = 1e-6  # of the mean squared weight


class AttentionMatching(Compressor):
    """A subset of the keys with a bias each and values of their own, fitted so that attention stays
    what it was.

    Reference queries are those of the context read once more behind a request to repeat it
    ("repeat-prefill"; the request is KVzip's), of all heads that share keys. A head keeps the keys
    with the largest root mean square of the attention on its own context. Their weights w =
    exp(bias) solve min |E w - m|, E the exponentials of the scores of these keys and m of all keys'
    sum (attention mass); their values C solve min |X C - Y|, X the attention with these biases and
    Y the attention's output over all. Released code: adamzweiger/compaction,
    `algorithms/highest_attention_keys.py`, AM-HighestAttnKeys-basic with the queries of
    `repeat.py`.

    Differences: weights come from 100 steps of projected gradient (released: 2 after a clamped
    least squares); among values that fit alike those nearest to the tokens' own are taken
    (released: any). Not here: self-study, queries anew after each compacted layer, orthogonal
    matching pursuit, and a share of its own for each head.
    """

    reads_text = True

    def __init__(self, question_tokens: int) -> None:
        super().__init__(question_tokens)
        self.reference = Window(ALL_QUERIES)
        # of the scores, (head, query, token), where positions are biases
        self.biases: list[Tensor] = []

    def scores(self, context: Context) -> list[Tensor]:
        import torch

        heads = context.cache.shape.kv_heads
        device = context.cache.positions.device
        totals = [torch.zeros(count, len(context.span), device=device) for count in heads]
        read_again(context, partial(self._note, context, totals))
        return [(total / len(context.span)).sqrt() for total in totals]

    def _note(
        self,
        context: Context,
        totals: list[Tensor],
        piece: Span,
        layer: int,
        q: Tensor,
        k: Tensor,
        bias: Tensor | None,
    ) -> None:
        """Collect the queries of a piece's repetition, and the squares of the attention that they
        pay the context.
        """
        from ragauge.engines.decoder import scores

        seen = slice(context.span.start, context.span.stop)
        q = q[:, :, -len(piece) :]
        shown = None if bias is None else bias[:, :, -len(piece) :, seen]
        weights = scores(q, k[:, :, seen], shown)[0].softmax(-1)
        totals[layer] += weights.square().unflatten(0, (len(totals[layer]), -1)).mean(1).sum(1)
        self.reference(layer, q, k, bias)
        if layer == 0 and shown is not None:
            self.biases.append(shown[0])

    def fit(
        self, context: Context, cache: KVCache, slots: Sequence[Sequence[Sequence[int]]]
    ) -> None:
        import torch
        from torch.nn.utils.rnn import pad_sequence

        for layer, heads in enumerate(slots):
            fitting = [head for head, tokens in enumerate(heads) if tokens]
            if not fitting:
                continue
            chosen = [
                torch.tensor([s - context.span.start for s in head], dtype=torch.long)
                for head in heads
            ]
            index = pad_sequence(chosen, batch_first=True).to(cache.positions.device)
            present = pad_sequence([torch.ones_like(i) for i in chosen], batch_first=True).to(
                index.device
            )
            values = context.values(layer).double()
            own = values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))
            exponentials = self._exponentials(context, layer)
            selected = (
                exponentials.gather(2, index[:, None].expand(-1, exponentials.shape[1], -1))
                * present[:, None]
            )
            mass = exponentials.sum(2)
            weights = fit_weights(selected, mass)
            parts = selected * weights[:, None], exponentials @ values / mass[..., None], own
            own[fitting] = fit_values(*(part[fitting] for part in parts))
            cache.replace_values(layer, own, weights.log() * present)

    def _exponentials(self, context: Context, layer: int) -> Tensor:
        """Exponentials of the reference queries' scores, divided by each query's largest: (kv_head,
        query, token).
        """
        import torch

        from ragauge.engines.decoder import scores

        q = self.reference.queries[layer]
        keys = context.keys(layer)
        every = slice(None, None, -(-q.shape[1] // MOST))
        bias = torch.cat(self.biases, 1)[:, every] if self.biases else None
        raw = scores(q[None, :, every], keys[None], bias)[0].double()
        raw = raw.unflatten(0, (len(keys), -1)).flatten(1, 2)
        return (raw - raw.amax(-1, keepdim=True)).exp()


def fit_weights(selected: Tensor, mass: Tensor) -> Tensor:
    """Weights w (head, key) within bounds that minimise |E w - m|^2, E (head, query, key), m (head,
    query).
    """
    # accelerated projected gradient (Beck and Teboulle, 2009) from w = 1, columns scaled to one
    # length
    scale = selected.norm(dim=1).clamp_min(1e-30)
    columns = selected / scale[:, None]
    gram = columns.transpose(1, 2) @ columns
    target = (columns * mass[..., None]).sum(1)
    # its largest eigenvalue is at most a row's sum
    step = 1 / gram.sum(-1).amax(-1, keepdim=True).clamp_min(1e-30)
    low = BOUNDS[0] * scale
    high = BOUNDS[1] * scale
    weights = scale
    extrapolated = scale
    speed = 1.0
    for _ in range(STEPS):
        gradient = (gram @ extrapolated[..., None])[..., 0] - target
        moved = (extrapolated - step * gradient).clamp(low, high)
        faster = (1 + (1 + 4 * speed**2) ** 0.5) / 2
        extrapolated = moved + (speed - 1) / faster * (moved - weights)
        weights, speed = moved, faster
    return weights / scale


def fit_values(weighted: Tensor, output: Tensor, own: Tensor) -> Tensor:
    """Values C (head, key, dim) that minimise |X C - Y|^2, X the normalised weights, nearest to the
    keys' own values. `weighted`: exponentials times weights, (head, query, key). `output`: Y, over
    all keys, (head, query, dim).
    """
    import torch

    attention = weighted / weighted.sum(-1, keepdim=True)
    gram = attention.transpose(1, 2) @ attention
    ridge = (
        RIDGE
        * gram.diagonal(dim1=1, dim2=2).mean(-1)[:, None].expand(-1, gram.shape[1]).diag_embed()
    )
    missing = attention.transpose(1, 2) @ (output - attention @ own)
    return own + torch.linalg.solve(gram + ridge, missing)
