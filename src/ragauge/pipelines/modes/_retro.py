"""RETRO in torch: its weights, random ones or a converted checkpoint's, and reading with it.

The last token of a query is the first that attends to its neighbours. The states of the query's
tokens condition the encoder, so neighbours are encoded when it is read.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ragauge.cost.trace import Call
from ragauge.engines.loading import DTYPES
from ragauge.engines.protocol import Traced
from ragauge.errors import UserError, error_line, in_one_line
from ragauge.pipelines.modes._retro_network import RetroNetwork
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.reader import SequenceReader, Tokens
from ragauge.pipelines.sizes import PAPER, Sizes
from ragauge.pipelines.windows import CHUNK, NEIGHBOUR


def make_network(checkpoint: Checkpoint) -> RetroNetwork:
    """RETRO of a checkpoint's own sizes, or at the paper's with random weights.

    The vocabulary of the paper's sizes grows to that of the database's tokenizer.

    Raises:
        UserError: as `read_folder`.
    """
    folder = checkpoint.released_retro
    if folder is not None:
        network = read_folder(folder)
    else:
        sizes = replace(PAPER, vocab=max(PAPER.vocab, checkpoint.vocabulary))
        network = random_network(sizes, checkpoint.seed)
    return network.to(checkpoint.device, DTYPES[checkpoint.dtype])


def random_network(sizes: Sizes, seed: int = 0, device: str = "cpu") -> RetroNetwork:
    """RETRO with random weights, for latency; on the meta device without any."""
    with torch.random.fork_rng(devices=[]), torch.device(device):
        torch.manual_seed(seed)
        network = RetroNetwork(sizes).eval()
        for name, parameter in network.named_parameters():
            # scores are not scaled: this keeps them near 1
            if name.endswith(("q.weight", "k.weight")):
                parameter.data.mul_(0.25)
    return network


def read_folder(folder: Path) -> RetroNetwork:
    """RETRO of a folder that `ragauge fetch` converted.

    Raises:
        UserError: damage, other names or sizes.
    """
    try:
        sizes = TypeAdapter(Sizes).validate_json((folder / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder}/config.json: not the sizes of a RETRO ({type(error).__name__})"
        ) from None
    path = folder / "model.safetensors"
    network = random_network(sizes, device="meta")
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    try:
        state = load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path}: truncated or damaged ({error_line(error)})") from None
    try:
        network.load_state_dict(state, assign=True)
    except RuntimeError as error:
        raise UserError(
            f"{path}: not the tensors of this architecture: {in_one_line(error, 300)}"
        ) from None
    return network


class OwnReader(SequenceReader):
    """One sequence of RETRO's, whatever runs it.

    The query conditions the encoder: neighbours cannot be read ahead.
    """

    def __init__(self, lm: Traced) -> None:
        super().__init__(lm)
        # neighbours not encoded yet: the query's last token is not read
        self._pending: list[Tokens] | None = None
        self._since = 0  # the place of that token, from which cross-attention counts
        self._encoding_s = 0.0  # of neighbours, within the current read

    @abstractmethod
    def forward(self, ids: Tokens) -> Tensor:
        """Read tokens: logits (token, vocab).

        `encode_pending` is called in the first layer with cross-attention.
        """

    @abstractmethod
    def encode(self, neighbours: Sequence[Sequence[Tokens]], positions: Sequence[int]) -> None:
        """Let tokens attend to these neighbours, by length, with the places of their tokens; none:
        to none.
        """

    def attach(self, neighbours: Sequence[Tokens]) -> None:
        """See `SequenceReader.attach`; they are encoded when the next token is read."""
        self._pending = list(neighbours)
        self._since = self.length
        self.encode([], [])

    @torch.inference_mode()
    def read(self, ids: Tokens) -> Tensor:
        """See `SequenceReader.read`; with neighbours just attached, the first token is the query's last."""
        # the encoder sees the query and nothing after it
        if self._pending is not None and len(ids) > 1:
            return torch.cat([self.read(ids[:1]), self.read(ids[1:])])
        self.lm.synchronize()
        started = time.perf_counter()
        past = self.length
        self._encoding_s = 0.0
        logits = self.forward(ids)
        self.lm.synchronize()
        seconds = time.perf_counter() - started - self._encoding_s  # which is a call of its own
        self.note(Call("read", (len(ids),), (past,), logits=(1,), seconds=seconds))
        return logits

    @torch.inference_mode()
    def decode(self, logits: Tensor, tokens: int) -> list[int]:
        return self.decode_with(self.forward, logits, tokens, self.length)

    def encode_pending(self) -> None:
        """Encode the pending neighbours, given the states of the query's tokens, of which the last
        was just read.
        """
        pending = self._pending
        self._pending = None
        if not pending or not any(map(len, pending)):
            return
        self.lm.synchronize()
        started = time.perf_counter()
        alike: dict[int, list[int]] = {}  # numbers of the neighbours, by length
        for number, ids in enumerate(pending):
            if len(ids):
                alike.setdefault(len(ids), []).append(number)
        positions = [
            number * NEIGHBOUR + i
            for length, numbers in alike.items()
            for number in numbers
            for i in range(length)
        ]
        self.encode([[pending[number] for number in same] for same in alike.values()], positions)
        self.lm.synchronize()
        self._encoding_s = time.perf_counter() - started
        self.note(Call("neighbours", (len(positions),), (0,), seconds=self._encoding_s))


class RetroLM(Traced):
    """A RETRO model in torch as generation sees a decoder: it opens sequences and records its calls
    while `tracing`.
    """

    def __init__(self, network: RetroNetwork, tokenizer: Any = None) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.device = network.head.weight.device

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def open(self, tokens: int, neighbour_tokens: int = 0) -> RetroReader:
        """See `NeighbourModel.open`; neighbours take no room in the cache."""
        return RetroReader(self, tokens)


class RetroReader(OwnReader):
    """One sequence: keys and values of its tokens, states that condition the encoder, keys of
    encoded neighbours.
    """

    def __init__(self, lm: RetroLM, capacity: int) -> None:
        super().__init__(lm)
        self.network = lm.network
        self.device = lm.device
        sizes = self.network.sizes
        dtype = lm.network.head.weight.dtype
        room = (sizes.layers, 2, sizes.heads, capacity, sizes.width // sizes.heads)
        self._kv = torch.empty(room, dtype=dtype, device=lm.device)
        # of the last tokens, at the first layer with cross-attention
        self._states = torch.empty(0, sizes.width, dtype=dtype, device=lm.device)
        # by layer: keys and values of the encoded neighbours
        self._cross: dict[int, tuple[Tensor, Tensor]] = {}
        self._places = torch.empty(0, dtype=torch.long, device=lm.device)  # of these keys

    def forward(self, ids: Tokens) -> Tensor:
        network = self.network
        stop = self.length + len(ids)
        x = network.embedding(torch.tensor(ids, device=self.device))
        positions = torch.arange(stop, device=self.device)
        new = positions[self.length :]
        hidden = positions[None] > positions[self.length :, None]
        for index, layer in enumerate(network.layers):
            y = layer.attention_norm(x)
            self._kv[index, :, :, self.length : stop] = torch.stack(layer.attention.keys(y))
            bias = layer.attention.bias(new, positions).masked_fill(hidden, float("-inf"))
            x = x + layer.attention(y, *self._kv[index, :, :, :stop], bias)
            if index == network.sizes.cross[0]:
                self._states = torch.cat([self._states, x])[-CHUNK:]
                self.encode_pending()
            if layer.cross is not None and layer.cross_norm is not None and index in self._cross:
                bias = layer.cross.bias(new - self._since, self._places)
                x = x + layer.cross(layer.cross_norm(x), *self._cross[index], bias)
            x = x + layer.ffn(layer.ffn_norm(x))
        self.length = stop
        return network.head(network.norm(x))

    def encode(self, neighbours: Sequence[Sequence[Tokens]], positions: Sequence[int]) -> None:
        self._cross = {}
        if not neighbours:
            return
        self._places = torch.tensor(positions, device=self.device)
        groups = [torch.tensor(same, device=self.device) for same in neighbours]
        encoded = torch.cat(
            [self.network.encoder(ids, self._states).flatten(0, 1) for ids in groups]
        )
        for index, layer in enumerate(self.network.layers):
            if layer.cross is not None:
                self._cross[index] = layer.cross.keys(encoded)
