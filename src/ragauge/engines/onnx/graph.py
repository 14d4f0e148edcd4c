"""A decoder as an ONNX graph with its cache as inputs: keys and values of a number of slots by
layer, under a mask.

It returns logits and the new tokens' keys and values, not the cache: the caller writes them into
their slots.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ragauge.engines.decoder import Decoder
from ragauge.engines.onnx.graphs import write_graph
from ragauge.engines.onnx.runtime import SLOTS, TOKENS, Graph, Slots, attend, causal
from ragauge.errors import UnsupportedError


class _Graph(nn.Module):
    """The decoder as a function of tensors alone."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Tensor,
        past: Sequence[Tensor],
    ) -> tuple[Tensor, list[Tensor]]:
        """(token,), (token,), (slot,) and keys and values (kv_head, slot, dim) by layer -> logits
        and the new ones.
        """
        decoder = self.decoder
        new = list[Tensor]()
        shape = decoder.shape
        rotations = decoder.rotations(positions)

        def inner(index: int, normed: Tensor) -> Tensor:
            parts = decoder.split(
                index, decoder.weights.layers[index].qkv(normed), rotations[index]
            )
            q, k, v = (part.transpose(0, 1) for part in parts)
            new.extend((k, v))
            scaled = q * shape.head_dim**-0.5
            own_bias = causal(positions.shape[0])
            return attend(scaled, k, v, past[2 * index], past[2 * index + 1], mask, own_bias)

        x = decoder.run_layers(decoder.embed(ids), inner)
        return decoder.logits(decoder.weights.norm(x)), new


def export_decoder(decoder: Decoder, path: Path) -> None:
    """Write a decoder as ONNX, its weights in a file next to it. Token and slot counts are dynamic,
    from 1 and 0.

    Positions, masks and what is added to scores are in float32.

    Raises:
        UnsupportedError: weights that are neither in float32 nor in float16, sliding windows,
            ALiBi.
    """
    shape = decoder.shape
    dtype = decoder.weights.embedding.dtype
    if dtype not in (torch.float32, torch.float16):
        raise UnsupportedError("ONNX export requires a decoder in float32 or float16")
    if shape.shortest_window is not None or shape.position != "rope":
        raise UnsupportedError(
            "ONNX export requires a decoder with rotary positions and without sliding windows"
        )
    tokens = 3
    slots = 5
    past = [
        torch.zeros(heads, slots, shape.head_dim, dtype=dtype)
        for heads in shape.kv_heads
        for _ in range(2)
    ]
    names = [f"{kind}_{layer}" for layer in range(shape.layers) for kind in ("k", "v")]
    ids = torch.zeros(tokens, dtype=torch.long)
    arguments: list[Any] = [ids, torch.zeros(tokens), torch.zeros(slots), past]
    dynamic: list[Any] = [{0: TOKENS}, {0: TOKENS}, {0: SLOTS}, [{1: SLOTS} for _ in past]]
    inputs = ["ids", "positions", "mask", *(f"past_{name}" for name in names)]
    outputs = ["logits", *(f"new_{name}" for name in names)]
    write_graph(_Graph(decoder), path, tuple(arguments), tuple(dynamic), inputs, outputs)


class OnnxDecoder:
    """An exported decoder in ONNX Runtime."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._vocab = graph.session.get_outputs()[graph.outputs.index("logits")].shape[1]

    def slots(self, count: int) -> Slots:
        """An empty cache."""
        sizes = self.graph.past_sizes
        return Slots(
            sizes, count, self.graph.types[f"past_{next(iter(sizes))}"][0], self.graph.device
        )

    def run(self, ids: Sequence[int], first: int, cached: Slots) -> tuple[Tensor, Tensor]:
        """Logits (token, vocab) of tokens from position `first` on; their keys and values as
        `Slots.put` takes them.
        """
        graph = self.graph
        count = len(ids)
        positions = torch.arange(first, first + count, dtype=torch.float32, device=graph.device)
        inputs = {"ids": graph.tensor("ids", list(ids)), "positions": positions, **cached.feeds()}
        logits = graph.empty("logits", count, self._vocab)
        new = cached.room(count)
        graph.run(inputs, {"logits": logits, **cached.outputs(new)})
        return logits.float(), new
