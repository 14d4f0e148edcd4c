"""RETRO in ONNX: its encoder, and its decoder in two graphs, between which the encoder runs.

The encoder is conditioned on the states of the query at the decoder's first layer with cross-attention, and this layer
attends to what it makes, in the same pass. `lower` ends with these states, `upper` begins with them; both take the keys
and values of cached slots under a mask, `upper` those of the encoded neighbours as well, and return the new tokens'.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ragauge.engines.onnx.runtime import (
    SLOTS,
    TOKENS,
    Graph,
    OnnxModel,
    Slots,
    attend,
    causal,
    check_origin,
    past_sizes,
    write_origin,
)
from ragauge.generation.modes._base import Checkpoint
from ragauge.generation.modes._retro import OwnReader, make_network
from ragauge.generation.modes._retro_network import RetroAttention, RetroLayer, RetroNetwork
from ragauge.generation.reader import Tokens
from ragauge.generation.windows import CHUNK
from ragauge.io.graphs import write_graph

PARTS = ("lower", "encoder", "upper")
KEYS = torch.export.Dim("keys", min=1, max=1 << 16)


class _Half(nn.Module):
    """Some of the decoder's layers as functions of tensors alone."""

    def __init__(self, model: RetroNetwork) -> None:
        super().__init__()
        self.model, self.first_cross = model, model.sizes.cross[0]

    def mixed(
        self, layer: RetroLayer, x: Tensor, past: Sequence[Tensor], positions: Tensor, mask: Tensor
    ) -> tuple[Tensor, list[Tensor]]:
        """The states after a layer's self-attention, and its new keys and values."""
        y, bias = layer.attention_norm(x), layer.attention.bias
        k, v = layer.attention.keys(y)
        cached = bias(positions, torch.arange(mask.shape[0])) + mask
        own = bias(positions, positions) + causal(positions.shape[0])
        q = layer.attention.split(layer.attention.q(y))
        attended = attend(q, k, v, past[0], past[1], cached[:, None], own[:, None])
        return x + layer.attention.out(attended), [k, v]


class _Lower(_Half):
    def forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor, past: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """(token,), (token,), (slot,), keys and values by layer -> states (token, width), the new keys and values."""
        x, new = self.model.embedding(ids), list[Tensor]()
        for index, layer in enumerate(self.model.stack[: self.first_cross + 1]):
            x, made = self.mixed(layer, x, past[2 * index : 2 * index + 2], positions, mask)
            new += made
            if index < self.first_cross:
                x = x + layer.ffn(layer.ffn_norm(x))
        return x, new


class _Upper(_Half):
    def forward(
        self,
        states: Tensor,
        positions: Tensor,
        mask: Tensor,
        past: Sequence[Tensor],
        memory: Sequence[Tensor],
        reads: Tensor,
        behind: Tensor,
        places: Tensor,
    ) -> tuple[Tensor, list[Tensor]]:
        """What `lower` returned, and encoded neighbours -> logits (token, vocab), the new keys and values.

        Args:
            memory: keys and values (head, key, dim) of the layers with cross-attention; at least one key.
            reads: 1 if there are neighbours, else 0, (1,).
            behind: places of the tokens behind the query's last, (token,).
            places: of the keys, (key,).
        """
        x, read, new = states, 0, list[Tensor]()
        for index, layer in enumerate(self.model.stack[self.first_cross :]):
            if index:
                x, made = self.mixed(layer, x, past[2 * index - 2 : 2 * index], positions, mask)
                new += made
            if layer.cross is not None and layer.cross_norm is not None:
                bias = layer.cross.bias(behind, places)
                x = x + reads * _crossed(layer.cross, layer.cross_norm(x), memory[read], memory[read + 1], bias)
                read += 2
            x = x + layer.ffn(layer.ffn_norm(x))
        return self.model.head(self.model.norm(x)), new


def _crossed(attention: RetroAttention, x: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """`attention(x, k, v, bias)` of one sequence, in operations that the exporter knows for three dimensions."""
    scores = attention.split(attention.q(x)) @ k.transpose(-1, -2) + bias
    weights = scores.float().softmax(-1).to(v.dtype)
    mixed: Tensor = attention.out((weights @ v).transpose(-2, -3).flatten(-2))
    return mixed


class _Encoder(nn.Module):
    def __init__(self, model: RetroNetwork) -> None:
        super().__init__()
        self.model = model

    def forward(self, neighbours: Tensor, states: Tensor) -> list[Tensor]:
        """(neighbour, token) and states (query token, width) -> keys and values (head, key, dim) by cross layer."""
        encoded = self.model.encoder(neighbours, states).flatten(0, 1)
        return [part for layer in self.model.stack if layer.cross is not None for part in layer.cross.keys(encoded)]


def export(checkpoint: Checkpoint, name: str, folder: Path) -> None:
    """Write the graphs of RETRO, and their origin.

    Args:
        name: of its weights.
    """
    export_network(make_network(checkpoint), folder)
    write_origin(folder, {"model": name, **_origin(checkpoint)})


def export_network(model: RetroNetwork, folder: Path) -> None:
    """Write `lower.onnx`, `encoder.onnx` and `upper.onnx`. All lengths are dynamic."""
    sizes = model.sizes
    heads, dim, split = sizes.heads, sizes.width // sizes.heads, sizes.cross[0] + 1
    dtype = model.head.weight.dtype
    tokens, slots, keys = 3, 5, 7

    def past(layers: int) -> list[Tensor]:
        return [torch.zeros(heads, slots, dim, dtype=dtype) for _ in range(2 * layers)]

    def named(kind: str, layers: Sequence[int]) -> list[str]:
        return [f"{kind}_{part}_{layer}" for layer in layers for part in ("k", "v")]

    low, high, cross = range(split), range(split, sizes.layers), sizes.cross
    positions, mask = torch.arange(tokens), torch.zeros(slots)
    states = torch.zeros(tokens, sizes.width, dtype=dtype)
    cached = [{1: SLOTS} for _ in range(2 * sizes.layers)]
    write_graph(
        _Lower(model),
        folder / "lower.onnx",
        (torch.zeros(tokens, dtype=torch.long), positions, mask, past(len(low))),
        ({0: TOKENS}, {0: TOKENS}, {0: SLOTS}, cached[: 2 * len(low)]),
        ["ids", "positions", "mask", *named("past", low)],
        ["states", *named("new", low)],
    )
    encoded = [torch.zeros(heads, keys, dim, dtype=dtype) for _ in range(2 * len(cross))]
    write_graph(
        _Upper(model),
        folder / "upper.onnx",
        (
            states,
            positions,
            mask,
            past(len(high)),
            encoded,
            torch.ones(1, dtype=dtype),
            torch.arange(tokens),
            torch.arange(keys),
        ),
        (
            {0: TOKENS},
            {0: TOKENS},
            {0: SLOTS},
            cached[: 2 * len(high)],
            [{1: KEYS} for _ in encoded],
            None,
            {0: TOKENS},
            {0: KEYS},
        ),
        ["states", "positions", "mask", *named("past", high), *named("memory", cross), "reads", "behind", "places"],
        ["logits", *named("new", high)],
    )
    many, length = torch.export.Dim("neighbours", min=1, max=1 << 10), torch.export.Dim("length", min=1, max=1 << 12)
    write_graph(
        _Encoder(model),
        folder / "encoder.onnx",
        (torch.zeros(2, keys, dtype=torch.long), states),
        ({0: many, 1: length}, {0: TOKENS}),
        ["neighbours", "states"],
        named("memory", cross),
    )


def load_exported(checkpoint: Checkpoint) -> OnnxRetroLM:
    """What `export` wrote. Raises UserError if it is incomplete or comes from something else."""
    assert checkpoint.exported is not None
    check_origin(checkpoint.exported, _origin(checkpoint))
    paths = {name: checkpoint.exported / f"{name}.onnx" for name in PARTS}
    return OnnxRetroLM(paths, checkpoint.tokenizer, checkpoint.device, checkpoint.threads)


def _origin(checkpoint: Checkpoint) -> dict[str, Any]:
    return {"model_sha256": checkpoint.sha256, "vocabulary": checkpoint.vocabulary, "dtype": checkpoint.dtype}


class OnnxRetroLM(OnnxModel):
    """RETRO in ONNX Runtime."""

    def open(self, tokens: int, neighbour_tokens: int = 0) -> OnnxRetroReader:
        """See `NeighbourModel.open`; slots grow with the sequence, whatever its `tokens`."""
        return OnnxRetroReader(self)


class OnnxRetroReader(OwnReader):
    """One sequence: its keys and values in slots, states that condition the encoder, keys of encoded neighbours."""

    def __init__(self, lm: OnnxRetroLM) -> None:
        super().__init__(lm)
        self._lower, self._encoder, self._upper = (Graph(lm.sessions[name]) for name in PARTS)
        low, high = past_sizes(self._lower), past_sizes(self._upper)
        self._low, self._high, device = list(low), list(high), self._lower.device
        self._slots = Slots(low | high, 0, self._lower.types["states"][0], device)
        self._width, self._vocab = (graph.session.get_outputs()[0].shape[1] for graph in (self._lower, self._upper))
        self._states = self._lower.empty("states", 0, self._width)  # of the last tokens, at the first cross-attention
        heads, dim = next(iter(low.values()))
        self._row = heads, dim
        self._nothing = {name: self._encoder.empty(name, heads, 1, dim).zero_() for name in self._encoder.outputs}
        self._nothing |= {"reads": self._upper.tensor("reads", [0.0]), "places": self._upper.tensor("places", [0])}
        self._memory = self._nothing

    def forward(self, ids: Tokens) -> Tensor:
        """See `OwnReader.forward`."""
        first, count, slots = self.length, len(ids), self._slots
        slots.reserve(first + count)
        positions = torch.arange(first, first + count, device=self._lower.device)
        states, new = self._lower.empty("states", count, self._width), slots.room(count)
        read = {"ids": self._lower.tensor("ids", list(ids)), "positions": positions, **slots.feeds(self._low)}
        self._lower.run(read, {"states": states, **slots.outputs(new, self._low)})
        self._states = torch.cat([self._states, states])[-CHUNK:]
        self.encode_pending()
        logits = self._upper.empty("logits", count, self._vocab)
        read = {"states": states, "positions": positions, "behind": positions - self._since}
        read |= {**slots.feeds(self._high), **self._memory}
        self._upper.run(read, {"logits": logits, **slots.outputs(new, self._high)})
        slots.put(new, first)
        self.length += count
        return logits.float()

    def encode(self, neighbours: Sequence[Sequence[Tokens]], places: Sequence[int]) -> None:
        """See `OwnReader.encode`."""
        self._memory = self._nothing
        if not neighbours:
            return
        made = [self._encoded(same) for same in neighbours]
        joined = {name: torch.cat([part[name] for part in made], 1) for name in self._encoder.outputs}
        self._memory = joined | {
            "reads": self._upper.tensor("reads", [1.0]),
            "places": self._upper.tensor("places", list(places)),
        }

    def _encoded(self, same: Sequence[Tokens]) -> dict[str, Tensor]:
        """Keys and values of neighbours of one length, by name."""
        heads, dim = self._row
        ids = self._encoder.tensor("neighbours", [list(text) for text in same])
        outputs = {name: self._encoder.empty(name, heads, ids.numel(), dim) for name in self._encoder.outputs}
        self._encoder.run({"neighbours": ids, "states": self._states.contiguous()}, outputs)
        return outputs
