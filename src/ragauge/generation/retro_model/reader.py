"""Reading with RETRO itself: a decoder that attends to what its own encoder makes of the neighbours.

The windows are those of `windows.Windows`: the last token of a query is the first that attends to what the query found.
Its state, and those of the query's other tokens, condition the encoder, so neighbours are encoded when it is read.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ragauge.cost.trace import Call
from ragauge.engines.protocol import Traced
from ragauge.generation.reader import Prepare, Tokens
from ragauge.generation.retro_model.architecture import RetroNetwork
from ragauge.generation.windows import CHUNK, NEIGHBOUR


class OwnReader(ABC):
    """One sequence of RETRO's, whatever runs it."""

    ahead: Prepare | None = None  # the encoder is conditioned on the query, so neighbours are encoded with it

    def __init__(self, lm: Traced) -> None:
        self.lm, self.length = lm, 0
        self._waiting: list[Tokens] | None = None  # neighbours not encoded yet: the query's last token is not read
        self._since = 0  # the place of that token, from which cross-attention counts

    @abstractmethod
    def forward(self, ids: Tokens) -> Tensor:
        """Read tokens: logits (token, vocab). `encode_waiting` is called in the first layer with cross-attention."""

    @abstractmethod
    def encode(self, neighbours: Sequence[Sequence[Tokens]], places: Sequence[int]) -> None:
        """Let tokens attend to these neighbours, those of one length side by side; none: to none.

        Args:
            places: of all their tokens in turn, among the neighbours laid end to end.
        """

    def attach(self, neighbours: Sequence[Tokens]) -> None:
        """See `Reader.attach`; they are encoded when the next token is read."""
        self._waiting, self._since = list(neighbours), self.length
        self.encode([], [])

    @torch.inference_mode()
    def read(self, ids: Tokens) -> Tensor:
        """See `Reader.read`; with neighbours just attached, the first token is the query's last."""
        if self._waiting is not None and len(ids) > 1:  # the encoder sees the query and nothing after it
            return torch.cat([self.read(ids[:1]), self.read(ids[1:])])
        self.lm.synchronize()
        started, past = time.perf_counter(), self.length
        logits = self.forward(ids)
        self.lm.synchronize()
        self.lm.note(_call("read", len(ids), past, 1, time.perf_counter() - started))
        return logits

    @torch.inference_mode()
    def decode(self, logits: Tensor, tokens: int) -> list[int]:
        """See `Reader.decode`."""
        started, past = time.perf_counter(), self.length
        ids = [int(logits.argmax())]
        while len(ids) < tokens:
            ids.append(int(self.forward(ids[-1:])[-1].argmax()))
        if self.length > past:
            self.lm.note(_call("decode", 1, past, self.length - past, time.perf_counter() - started))
        return ids

    def note(self, call: Call) -> None:
        """See `Reader.note`."""
        self.lm.note(call)

    def encode_waiting(self) -> None:
        """Encode the neighbours that wait, given the states of the query's tokens, of which the last was just read."""
        waiting, self._waiting = self._waiting, None
        if not waiting or not any(map(len, waiting)):
            return
        started = time.perf_counter()
        by_length: dict[int, list[int]] = {}
        for number, ids in enumerate(waiting):
            by_length.setdefault(len(ids), []).append(number)
        alike = [numbers for length, numbers in by_length.items() if length]
        places = [number * NEIGHBOUR + i for same in alike for number in same for i in range(len(waiting[number]))]
        self.encode([[waiting[number] for number in same] for same in alike], places)
        self.lm.synchronize()
        self.lm.note(_call("neighbours", sum(map(len, waiting)), 0, 1, time.perf_counter() - started))


def _call(stage: str, tokens: int, past: int, steps: int, seconds: float) -> Call:
    return Call(stage, (tokens,), (past,), logits=() if stage == "neighbours" else (1,), steps=steps, seconds=seconds)


class RetroLM(Traced):
    """A RETRO model in torch as generation sees a decoder: it opens sequences and records its calls while `tracing`."""

    def __init__(self, model: RetroNetwork, tokenizer: Any = None) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.device = model.head.weight.device

    def synchronize(self) -> None:
        """Wait until the device has done all that it was asked to."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def open(self, tokens: int, neighbour_tokens: int = 0) -> RetroReader:
        """See `Model.open`; neighbours take no room in the cache."""
        return RetroReader(self, tokens)


class RetroReader(OwnReader):
    """One sequence: keys and values of its tokens, states that condition the encoder, keys of encoded neighbours."""

    def __init__(self, lm: RetroLM, capacity: int) -> None:
        super().__init__(lm)
        self.model, self.device = lm.model, lm.device
        sizes, dtype = self.model.sizes, lm.model.head.weight.dtype
        room = (sizes.layers, 2, sizes.heads, capacity, sizes.width // sizes.heads)
        self._kv = torch.empty(room, dtype=dtype, device=lm.device)
        # of the last tokens, at the first layer with cross-attention
        self._states = torch.empty(0, sizes.width, dtype=dtype, device=lm.device)
        self._cross: dict[int, tuple[Tensor, Tensor]] = {}  # by layer: keys and values of the encoded neighbours
        self._places = torch.empty(0, dtype=torch.long, device=lm.device)  # of these keys

    def forward(self, ids: Tokens) -> Tensor:
        """See `OwnReader.forward`."""
        model, stop = self.model, self.length + len(ids)
        x = model.embedding(torch.tensor(list(ids), device=self.device))
        places = torch.arange(stop, device=self.device)
        new, hidden = places[self.length :], places[None] > places[self.length :, None]
        for index, layer in enumerate(model.stack):
            y = layer.attention_norm(x)
            self._kv[index, :, :, self.length : stop] = torch.stack(layer.attention.keys(y))
            bias = layer.attention.bias(new, places).masked_fill(hidden, float("-inf"))
            x = x + layer.attention(y, *self._kv[index, :, :, :stop], bias)
            if index == model.sizes.cross[0]:
                self._states = torch.cat([self._states, x])[-CHUNK:]
                self.encode_waiting()
            if layer.cross is not None and layer.cross_norm is not None and index in self._cross:
                bias = layer.cross.bias(new - self._since, self._places)
                x = x + layer.cross(layer.cross_norm(x), *self._cross[index], bias)
            x = x + layer.ffn(layer.ffn_norm(x))
        self.length = stop
        return model.head(model.norm(x))

    def encode(self, neighbours: Sequence[Sequence[Tokens]], places: Sequence[int]) -> None:
        """See `OwnReader.encode`."""
        self._cross = {}
        if not neighbours:
            return
        self._places = torch.tensor(places, device=self.device)
        groups = [torch.tensor([list(ids) for ids in same], device=self.device) for same in neighbours]
        encoded = torch.cat([self.model.encoder(ids, self._states).flatten(0, 1) for ids in groups])
        for index, layer in enumerate(self.model.stack):
            if layer.cross is not None:
                self._cross[index] = layer.cross.keys(encoded)
