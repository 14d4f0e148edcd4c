"""RETRO as three functions of tensors, in torch or as ONNX graphs: its encoder, and its decoder in
two parts, `lower` and `upper`, between which the encoder runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ragauge.engines.onnx.runtime import SLOTS, TOKENS, Graph, attend, causal
from ragauge.pipelines.modes._retro_network import RetroLayer, RetroNetwork

PARTS = ("lower", "encoder", "upper")
KEYS = torch.export.Dim("keys", min=1, max=1 << 16)
# of a part: names of its tensors, an example of them, their dynamic dimensions
Input = tuple[list[str], Any, Any]


class Part(nn.Module):
    """Some of RETRO's layers as a function of tensors alone, and the names of these."""

    def __init__(self, model: RetroNetwork, inputs: list[Input], outputs: list[str]) -> None:
        super().__init__()
        self.model = model
        self.first_cross = model.sizes.cross[0]
        self.inputs = inputs
        self.outputs = outputs


class _Lower(Part):
    def forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor, past: Sequence[Tensor]
    ) -> list[Tensor]:
        """(token,), (token,), (slot,), keys and values by layer -> states (token, width), then the
        new keys and values.
        """
        x = self.model.embedding(ids)
        new = list[Tensor]()
        for index, layer in enumerate(self.model.layers[: self.first_cross + 1]):
            x = _after_attention(layer, x, past[2 * index : 2 * index + 2], positions, mask, new)
            if index < self.first_cross:
                x = x + layer.ffn(layer.ffn_norm(x))
        return [x, *new]


class _Upper(Part):
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
    ) -> list[Tensor]:
        """The states of `lower` and encoded neighbours -> logits (token, vocab), then the new keys
        and values.

        Args:
            memory: keys and values (head, key, dim) of the layers with cross-attention; a graph
                takes at least one key, torch none where there are no neighbours.
            reads: 1 if there are neighbours, else 0, (1,).
            behind: places of the tokens behind the query's last, (token,).
            positions_of_keys: (key,).
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
            if memory and cross is not None and layer.cross_norm is not None:
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
        return [self.model.head(self.model.norm(x)), *new]


class _Encoder(Part):
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
    cached = bias(positions, torch.arange(mask.shape[0], device=mask.device)) + mask
    own_bias = bias(positions, positions) + causal(positions.shape[0], mask.device)
    q = layer.attention.split(layer.attention.q(y))
    return x + layer.attention.out(
        attend(q, k, v, past[0], past[1], cached[:, None], own_bias[:, None])
    )


def split(model: RetroNetwork) -> dict[str, Part]:
    """Return the parts of RETRO. All lengths are dynamic."""
    sizes = model.sizes
    dtype = model.head.weight.dtype
    low = range(sizes.cross[0] + 1)
    high = range(len(low), sizes.layers)

    def pairs(kind: str, layers: Sequence[int], length: int, dim: Any) -> Input:
        """Return the names, examples and dynamic dimensions of layers' keys and values."""
        names = [f"{kind}_{part}_{layer}" for layer in layers for part in "kv"]
        shape = (sizes.heads, length, sizes.width // sizes.heads)
        return names, [torch.zeros(shape, dtype=dtype) for _ in names], [{1: dim} for _ in names]

    count = 3  # of tokens in the examples, and of slots 5, of keys 7
    states: Input = (["states"], torch.zeros(count, sizes.width, dtype=dtype), {0: TOKENS})
    positions: Input = (["positions"], torch.arange(count), {0: TOKENS})
    mask: Input = (["mask"], torch.zeros(5), {0: SLOTS})
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
    return {
        "lower": _Lower(model, lower, ["states", *pairs("new", low, 1, None)[0]]),
        "encoder": _Encoder(model, encoder, memory[0]),
        "upper": _Upper(model, upper, ["logits", *pairs("new", high, 1, None)[0]]),
    }


class TorchGraph(Graph):
    """A part in torch, run as ONNX Runtime runs its graph."""

    def __init__(self, part: Part) -> None:
        self.part = part
        weight = part.model.head.weight
        sizes = part.model.sizes
        self.device = weight.device
        self.outputs = part.outputs
        integers = ("ids", "neighbours", "places")
        self.types: Any = {
            name: (torch.long if name in integers else weight.dtype, object)
            for name in [*part.outputs, "reads", *integers]
        }
        cached = [name.removeprefix("new_") for name in part.outputs if name.startswith("new_")]
        self.past_sizes = dict.fromkeys(cached, (sizes.heads, sizes.width // sizes.heads))

    def run(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:
        """Fill `outputs` from `inputs`, of which those of encoded neighbours may be missing."""
        arguments: list[Any] = []
        for names, example, _ in self.part.inputs:
            given = [inputs[name] for name in names if name in inputs]
            arguments.append(given if isinstance(example, list) else next(iter(given), None))
        for name, result in zip(self.outputs, self.part(*arguments), strict=True):
            outputs[name].copy_(result)
