"""A decoder as an ONNX graph with its cache as inputs, and ONNX Runtime as the engine of generation.

The graph takes new tokens, their positions and, of every layer, keys and values of a number of slots under a mask; it
returns logits and the new tokens' keys and values. Retrieved states are slots like any other: the neighbours' keys and
values stand in the first slots, the sequence's own behind them, so that one graph reads neighbours, reads text and
decodes. Nothing of the cache is returned: the caller writes the new states into their slots.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ragauge.assets import resolve
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.cost.trace import Call
from ragauge.engines import LM
from ragauge.engines.decoder import Decoder
from ragauge.engines.rope import alibi_bias
from ragauge.errors import UnsupportedError, UserError
from ragauge.generation.onnx.runtime import (
    HIDDEN,
    SLOTS,
    TOKENS,
    OnnxModel,
    Slots,
    attend,
    causal,
    check_origin,
    past_sizes,
    write_origin,
)
from ragauge.generation.reader import Kept, Prepared, PreparingReader, Tokens
from ragauge.generation.readers import Checkpoint
from ragauge.generation.readers.joint import JointAttention
from ragauge.io.graphs import write_graph

CACHED_AT = "cached_positions"  # of slots; an input where the family's attention needs them (ALiBi)


class _Graph(nn.Module):
    """The decoder as a function of tensors alone."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor, past: Sequence[Tensor], cached_at: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """(token,), (token,), (slot,) and keys and values (kv_head, slot, dim) by layer -> logits and the new ones."""
        decoder, new = self.decoder, list[Tensor]()
        shape, turn = decoder.shape, decoder.turn(positions)

        def inner(index: int, normed: Tensor) -> Tensor:
            parts = decoder.split(index, decoder.weights.layers[index].qkv(normed), turn)
            q, k, v = (part.transpose(0, 1) for part in parts)
            new.extend((k, v))
            biases = self._biases(shape.kv_heads[index], positions, mask, cached_at)
            return attend(q * shape.head_dim**-0.5, k, v, past[2 * index], past[2 * index + 1], *biases)

        x = decoder.through(decoder.embedded(ids), inner)
        return decoder.logits(decoder.weights.norm(x)), new

    def _biases(
        self, kv_heads: int, positions: Tensor, mask: Tensor, cached_at: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """What is added to scores of cached and of new keys."""
        own, slopes = causal(positions.shape[0]), self.decoder.slopes
        if slopes is None or cached_at is None:
            return mask, own
        cached, new = (alibi_bias(slopes, positions[None], keys[None])[0] for keys in (cached_at, positions))
        return (cached + mask).unflatten(0, (kv_heads, -1)), (new + own).unflatten(0, (kv_heads, -1))


def export(decoder: Decoder, path: Path) -> Path:
    """Write a decoder as ONNX, its weights in a file beside it. Token and slot counts are dynamic, from 1 and 0.

    Raises:
        UnsupportedError: a decoder that is not in float32.
    """
    shape = decoder.shape
    if decoder.weights.embedding.dtype != torch.float32:
        raise UnsupportedError("ONNX export requires a decoder in float32")
    tokens, slots = 3, 5
    past = [torch.zeros(heads, slots, shape.head_dim) for heads in shape.kv_heads for _ in range(2)]
    names = [f"{kind}_{layer}" for layer in range(shape.layers) for kind in ("k", "v")]
    arguments: list[Any] = [torch.zeros(tokens, dtype=torch.long), torch.zeros(tokens), torch.zeros(slots), past]
    dynamic: list[Any] = [{0: TOKENS}, {0: TOKENS}, {0: SLOTS}, [{1: SLOTS} for _ in past]]
    inputs = ["ids", "positions", "mask", *(f"past_{name}" for name in names)]
    if decoder.slopes is not None:
        arguments.append(torch.zeros(slots))
        dynamic.append({0: SLOTS})
        inputs.append(CACHED_AT)
    outputs = ["logits", *(f"new_{name}" for name in names)]
    return write_graph(_Graph(decoder), path, tuple(arguments), tuple(dynamic), inputs, outputs)


def export_model(lm: LM, folder: Path, about: Mapping[str, Any], adapted: LM | None = None) -> Path:
    """Write a decoder, and the same with trained adapters where there is one, with `about` what they come from."""
    for name, model in (("decoder", lm), ("adapted", adapted)):
        if model is not None:
            assert model.decoder is not None
            export(model.decoder, folder / f"{name}.onnx")
    write_origin(folder, about)
    return folder


def open_exported(checkpoint: Checkpoint, form: JointAttention | None = None) -> OnnxLM:
    """What `export_model` wrote. Raises UserError where it is not there whole or comes from something else."""
    assert checkpoint.exported is not None
    about = {"model_sha256": checkpoint.sha256, "adapters_sha256": checkpoint.adapters_sha256}
    check_origin(checkpoint.exported, about)
    tokenizer = load_tokenizer(resolve(checkpoint.model))
    return OnnxLM(checkpoint.exported, replace(checkpoint, tokenizer=tokenizer), form)


class OnnxLM(OnnxModel):
    """A decoder in ONNX Runtime; a second graph of it, with trained adapters, reads neighbours where there is one."""

    def __init__(self, folder: Path, checkpoint: Checkpoint, form: JointAttention | None = None) -> None:
        """See `OnnxModel`."""
        reads = "adapted" if checkpoint.adapters_sha256 else "decoder"
        super().__init__(folder, sorted({"decoder", reads}), checkpoint)
        self.decoder, self.adapted = self.sessions["decoder"], self.sessions[reads]
        self.form = form or JointAttention()

    def open(self, tokens: int = 0, neighbour_tokens: int = 0) -> OnnxReader:
        """See `Model.open`; slots for the sequence grow as it does, whatever its `tokens`."""
        return OnnxReader(self, neighbour_tokens)


class OnnxReader(PreparingReader):
    """A sequence and its neighbours in slots of one cache: first those of neighbours, then the sequence's."""

    def __init__(self, lm: OnnxLM, front: int) -> None:
        self.lm, self.form, self.front, self.length = lm, lm.form, front, 0
        sizes = past_sizes(lm.decoder)
        self._names = list(sizes)
        self._at = any(node.name == CACHED_AT for node in lm.decoder.get_inputs())  # whether slots' positions matter
        self._slots = Slots(sizes, front)
        self._sink: Slots | None = None  # the sequence's first token
        self._kept: Kept[list[np.ndarray]] = Kept()

    def prepare(self, neighbours: Sequence[Tokens], length: int) -> Prepared:
        """See `PreparingReader.prepare`. Raises UserError where they do not fit, or the sequence has no token yet."""
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
        return Prepared(tuple(calls), lambda: self._put_neighbours(states, last))

    def _read(self, texts: Sequence[Tokens], last: int) -> tuple[list[list[np.ndarray]], Call]:
        """Each neighbour's keys and values by name; they end before position `last`."""
        assert self._sink is not None
        started, sink = time.perf_counter(), int(self.form.sink)
        behind = self._sink if sink else Slots(past_sizes(self.lm.adapted))
        states = [self._run(self.lm.adapted, ids, last - len(ids), behind)[1] for ids in texts]
        lengths, past = tuple(map(len, texts)), (sink,) * len(texts)
        return states, Call("neighbours", lengths, past, parallel=len(texts) > 1, seconds=_since(started))

    def _put_neighbours(self, states: Sequence[Sequence[np.ndarray]], last: int) -> None:
        self._slots.mask[: self.front] = HIDDEN
        slot = 0
        for new in states:
            count = new[0].shape[1]
            self._slots.put(self._names, new, slot, last - count, self.form.bias)
            slot += count

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
        logits, new = self._run(self.lm.decoder, ids, self.length, self._slots)
        self._slots.put(self._names, new, first, self.length)
        self.length += len(ids)
        if self._sink is None:
            self._sink = Slots(past_sizes(self.lm.decoder), 1)
            self._sink.put(self._names, [states[:, :1] for states in new], 0)
        return logits

    def _run(self, session: Any, ids: Tokens, first: int, cached: Slots) -> tuple[np.ndarray, list[np.ndarray]]:
        positions = np.arange(first, first + len(ids), dtype=np.float32)
        feeds = {"ids": np.asarray(ids, np.int64), "positions": positions, **cached.feeds()}
        if self._at:
            feeds[CACHED_AT] = cached.positions
        logits, *new = session.run(["logits", *(f"new_{name}" for name in self._names)], feeds)
        return logits, new


def _since(started: float) -> float:
    return time.perf_counter() - started
