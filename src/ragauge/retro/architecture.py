"""RETRO as the PipeRAG paper sizes it: a decoder with chunked cross-attention and a small encoder of neighbours.

Borgeaud et al., 2022, with the choices of Norlund et al., 2023, whose checkpoint PipeRAG uses: T5's RMS norms, gated
GELU, learned relative bias and unscaled attention. Layer 5 of the decoder (from 0) is the first with cross-attention;
its states after self-attention condition the encoder, whose output layers 5, 8 and 11 attend to.

Here it serves latency, with random weights, and a user's checkpoint. Its states are those of the windows of
`windows.Windows`: the last token of a query is the first that attends to what the query found.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn

from ragauge.cost.trace import Call
from ragauge.errors import UserError
from ragauge.retro.reader import Tokens, Traced
from ragauge.retro.sizes import PAPER, Sizes
from ragauge.retro.windows import CHUNK

BUCKETS, MAX_DISTANCE = 32, 128  # of T5's relative bias


class Attention(nn.Module):
    """Multi-head attention without biases and without 1/sqrt(d), as in T5."""

    def __init__(self, width: int, heads: int, source: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(source or width, width, bias=False) for _ in range(2))

    def split(self, x: Tensor) -> Tensor:
        """(..., token, width) -> (..., head, token, dim)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def keys(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (..., head, token, dim) of (..., token, source width)."""
        return self.split(self.k(source)), self.split(self.v(source))

    def forward(self, x: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        """(..., token, width) over keys and values (..., head, key, dim); bias (head, token, key)."""
        if bias is not None:
            bias = bias.expand(*x.shape[:-2], *bias.shape)
        mixed = F.scaled_dot_product_attention(self.split(self.q(x)), k, v, attn_mask=bias, scale=1.0)
        return self.out(mixed.transpose(-2, -3).flatten(-2))


class FeedForward(nn.Module):
    """Gated GELU, as in T5 1.1."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))


class Layer(nn.Module):
    """Self-attention, cross-attention where `source` is a width, feed-forward; norms before each."""

    def __init__(self, width: int, heads: int, ffn: int, source: int | None) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(width, 1e-6), nn.RMSNorm(width, 1e-6)
        self.attention, self.ffn = Attention(width, heads), FeedForward(width, ffn)
        self.cross_norm = nn.RMSNorm(width, 1e-6) if source else None
        self.cross = Attention(width, heads, source) if source else None


class RelativeBias(nn.Module):
    """T5's learned bias of a head by the distance of key and query, in buckets that grow with it."""

    def __init__(self, heads: int, bidirectional: bool) -> None:
        super().__init__()
        self.table, self.bidirectional = nn.Embedding(BUCKETS, heads), bidirectional

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(head, query, key) of the positions (query,) and (key,)."""
        return self.table(buckets(keys[None] - queries[:, None], self.bidirectional)).permute(2, 0, 1)


def buckets(distance: Tensor, bidirectional: bool) -> Tensor:
    """The bucket of each distance, key minus query (Raffel et al., 2020, section 2.1)."""
    count, first = BUCKETS, torch.zeros_like(distance)
    if bidirectional:
        count //= 2
        first, distance = (distance > 0).long() * count, distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = count // 2
    far = exact + (
        torch.log(distance.float().clamp(min=1) / exact) / math.log(MAX_DISTANCE / exact) * (count - exact)
    ).long().clamp(max=count - 1 - exact)
    return first + torch.where(distance < exact, distance, far)


class Encoder(nn.Module):
    """Neighbours to states that the decoder attends to, given the decoder's states of the query's tokens."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, heads = sizes.encoder_width, sizes.encoder_heads
        self.embedding = nn.Embedding(sizes.vocab, width)
        self.bias = RelativeBias(heads, bidirectional=True)
        self.layers = nn.ModuleList(
            Layer(width, heads, sizes.encoder_ffn, sizes.width if i in sizes.encoder_cross else None)
            for i in range(sizes.encoder_layers)
        )
        self.norm = nn.RMSNorm(width, 1e-6)

    @property
    def stack(self) -> list[Layer]:
        """The layers, typed."""
        return cast("list[Layer]", list(self.layers))

    def forward(self, ids: Tensor, states: Tensor) -> Tensor:
        """(neighbour, token) and the query's states (token, decoder width) -> (neighbour, token, encoder width)."""
        x, places = self.embedding(ids), torch.arange(ids.shape[1], device=ids.device)
        bias = self.bias(places, places)
        for layer in self.stack:
            y = layer.attention_norm(x)
            x = x + layer.attention(y, *layer.attention.keys(y), bias)
            if layer.cross is not None and layer.cross_norm is not None:
                k, v = (part.expand(len(ids), -1, -1, -1) for part in layer.cross.keys(states))
                x = x + layer.cross(layer.cross_norm(x), k, v)
            x = x + layer.ffn(layer.ffn_norm(x))
        return self.norm(x)


class Retro(nn.Module):
    """The decoder and its encoder."""

    def __init__(self, sizes: Sizes = PAPER) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocab, sizes.width)
        self.bias = RelativeBias(sizes.heads, bidirectional=False)
        self.layers = nn.ModuleList(
            Layer(sizes.width, sizes.heads, sizes.ffn, sizes.encoder_width if i in sizes.cross else None)
            for i in range(sizes.layers)
        )
        self.norm = nn.RMSNorm(sizes.width, 1e-6)
        self.head = nn.Linear(sizes.width, sizes.vocab, bias=False)
        self.encoder = Encoder(sizes)

    @property
    def stack(self) -> list[Layer]:
        """The layers, typed."""
        return cast("list[Layer]", list(self.layers))

    @property
    def parameters_count(self) -> int:
        """Weights of decoder and encoder."""
        return sum(parameter.numel() for parameter in self.parameters())


def random_retro(sizes: Sizes = PAPER, seed: int = 0, device: str = "cpu") -> Retro:
    """RETRO with random weights, for latency; on the meta device without any."""
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(seed)
        model = Retro(sizes).eval()
        for name, parameter in model.named_parameters():
            if name.endswith(("q.weight", "k.weight")):  # scores are not scaled: keep them near 1
                parameter.data.mul_(0.25)
    return model


def load_retro(path: Path, sizes: Sizes = PAPER, device: str = "cpu") -> Retro:
    """RETRO with the weights of a user's file, safetensors or a state dictionary of torch, by our names of tensors.

    Raises:
        UserError: no such file, damaged, holding more than tensors, or of other names or sizes.
    """
    from safetensors.torch import load_file

    try:
        state = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except pickle.UnpicklingError:
        raise UserError(f"{path}: refused: it is damaged, or holds more than tensors, which could run code") from None
    except (SafetensorError, RuntimeError, EOFError, OSError) as error:
        raise UserError(f"{path}: truncated or damaged ({str(error).splitlines()[0]})") from None
    model = random_retro(sizes, device="meta")
    try:
        model.load_state_dict(state, assign=True)
    except (RuntimeError, AttributeError) as error:
        raise UserError(f"{path}: not the tensors of this architecture: {' '.join(str(error).split())[:300]}") from None
    return model.to(device)


@dataclass(frozen=True)
class OwnEncoder:
    """The form of reading neighbours that RETRO has, beside joint attention and RETRO-fitted cross-attention."""

    name: str = field(default="retro", init=False)


class RetroLM(Traced):
    """A RETRO model as generation sees a decoder: it opens sequences and records its calls while `tracing`."""

    def __init__(self, model: Retro, tokenizer: Any = None) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.device = model.head.weight.device

    def synchronize(self) -> None:
        """Wait until the device has done all that it was asked to."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def open(self, tokens: int) -> RetroReader:
        """A reader with room for a sequence of `tokens`."""
        return RetroReader(self, tokens)


class RetroReader:
    """One sequence: keys and values of its tokens, states that condition the encoder, keys of encoded neighbours."""

    def __init__(self, lm: RetroLM, capacity: int) -> None:
        self.lm, self.model, self.length = lm, lm.model, 0
        sizes = self.model.sizes
        room = (sizes.layers, 2, sizes.heads, capacity, sizes.width // sizes.heads)
        self._kv = torch.empty(room, dtype=lm.model.head.weight.dtype, device=lm.device)
        self._states = torch.empty(
            0, sizes.width, dtype=self._kv.dtype, device=lm.device
        )  # of the last tokens, at the first cross layer
        self._waiting: list[Tokens] | None = None  # neighbours not encoded yet: the query's last token is not read
        self._cross: dict[int, tuple[Tensor, Tensor]] = {}  # by layer: keys and values of the encoded neighbours

    def attach(self, neighbours: Sequence[Tokens]) -> None:
        """See `Reader.attach`; they are encoded when the next token is read."""
        self._waiting, self._cross = [ids for ids in neighbours if len(ids)], {}

    @torch.inference_mode()
    def read(self, ids: Tokens) -> Tensor:
        """See `Reader.read`; with neighbours just attached, the first token is the query's last."""
        if self._waiting is not None and len(ids) > 1:  # the encoder sees the query and nothing after it
            return torch.cat([self.read(ids[:1]), self.read(ids[1:])])
        self.lm.synchronize()
        started, past = time.perf_counter(), self.length
        logits = self._forward(torch.tensor(list(ids), device=self.lm.device))
        self.lm.synchronize()
        self.lm.note(_call("read", len(ids), past, 1, time.perf_counter() - started))
        return logits

    @torch.inference_mode()
    def decode(self, logits: Tensor, tokens: int) -> list[int]:
        """See `Reader.decode`."""
        started, past = time.perf_counter(), self.length
        ids = [int(logits.argmax())]
        while len(ids) < tokens:
            ids.append(int(self._forward(torch.tensor(ids[-1:], device=self.lm.device))[-1].argmax()))
        if self.length > past:
            self.lm.note(_call("decode", 1, past, self.length - past, time.perf_counter() - started))
        return ids

    def note(self, call: Call) -> None:
        """See `Reader.note`."""
        self.lm.note(call)

    def _forward(self, ids: Tensor) -> Tensor:
        model, stop = self.model, self.length + len(ids)
        x = model.embedding(ids)
        bias = self._bias(self.length, stop)
        for index, layer in enumerate(model.stack):
            y = layer.attention_norm(x)
            self._kv[index, :, :, self.length : stop] = torch.stack(layer.attention.keys(y))
            x = x + layer.attention(y, *self._kv[index, :, :, :stop], bias)
            if index == model.sizes.cross[0]:
                self._states = torch.cat([self._states, x])[-CHUNK:]
                self._encode()
            if layer.cross is not None and layer.cross_norm is not None and index in self._cross:
                x = x + layer.cross(layer.cross_norm(x), *self._cross[index])
            x = x + layer.ffn(layer.ffn_norm(x))
        self.length = stop
        return model.head(model.norm(x))

    def _bias(self, start: int, stop: int) -> Tensor:
        """Relative bias (head, query, key) of the new tokens, -inf for keys after them."""
        places = torch.arange(stop, device=self.lm.device)
        new = places[start:]
        return self.model.bias(new, places).masked_fill(places[None] > new[:, None], float("-inf"))

    def _encode(self) -> None:
        """Encode the neighbours that wait, given the states of the query's tokens, of which the last was just read."""
        if self._waiting is None:
            return
        waiting, self._waiting = self._waiting, None
        started = time.perf_counter()
        by_length: dict[int, list[Tokens]] = {}
        for ids in waiting:
            by_length.setdefault(len(ids), []).append(ids)
        parts = [
            self.model.encoder(torch.tensor([list(ids) for ids in same], device=self.lm.device), self._states)
            for same in by_length.values()
        ]
        if not parts:
            return
        encoded = torch.cat([part.flatten(0, 1) for part in parts])
        for index, layer in enumerate(self.model.stack):
            if layer.cross is not None:
                self._cross[index] = layer.cross.keys(encoded)
        self.lm.synchronize()
        self.lm.note(_call("neighbours", len(encoded), 0, 1, time.perf_counter() - started))


def _call(stage: str, tokens: int, past: int, steps: int, seconds: float) -> Call:
    return Call(stage, (tokens,), (past,), logits=() if stage == "neighbours" else (1,), steps=steps, seconds=seconds)
