"""ONNX: a Llama-family decoder as a graph with its cache as inputs, and ONNX Runtime as the engine of generation.

The graph takes new tokens, their positions and, of every layer, keys and values of a number of slots under a mask; it
returns logits and the new tokens' keys and values. Retrieved states are slots like any other: the neighbours' keys and
values stand in the first slots, the sequence's own behind them, so that one graph reads neighbours, reads text and
decodes. Nothing of the cache is returned: the caller writes the new states into their slots.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ragauge.cost.trace import Call
from ragauge.engines import LM
from ragauge.engines.decoder import ACTIVATIONS, Decoder, Layer
from ragauge.engines.rope import rotate, rotation
from ragauge.errors import UnsupportedError, UserError
from ragauge.generation.joint import JointAttention
from ragauge.generation.reader import Kept, Prepared, Tokens, Traced, attach
from ragauge.generation.runtime import (
    HIDDEN,
    SLOTS,
    TOKENS,
    Slots,
    attend,
    causal,
    check_origin,
    past_names,
    write_origin,
)
from ragauge.io.graphs import open_session, write_graph


class _Graph(nn.Module):
    """The decoder as a function of tensors alone."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor, past: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """(token,), (token,), (slot,) and keys and values (kv_head, slot, dim) by layer -> logits and the new ones."""
        shape, weights = self.decoder.shape, self.decoder.weights
        turn = rotation(positions / shape.rope_scale, shape.head_dim, shape.rope_theta)
        own = causal(ids.shape[0])
        x, new = F.embedding(ids, weights.embedding), list[Tensor]()
        for index, layer in enumerate(weights.layers):
            q, k, v = self._split(F.linear(layer.attention_norm(x), layer.qkv.weight, layer.qkv.bias), turn)
            mixed = attend(q * shape.head_dim**-0.5, k, v, past[2 * index], past[2 * index + 1], mask, own)
            x = self._after(layer, x + F.linear(mixed, layer.out.weight, layer.out.bias))
            new += [k, v]
        return F.linear(weights.norm(x), weights.head), new

    def _split(self, qkv: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """(token, rows) -> queries, keys, values (head, token, dim), rotated."""
        shape = self.decoder.shape
        heads, kv = shape.heads[0], shape.kv_heads[0]
        parts = qkv.view(-1, heads + 2 * kv, shape.head_dim)
        turned = rotate(parts[:, : heads + kv], *turn)
        return (
            turned[:, :heads].transpose(0, 1),
            turned[:, heads:].transpose(0, 1),
            parts[:, heads + kv :].transpose(0, 1),
        )

    def _after(self, layer: Layer, x: Tensor) -> Tensor:
        gate, value = F.linear(layer.mlp_norm(x), layer.up.weight, layer.up.bias).chunk(2, -1)
        inner = ACTIVATIONS[self.decoder.shape.activation](gate) * value
        return x + F.linear(inner, layer.down.weight, layer.down.bias)


def export(decoder: Decoder, path: Path) -> Path:
    """Write a decoder as ONNX, its weights in a file beside it. Token and slot counts are dynamic, from 1 and 0.

    Raises:
        UnsupportedError: a decoder that is not of the Llama family, or not in fp32.
    """
    shape = decoder.shape
    if shape.family != "llama" or decoder.weights.embedding.dtype != torch.float32:
        raise UnsupportedError(f"ONNX export: a Llama-family decoder in float32 is needed, not {shape.family}")
    tokens, slots = 3, 5
    past = [torch.zeros(shape.kv_heads[0], slots, shape.head_dim) for _ in range(2 * shape.layers)]
    arguments = (torch.zeros(tokens, dtype=torch.long), torch.zeros(tokens), torch.zeros(slots), past)
    names = [f"{kind}_{layer}" for layer in range(shape.layers) for kind in ("k", "v")]
    return write_graph(
        _Graph(decoder),
        path,
        arguments,
        ({0: TOKENS}, {0: TOKENS}, {0: SLOTS}, [{1: SLOTS} for _ in past]),
        ["ids", "positions", "mask", *(f"past_{name}" for name in names)],
        ["logits", *(f"new_{name}" for name in names)],
    )


def export_model(lm: LM, folder: Path, about: Mapping[str, Any], adapted: LM | None = None) -> Path:
    """Write a decoder, and the same with trained adapters where there is one, with `about` what they come from."""
    for name, model in (("decoder", lm), ("adapted", adapted)):
        if model is not None:
            assert model.decoder is not None
            export(model.decoder, folder / f"{name}.onnx")
    write_origin(folder, about)
    return folder


def open_exported(
    folder: Path, about: Mapping[str, Any], tokenizer: Any, *, threads: int | None = None, cuda: bool = False
) -> OnnxLM:
    """What `export_model` wrote. Raises UserError where it is not there whole or comes from something else."""
    found = check_origin(folder, about)
    adapted = folder / "adapted.onnx" if found.get("adapters_sha256") else None
    return OnnxLM(folder / "decoder.onnx", adapted=adapted, threads=threads, cuda=cuda, tokenizer=tokenizer)


class OnnxLM(Traced):
    """A decoder in ONNX Runtime, as generation sees a decoder: it opens sequences and records its calls."""

    def __init__(
        self,
        path: Path,
        *,
        adapted: Path | None = None,
        threads: int | None = None,
        cuda: bool = False,
        tokenizer: Any = None,
    ) -> None:
        """
        Args:
            path: of the exported decoder.
            adapted: of the decoder with trained adapters, which reads neighbours; default: the same.
            threads: of ONNX Runtime; default: its own choice.
            cuda: run on the GPU, where ONNX Runtime was built for one.

        Raises:
            UserError: a file that is missing or that ONNX Runtime cannot read; no GPU where one is asked for.
        """
        self.session = open_session(path, threads, cuda)
        self.adapted = open_session(adapted, threads, cuda) if adapted else self.session
        self.tokenizer = tokenizer

    def synchronize(self) -> None:
        """Calls return when their results are there."""

    def open(self, neighbour_tokens: int = 0, form: JointAttention | None = None) -> OnnxReader:
        """A reader with slots for neighbours of `neighbour_tokens` in all; slots for the sequence grow as it does."""
        return OnnxReader(self, neighbour_tokens, form or JointAttention())


class OnnxReader:
    """A sequence and its neighbours in slots of one cache: first those of neighbours, then the sequence's."""

    def __init__(self, lm: OnnxLM, front: int, form: JointAttention) -> None:
        self.lm, self.form, self.front, self.length = lm, form, front, 0
        self._names = past_names(lm.session)
        heads, _, dim = next(node.shape for node in lm.session.get_inputs() if node.name.startswith("past_"))
        self._slots = Slots(self._names, heads, dim, front)
        self._sink: dict[str, np.ndarray] | None = None  # the sequence's first token, by name: (kv_head, 1, dim)
        self._kept: Kept[list[np.ndarray]] = Kept()

    def prepare(self, neighbours: Sequence[Tokens], length: int) -> Prepared:
        """See `AheadReader.prepare`. Raises UserError where they do not fit, or the sequence has no token yet."""
        texts = [tuple(ids) for ids in neighbours if len(ids)]
        if sum(map(len, texts)) > self.front:
            raise UserError(f"neighbours of {sum(map(len, texts))} tokens do not fit into {self.front} slots")
        if self._sink is None:
            raise UserError("neighbours are read behind the sequence's first token; the sequence is empty")
        last = 0 if self.form.reach is None else max(0, length - self.form.reach)
        calls: list[Call] = []

        def read(places: Sequence[int]) -> list[list[np.ndarray]]:
            made, call = self._read([texts[place] for place in places], last)
            calls.append(call)
            return made

        states = self._kept.of([(last, ids) for ids in texts], read)
        return Prepared(tuple(calls), lambda: self._put_neighbours(states))

    def _read(self, texts: Sequence[Tokens], last: int) -> tuple[list[list[np.ndarray]], Call]:
        """Each neighbour's keys and values by name; they end before position `last`."""
        assert self._sink is not None
        started, sink = time.perf_counter(), int(self.form.sink)
        behind = {f"past_{name}": slot[:, :sink] for name, slot in self._sink.items()}
        behind["mask"] = np.zeros(sink, np.float32)
        states = [self._run(self.lm.adapted, ids, last - len(ids), behind)[1] for ids in texts]
        lengths, past = tuple(map(len, texts)), (sink,) * len(texts)
        return states, Call("neighbours", lengths, past, parallel=len(texts) > 1, seconds=_since(started))

    def _put_neighbours(self, states: Sequence[Sequence[np.ndarray]]) -> None:
        self._slots.mask[: self.front] = HIDDEN
        slot = 0
        for new in states:
            self._slots.put(self._names, new, slot)
            stop = slot + new[0].shape[1]
            self._slots.mask[slot:stop] = self.form.bias
            slot = stop

    def attach(self, neighbours: Sequence[Tokens]) -> None:
        """See `Reader.attach`."""
        attach(self, neighbours)

    def read(self, ids: Tokens) -> Tensor:
        """See `Reader.read`."""
        started, past = time.perf_counter(), self._slots.attended
        logits = self._step(ids)
        self.lm.note(Call("read", (len(ids),), (past,), logits=(len(ids),), seconds=_since(started)))
        return torch.from_numpy(logits)

    def decode(self, logits: Tensor, tokens: int) -> list[int]:
        """See `Reader.decode`."""
        started, past = time.perf_counter(), self._slots.attended
        ids = [int(logits.argmax())]
        while len(ids) < tokens:
            ids.append(int(self._step(ids[-1:])[-1].argmax()))
        if tokens > 1:
            self.lm.note(Call("decode", (1,), (past,), logits=(1,), steps=tokens - 1, seconds=_since(started)))
        return ids

    def note(self, call: Call) -> None:
        """See `Reader.note`."""
        self.lm.note(call)

    def _step(self, ids: Tokens) -> np.ndarray:
        """Read tokens of the sequence: logits (token, vocab)."""
        first = self.front + self.length
        self._slots.reserve(first + len(ids))
        logits, new = self._run(self.lm.session, ids, self.length, self._slots.feeds())
        self._slots.put(self._names, new, first)
        self._slots.mask[first : first + len(ids)] = 0
        self.length += len(ids)
        if self._sink is None:
            self._sink = {name: slots[:, first : first + 1].copy() for name, slots in self._slots.past.items()}
        return logits

    def _run(
        self, session: Any, ids: Tokens, first: int, cached: dict[str, np.ndarray]
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        positions = np.arange(first, first + len(ids), dtype=np.float32)
        feeds = {"ids": np.asarray(ids, np.int64), "positions": positions, **cached}
        logits, *new = session.run(["logits", *(f"new_{name}" for name in self._names)], feeds)
        return logits, new


def _since(started: float) -> float:
    return time.perf_counter() - started
