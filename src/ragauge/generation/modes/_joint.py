"""Joint attention in torch: reading neighbours, what training adds, and its loss.

The decoder itself makes the keys and values of a window's neighbours, and the window's tokens attend to them beside
their own past, as to any other cached tokens. No weight is added, so that it works without training. RETRO (Borgeaud et
al., 2022) has cross-attention layers in this place; what is attended to, and by which tokens, is the same.

Positions. All neighbours of a window have the same positions and end where the sequence begins, as documents retrieved
for a prompt do, or, once the sequence has grown, `reach` tokens before the window: no key is farther away than that,
however long the sequence. Each neighbour is read behind the first token of the sequence: decoders put much of
their attention on the first token they see, and neighbours that each had a first token of their own would draw it to
themselves.

Training adds a low-rank term (LoRA; Hu et al., 2022) and an offset to the projections to queries, keys and values that
read a neighbour. Own tokens are read by the decoder's own weights, so that without neighbours nothing changes; an
offset of keys weighs neighbours against own tokens, head by head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from ragauge.engines import LM, KVCache, Row, Span
from ragauge.engines.decoder import Decoder
from ragauge.engines.weights import Linear, Weights
from ragauge.errors import UserError
from ragauge.generation.modes import _passes as passes
from ragauge.generation.modes._base import Checkpoint
from ragauge.generation.modes._passes import Neighbours
from ragauge.generation.modes._weights import TrainedWeights
from ragauge.generation.reader import CachedReader, DecoderModel, Prepared, StateCache, Tokens
from ragauge.generation.windows import Windows

if TYPE_CHECKING:
    from ragauge.generation.modes.joint import JointAttention

RANK = 8


def load(checkpoint: Checkpoint, mode: JointAttention) -> JointDecoder:
    """See `Mode.load`."""
    lm, adapted = load_adapted(checkpoint)
    return JointDecoder(lm, mode, adapted)


def load_adapted(checkpoint: Checkpoint) -> tuple[LM, LM | None]:
    """The decoder, and the same with trained adapters where there are any."""
    lm = checkpoint.decoder()
    if checkpoint.adapters is None:
        return lm, None
    return lm, Adapters.load(Path(checkpoint.adapters), lm, checkpoint.sha256).merged(lm)


# --- reading ---


class JointDecoder(DecoderModel):
    """A decoder that reads neighbours itself, or as `adapted` does: the same decoder with trained adapters."""

    def __init__(self, lm: LM, mode: JointAttention, adapted: LM | None = None) -> None:
        super().__init__(lm)
        self.mode, self.adapted = mode, adapted or lm

    def open(self, tokens: int, neighbour_tokens: int = 0) -> JointReader:
        """See `NeighbourModel.open`."""
        return JointReader(self, tokens + neighbour_tokens)


class JointReader(CachedReader):
    """A sequence and its current neighbours in one cache: the neighbours' slots first, then the sequence's.

    So the keys of every read are a view of the cache, and decoding between two retrievals is plain decoding.
    Neighbours are read into caches of their own, which another thread may do, and copied from there. A chunk that an
    earlier window found as well is not read again.
    """

    def __init__(self, model: JointDecoder, capacity: int) -> None:
        super().__init__(model.lm, model.lm.new_cache(capacity))
        self.mode, self.adapted = model.mode, model.adapted
        self._front = 0  # slots of the neighbours
        self._sink: KVCache | None = None  # the sequence's first token
        self._states: StateCache[KVCache] = StateCache()

    def prepare(self, neighbours: Sequence[Tokens], length: int) -> Prepared:
        """See `PreparingReader.prepare`. Raises UserError if there is no token yet to read neighbours behind.

        Two threads may be here at once, at the first window: traces and caches are each call's own.
        """
        lm = LM(self.adapted.decoder, self.adapted.tokenizer)
        texts = [tuple(ids) for ids in neighbours if len(ids)]
        if self._sink is None:
            raise UserError("neighbours are read behind the sequence's first token; the sequence is empty")
        last = 0 if self.mode.reach is None else max(0, length - self.mode.reach)
        with lm.tracing() as trace:
            states = self._states.get(
                [(last, ids) for ids in texts], lambda places: self._read(lm, [texts[i] for i in places], last)
            )
        cache = lm.new_cache(sum(map(len, texts)))
        for state in states:
            cache.append(state, Span(0, state.length))
        return Prepared(tuple(trace), lambda: self._put(cache, Span(0, cache.length)))

    def _read(self, lm: LM, texts: Sequence[Tokens], last: int) -> list[KVCache]:
        """Each neighbour's keys and values, in a cache of its own; they end before position `last`."""
        assert self._sink is not None
        cache = lm.join(self._sink, [Span(0, 1)], sum(map(len, texts)))
        rows = [Row(ids, range(last - len(ids), last), (Span(0, 1),)) for ids in texts]
        read = lm.extend(cache, rows, stage="neighbours", parallel=True)
        return [lm.join(cache, [span], 0) for span in read.spans]

    def read(self, ids: Tokens) -> Tensor:
        """See `Reader.read`."""
        logits = super().read(ids)
        if self._sink is None:
            self._sink = self._cache.select([Span(0, 1)])
        return logits

    @torch.inference_mode()
    def _put(self, source: KVCache, new: Span) -> None:
        """Make these slots of a cache the neighbours in front of the sequence."""
        if len(new) == self._front:
            self._cache.copy(source, slice(0, self._front), slice(0, self._front))
            self._cache.positions[: self._front] = source.positions[: self._front]
            return
        own = Span(self._front, self._cache.length)
        joined = self.lm.join(source, [new], max(len(own), self._cache.capacity - len(new)))
        joined.append(self._cache, own)
        self._cache, self._front = joined, len(new)
        self._cache.bias = None
        if self.mode.bias and self._front:
            self._cache.add_bias(Span(0, self._front), self.mode.bias)


# --- training ---


class Adapters(TrainedWeights):
    """One low-rank term and one offset per layer; all zero at first, so that nothing changes."""

    mode: ClassVar[str] = "joint"

    def __init__(self, weights: Weights, rank: int = RANK, seed: int = 0) -> None:
        super().__init__()
        if rank < 1:
            raise UserError(f"rank: must be at least 1, not {rank}")
        self.rank = rank
        draw = torch.Generator().manual_seed(seed)
        self.down, self.up, self.offset = nn.ParameterList(), nn.ParameterList(), nn.ParameterList()
        for layer in weights.layers:
            rows, width = layer.qkv.weight.shape
            self.down.append(torch.randn(rank, width, generator=draw) * width**-0.5)
            self.up.append(torch.zeros(rows, rank))
            self.offset.append(torch.zeros(rows))
        self.to(weights.embedding.device)

    def added(self, index: int, x: Tensor) -> Tensor:
        """The term added to a layer's projections of neighbours' states (token, width) -> (token, rows)."""
        low = (x.float() @ self.down[index].t()) @ self.up[index].t() + self.offset[index]
        return low.to(x.dtype)

    def groups(self) -> list[tuple[list[nn.Parameter], float]]:
        """See `TrainedWeights.groups`."""
        return [(list(self.parameters()), 1.0)]

    def sizes(self) -> dict[str, str]:
        """See `TrainedWeights.sizes`."""
        return {"rank": str(self.rank)}

    @classmethod
    def of_sizes(cls, lm: LM, sizes: dict[str, str]) -> Adapters:
        """See `TrainedWeights.of_sizes`."""
        return cls(lm.decoder.weights, int(sizes["rank"]))

    def nll(self, decoder: Decoder, ids: Tokens, neighbours: Neighbours, windows: Windows) -> Tensor:
        """See `TrainedWeights.nll`; neighbours are placed as by `JointAttention()`."""
        sequence = torch.tensor(list(ids), device=decoder.weights.embedding.device)
        owners, texts = passes.by_row(neighbours)
        if not texts:
            alone = passes.CausalAttention(decoder, len(sequence))
            return passes.scored_nll(decoder, decoder.run_layers(decoder.embed(sequence), alone), sequence)
        joint = _JointPass(decoder, self, len(sequence), owners, texts, windows)
        x = decoder.run_layers(decoder.embed(torch.cat([sequence, joint.ids.flatten()])), joint)
        return passes.scored_nll(decoder, x[: len(sequence)], sequence)

    @torch.no_grad()
    def merged(self, lm: LM) -> LM:
        """A decoder that reads neighbours so, of the same shape; it shares all other weights with `lm`."""
        weights = lm.decoder.weights
        layers = tuple(replace(layer, qkv=self._merged(index, layer.qkv)) for index, layer in enumerate(weights.layers))
        return LM(Decoder(lm.shape, replace(weights, layers=layers)), lm.tokenizer)

    def _merged(self, index: int, frozen: Linear) -> Linear:
        change = self.up[index] @ self.down[index]
        offset = self.offset[index] if frozen.bias is None else self.offset[index] + frozen.bias
        return Linear((frozen.weight + change).to(frozen.weight.dtype), offset.to(frozen.weight.dtype))


class _JointPass:
    """Self-attention of a sequence followed by rows of neighbours, as `Decoder.run_layers` takes it.

    At each layer a neighbour attends to the sequence's first token and to itself, and a token of the sequence to its
    past and to its own window's neighbours.
    """

    def __init__(
        self,
        decoder: Decoder,
        adapters: Adapters,
        count: int,
        owners: Sequence[int],
        texts: Sequence[Tokens],
        windows: Windows,
    ) -> None:
        self.decoder, self.adapters, self.count = decoder, adapters, count
        self.ids, real, self.rows_at = passes.pad(texts, decoder.weights.embedding.device)
        self.shape, self.own_at = self.ids.shape, torch.arange(count, device=self.ids.device)
        self.rotation = decoder.rotation(torch.cat([self.own_at, self.rows_at.flatten()]))
        rows, width = self.shape
        past, row_past = (passes.causal_mask(*size, real.device) for size in ((1, count), (rows, width)))
        self.mask = torch.cat([passes.neighbour_mask(owners, real, count, windows), past[0]], 1)[None]
        self.row_mask = torch.cat([row_past.new_ones(rows, width, 1), row_past], 2)  # first the sequence's first token

    def __call__(self, index: int, normed: Tensor) -> Tensor:
        qkv, n = self.decoder.weights.layers[index].qkv(normed), self.count
        qkv = torch.cat([qkv[:n], qkv[n:] + self.adapters.added(index, normed[n:])])
        parts = self.decoder.split(index, qkv, self.rotation)
        q, k, v = parts
        keys, values = (torch.cat([part[n:], part[:n]])[None] for part in (k, v))
        keys_at = torch.cat([self.rows_at.flatten(), self.own_at])[None]
        own = passes.attend(self.decoder, q[None, :n], keys, values, self.own_at[None], keys_at, self.mask)[0]
        rows_q, rows_k, rows_v = (part[n:].unflatten(0, self.shape) for part in parts)
        keys, values = (self._behind_the_first(p, rows) for p, rows in ((k, rows_k), (v, rows_v)))
        keys_at = torch.cat([torch.zeros_like(self.rows_at[:, :1]), self.rows_at], 1)
        rows = passes.attend(self.decoder, rows_q, keys, values, self.rows_at, keys_at, self.row_mask)
        return torch.cat([own, rows.flatten(0, 1)])

    @staticmethod
    def _behind_the_first(part: Tensor, rows: Tensor) -> Tensor:
        """Rows (row, token, kv_head, dim) behind the sequence's first token."""
        return torch.cat([part[:1].expand(len(rows), 1, -1, -1), rows], 1)
