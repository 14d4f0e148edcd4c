"""RETRO in ONNX: its encoder, and its decoder in two graphs, `lower` and `upper`, between which the
encoder runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ragauge.assets.store import write_manifest
from ragauge.engines.onnx.graphs import write_graph
from ragauge.engines.onnx.runtime import (
    SLOTS,
    TOKENS,
    OnnxModel,
    Slots,
    attend,
    causal,
    check_origin,
)
from ragauge.pipelines.modes._retro import OwnReader, make_network
from ragauge.pipelines.modes._retro_network import RetroLayer, RetroNetwork
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.reader import Tokens
from ragauge.pipelines.windows import CHUNK

PARTS = ("lower", "encoder", "upper")
KEYS = torch.export.Dim("keys", min=1, max=1 << 16)
# of a graph: names of its tensors, an example of them, their dynamic dimensions
_Input = tuple[list[str], Any, Any]


class _Part(nn.Module):
    """Some of RETRO's layers as a function of tensors alone."""

    def __init__(self, model: RetroNetwork) -> None:
        super().__init__()
        self.model = model
        self.first_cross = model.sizes.cross[0]


class _Lower(_Part):
    def forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor, past: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """(token,), (token,), (slot,), keys and values by layer -> states (token, width), the new
        keys and values.
        """
        x = self.model.embedding(ids)
        new = list[Tensor]()
        for index, layer in enumerate(self.model.layers[: self.first_cross + 1]):
            x = _after_attention(layer, x, past[2 * index : 2 * index + 2], positions, mask, new)
            if index < self.first_cross:
                x = x + layer.ffn(layer.ffn_norm(x))
        return x, new


class _Upper(_Part):
    def forward(
        self,
        states: Tensor,
        positions: Tensor,
        mask: Tensor,
        past: Sequence[Tensor],
        memory: Sequence[Tensor],
        reads: Tensor,
        behind: Tensor,
        positions_of_keys: Tensor,
    ) -> tuple[Tensor, list[Tensor]]:
        """What `lower` returned, and encoded neighbours -> logits (token, vocab), the new keys and
        values.

        Args:
            memory: keys and values (head, key, dim) of the layers with cross-attention; at least
                one key.
            reads: 1 if there are neighbours, else 0, (1,).
            behind: places of the tokens behind the query's last, (token,).
            places: of the keys, (key,).
        """
        x = states
        read = 0
        new = list[Tensor]()
        for index, layer in enumerate(self.model.layers[self.first_cross :]):
            if index:
                x = _after_attention(
                    layer, x, past[2 * index - 2 : 2 * index], positions, mask, new
                )
            cross = layer.cross
            if cross is not None and layer.cross_norm is not None:
                # `cross(...)` of one sequence, in operations that the exporter knows for three
                # dimensions
                k, v = memory[read : read + 2]
                scores = cross.split(cross.q(layer.cross_norm(x))) @ k.transpose(
                    -1, -2
                ) + cross.bias(behind, positions_of_keys)
                mixed = scores.float().softmax(-1).to(v.dtype) @ v
                x = x + reads * cross.out(mixed.transpose(-2, -3).flatten(-2))
                read += 2
            x = x + layer.ffn(layer.ffn_norm(x))
        return self.model.head(self.model.norm(x)), new


class _Encoder(_Part):
    def forward(self, neighbours: Tensor, states: Tensor) -> list[Tensor]:
        """(neighbour, token) and states (query token, width) -> keys and values (head, key, dim) by
        cross layer.
        """
        encoded = self.model.encoder(neighbours, states).flatten(0, 1)
        return [
            part
            for layer in self.model.layers
            if layer.cross is not None
            for part in layer.cross.keys(encoded)
        ]


def _after_attention(
    layer: RetroLayer,
    x: Tensor,
    past: Sequence[Tensor],
    positions: Tensor,
    mask: Tensor,
    new: list[Tensor],
) -> Tensor:
    """Return the states after a layer's self-attention, whose keys and values are added to `new`."""
    y = layer.attention_norm(x)
    bias = layer.attention.bias
    k, v = layer.attention.keys(y)
    new += k, v
    cached = bias(positions, torch.arange(mask.shape[0])) + mask
    own_bias = bias(positions, positions) + causal(positions.shape[0])
    q = layer.attention.split(layer.attention.q(y))
    return x + layer.attention.out(
        attend(q, k, v, past[0], past[1], cached[:, None], own_bias[:, None])
    )


def export(checkpoint: Checkpoint, name: str, folder: Path) -> None:
    """Write the graphs of RETRO, and their origin; `name` is that of its weights."""
    export_network(make_network(checkpoint), folder)
    write_manifest(folder, {"model": name, **_origin(checkpoint)})


def export_network(model: RetroNetwork, folder: Path) -> None:
    """Write `lower.onnx`, `encoder.onnx` and `upper.onnx`. All lengths are dynamic."""
    sizes = model.sizes
    dtype = model.head.weight.dtype
    low = range(sizes.cross[0] + 1)
    high = range(len(low), sizes.layers)

    def pairs(kind: str, layers: Sequence[int], length: int, dim: Any) -> _Input:
        """Return the names, examples and dynamic dimensions of layers' keys and values."""
        names = [f"{kind}_{part}_{layer}" for layer in layers for part in "kv"]
        shape = (sizes.heads, length, sizes.width // sizes.heads)
        return names, [torch.zeros(shape, dtype=dtype) for _ in names], [{1: dim} for _ in names]

    count = 3  # of tokens in the examples, and of slots 5, of keys 7
    states: _Input = (["states"], torch.zeros(count, sizes.width, dtype=dtype), {0: TOKENS})
    positions: _Input = (["positions"], torch.arange(count), {0: TOKENS})
    mask: _Input = (["mask"], torch.zeros(5), {0: SLOTS})
    memory = pairs("memory", sizes.cross, 7, KEYS)
    lower = [
        (["ids"], torch.zeros(count, dtype=torch.long), {0: TOKENS}),
        positions,
        mask,
        pairs("past", low, 5, SLOTS),
    ]
    upper = [
        states,
        positions,
        mask,
        pairs("past", high, 5, SLOTS),
        memory,
        (["reads"], torch.ones(1, dtype=dtype), None),
        (["behind"], torch.arange(count), {0: TOKENS}),
        (["places"], torch.arange(7), {0: KEYS}),
    ]
    many = {
        0: torch.export.Dim("neighbours", min=1, max=1 << 10),
        1: torch.export.Dim("length", min=1, max=1 << 12),
    }
    encoder = [(["neighbours"], torch.zeros(2, 7, dtype=torch.long), many), states]
    for name, part, inputs, outputs in (
        ("lower", _Lower, lower, ["states", *pairs("new", low, 1, None)[0]]),
        ("upper", _Upper, upper, ["logits", *pairs("new", high, 1, None)[0]]),
        ("encoder", _Encoder, encoder, memory[0]),
    ):
        names, examples, shapes = zip(*inputs, strict=True)
        path = folder / f"{name}.onnx"
        write_graph(part(model), path, examples, shapes, [*chain.from_iterable(names)], outputs)


def load_exported(checkpoint: Checkpoint) -> OnnxRetroLM:
    """Load what `export` wrote. Raises UserError if it is incomplete or of another origin."""
    assert checkpoint.exported is not None
    check_origin(checkpoint.exported, _origin(checkpoint))
    paths = {name: checkpoint.exported / f"{name}.onnx" for name in PARTS}
    return OnnxRetroLM(paths, checkpoint.tokenizer, checkpoint.device, checkpoint.threads)


def _origin(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "model_sha256": checkpoint.sha256,
        "vocabulary": checkpoint.vocabulary,
        "dtype": checkpoint.dtype,
    }


class OnnxRetroLM(OnnxModel):
    def open(self, tokens: int, neighbour_tokens: int = 0) -> OnnxRetroReader:
        """See `NeighbourModel.open`; slots grow with the sequence, whatever its `tokens`."""
        return OnnxRetroReader(self)


class OnnxRetroReader(OwnReader):
    """One sequence: its keys and values in slots, states that condition the encoder, keys of
    encoded neighbours.
    """

    def __init__(self, lm: OnnxRetroLM) -> None:
        super().__init__(lm)
        self._lower, self._encoder, self._upper = (lm.graphs[name] for name in PARTS)
        low = self._lower.past_sizes
        high = self._upper.past_sizes
        # (heads, dim)
        self._low = list(low)
        self._high = list(high)
        self._row = next(iter(low.values()))
        self._slots = Slots(low | high, 0, self._lower.types["states"][0], self._lower.device)
        self._width, self._vocab = (
            graph.session.get_outputs()[0].shape[1] for graph in (self._lower, self._upper)
        )
        # of the last tokens, at the first cross-attention
        self._states = self._lower.empty("states", 0, self._width)
        heads, dim = self._row
        self._nothing = {
            name: self._encoder.empty(name, heads, 1, dim).zero_() for name in self._encoder.outputs
        }
        self._nothing["reads"] = self._upper.tensor("reads", [0.0])
        self._nothing["places"] = self._upper.tensor("places", [0])
        self._memory = self._nothing

    def forward(self, ids: Tokens) -> Tensor:
        first = self.length
        count = len(ids)
        slots = self._slots
        slots.reserve(first + count)
        positions = torch.arange(first, first + count, device=self._lower.device)
        states = self._lower.empty("states", count, self._width)
        new = slots.room(count)
        read = {
            "ids": self._lower.tensor("ids", ids),
            "positions": positions,
            **slots.feeds(self._low),
        }
        self._lower.run(read, {"states": states, **slots.outputs(new, self._low)})
        self._states = torch.cat([self._states, states])[-CHUNK:]
        self.encode_pending()
        logits = self._upper.empty("logits", count, self._vocab)
        read = {
            "states": states,
            "positions": positions,
            "behind": positions - self._since,
            **slots.feeds(self._high),
            **self._memory,
        }
        self._upper.run(read, {"logits": logits, **slots.outputs(new, self._high)})
        slots.put(new, first)
        self.length += count
        return logits.float()

    def encode(self, neighbours: Sequence[Sequence[Tokens]], positions: Sequence[int]) -> None:
        self._memory = self._nothing
        if not neighbours:
            return
        heads, dim = self._row
        encoder = self._encoder
        states = self._states.contiguous()
        encoded = []
        for texts in neighbours:
            ids = encoder.tensor("neighbours", texts)
            outputs = {n: encoder.empty(n, heads, ids.numel(), dim) for n in encoder.outputs}
            encoder.run({"neighbours": ids, "states": states}, outputs)
            encoded.append(outputs)
        self._memory = {n: torch.cat([part[n] for part in encoded], 1) for n in encoder.outputs}
        self._memory["reads"] = self._upper.tensor("reads", [1.0])
        self._memory["places"] = self._upper.tensor("places", positions)
