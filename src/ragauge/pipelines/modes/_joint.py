"""Joint attention in torch: reading neighbours, what training adds, and its loss (docs/piperag.md).

All neighbours of a window have the same positions and end where the sequence begins. Each is read
behind the first token of the sequence, since decoders put much attention on the first token they
see; with ALiBi that is moved to directly before the neighbour, so that no key stands after a query.
Training adds a low-rank term (LoRA; Hu et al., 2022) and an offset to their projections.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ragauge.cost.trace import Call
from ragauge.engines.cache import KVCache
from ragauge.engines.decoder import Decoder
from ragauge.engines.lm import LM
from ragauge.engines.spans import Row, Span
from ragauge.engines.weights import Linear, Weights
from ragauge.pipelines.modes._trained import NeighbourRows, TrainedWeights, attend, causal_mask
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.reader import (
    CachedReader,
    DecoderModel,
    Prepared,
    PreparingReader,
    Tokens,
)

CACHED_NEIGHBOURS = 16  # of one sequence


def load_adapted(checkpoint: Checkpoint) -> tuple[LM, LM | None]:
    """Return the decoder, and the same with trained adapters where there are any."""
    lm = checkpoint.decoder()
    if checkpoint.adapters is None:
        return lm, None
    return lm, Adapters.load(checkpoint.adapters, lm, checkpoint.sha256).merged(lm)


class JointDecoder(DecoderModel):
    """A decoder that reads neighbours itself, or as `adapted` does: the same decoder with trained
    adapters.
    """

    def __init__(self, lm: LM, adapted: LM | None = None) -> None:
        super().__init__(lm)
        self.adapted = adapted or lm

    def open(self, tokens: int, neighbour_tokens: int = 0) -> JointReader:
        return JointReader(self, tokens + neighbour_tokens)


class JointStates(PreparingReader):
    """A reader of neighbours behind the sequence's first token. The states (keys and values) of
    those that a sequence read last are cached, as its windows find the same chunks again: a state
    depends on the neighbour's tokens, their positions and the sequence's first token alone.
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self._sink: Any = None  # the cached first token
        # by the neighbour's tokens, the latest used are the last; replaced, never changed: two
        # threads may read neighbours, at the first window
        self._states = dict[Tokens, Any]()

    def prepare(self, neighbours: Sequence[Tokens], length: int) -> Prepared:
        texts = [tuple(ids) for ids in neighbours if len(ids)]
        calls: list[Call] = []
        every = dict(self._states)
        missing = [text for text in dict.fromkeys(texts) if text not in every]
        if missing:
            every.update(zip(missing, self._read(missing, calls), strict=True))
        used = {text: every.pop(text) for text in dict.fromkeys(texts)}
        latest = [*every.items(), *used.items()][-max(CACHED_NEIGHBOURS, len(used)) :]
        self._states = dict(latest)
        return Prepared(tuple(calls), self._placed([used[text] for text in texts]))

    @abstractmethod
    def _read(self, texts: Sequence[Tokens], calls: list[Call]) -> list[Any]:
        """Keys and values of each neighbour, which end before position 0; appends to `calls`."""

    @abstractmethod
    def _placed(self, states: Sequence[Any]) -> Callable[[], None]:
        """Return what makes these states the neighbours in front of the sequence."""


class JointReader(JointStates, CachedReader):
    """A sequence behind its neighbours in one cache, so that the keys of every read are a view of
    it.
    """

    def __init__(self, model: JointDecoder, capacity: int) -> None:
        super().__init__(model.lm, model.lm.new_cache(capacity))
        self.adapted = model.adapted
        self._front = 0  # slots of the neighbours

    def _read(self, texts: Sequence[Tokens], calls: list[Call]) -> list[KVCache]:
        # each call has a trace and caches of its own
        lm = LM(self.adapted.decoder, self.adapted.tokenizer)
        alibi = lm.shape.position == "alibi"
        with lm.tracing() as trace:
            sinks = (
                [Span(i, i + 1) for i in range(len(texts))] if alibi else [Span(0, 1)] * len(texts)
            )
            cache = lm.new_cache(len(set(sinks)) + sum(map(len, texts)))
            for _ in set(sinks):
                cache.append(self._sink, Span(0, 1))
            if alibi:
                cache.move(Span(0, len(sinks)), [-len(ids) - 1 for ids in texts])
            rows = [
                Row(ids, range(-len(ids), 0), (sink,))
                for ids, sink in zip(texts, sinks, strict=True)
            ]
            read = lm.extend(cache, rows, stage="neighbours", parallel=True)
            states = [lm.join(cache, [span], 0) for span in read.spans]
        calls += trace
        return states

    def _placed(self, states: Sequence[KVCache]) -> Callable[[], None]:
        cache = self.adapted.new_cache(sum(state.length for state in states))
        for state in states:
            cache.append(state, Span(0, state.length))
        return lambda: self._put(cache)

    def read(self, ids: Tokens) -> Tensor:
        logits = super().read(ids)
        if self._sink is None:
            self._sink = self._cache.select([Span(0, 1)])
        return logits

    @torch.inference_mode()
    def _put(self, source: KVCache) -> None:
        count = source.length
        if count == self._front:
            self._cache.copy(source, slice(0, count), 0)
            return
        sequence = Span(self._front, self._cache.length)
        joined = self.lm.join(
            source, [Span(0, count)], max(len(sequence), self._cache.capacity - count)
        )
        joined.append(self._cache, sequence)
        self._cache = joined
        self._front = count


class Adapters(TrainedWeights):
    """One low-rank term and one offset per layer; all zero at first, so that nothing changes."""

    mode = "joint"

    def __init__(self, weights: Weights, rank: int = 8, seed: int = 0) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.down = nn.ParameterList()
        self.up = nn.ParameterList()
        self.offset = nn.ParameterList()
        for layer in weights.layers:
            rows, width = layer.qkv.weight.shape
            self.down.append(torch.randn(rank, width, generator=draw) * width**-0.5)
            self.up.append(torch.zeros(rows, rank))
            self.offset.append(torch.zeros(rows))
        self.to(weights.embedding.device)

    @classmethod
    def fresh(cls, lm: LM, seed: int) -> Adapters:
        return cls(lm.decoder.weights, seed=seed)

    def added(self, index: int, x: Tensor) -> Tensor:
        """Return the term added to a layer's projections of neighbours' states (token, width) ->
        (token, rows).
        """
        low = (x.float() @ self.down[index].t()) @ self.up[index].t() + self.offset[index]
        return low.to(x.dtype)

    def groups(self) -> list[tuple[list[nn.Parameter], float]]:
        return [(list(self.parameters()), 1.0)]

    def states(self, decoder: Decoder, sequence: Tensor, rows: NeighbourRows) -> Tensor:
        """See `TrainedWeights.states`; neighbours are placed as when they are read."""
        n = len(sequence)
        shape = rows.ids.shape
        rows_at = rows.positions
        own_at = torch.arange(n, device=sequence.device)
        rotations = decoder.rotations(torch.cat([own_at, rows_at.flatten()]))
        past = causal_mask(1, n, sequence.device)
        row_past = causal_mask(shape[0], shape[1], sequence.device)
        mask = torch.cat([rows.visible, past[0]], 1)[None]
        # first the sequence's first token
        row_mask = torch.cat([row_past.new_ones(*shape, 1), row_past], 2)
        keys_at = torch.cat([rows_at.flatten(), own_at])[None]
        sinks_at = (
            torch.zeros_like(rows_at[:, :1]) if decoder.slopes is None else rows_at[:, :1] - 1
        )
        row_keys_at = torch.cat([sinks_at, rows_at], 1)

        def inner(index: int, normed: Tensor) -> Tensor:
            qkv = decoder.weights.layers[index].qkv(normed)
            qkv = torch.cat([qkv[:n], qkv[n:] + self.added(index, normed[n:])])
            q, k, v = decoder.split(index, qkv, rotations[index])
            keys, values = (torch.cat([part[n:], part[:n]])[None] for part in (k, v))
            own = attend(decoder, q[None, :n], keys, values, own_at[None], keys_at, mask)[0]
            firsts = (part[:1].expand(shape[0], 1, -1, -1) for part in (k, v))
            keys, values = (
                torch.cat([first, part[n:].unflatten(0, shape)], 1)
                for first, part in zip(firsts, (k, v), strict=True)
            )
            read = attend(
                decoder, q[n:].unflatten(0, shape), keys, values, rows_at, row_keys_at, row_mask
            )
            return torch.cat([own, read.flatten(0, 1)])

        return decoder.run_layers(decoder.embed(torch.cat([sequence, rows.ids.flatten()])), inner)[
            :n
        ]

    @torch.no_grad()
    def merged(self, lm: LM) -> LM:
        """Return a decoder that reads neighbours so, of the same shape; it shares all other weights
        with `lm`.
        """
        weights = lm.decoder.weights
        layers = []
        for layer, down, up, added in zip(
            weights.layers, self.down, self.up, self.offset, strict=True
        ):
            frozen = layer.qkv
            dtype = layer.qkv.weight.dtype
            offset = added if frozen.bias is None else added + frozen.bias
            qkv = Linear((frozen.weight + up @ down).to(dtype), offset.to(dtype))
            layers.append(replace(layer, qkv=qkv))
        return LM(Decoder(lm.shape, replace(weights, layers=tuple(layers))), lm.tokenizer)
