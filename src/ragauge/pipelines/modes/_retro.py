"""RETRO: its weights, random ones or a converted checkpoint's, and reading with it, whether torch or
ONNX Runtime runs its parts.

The last token of a query is the first that attends to its neighbours. The states of the query's
tokens condition the encoder, so neighbours are encoded when it is read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import TypeAdapter
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ragauge.cost.trace import Call
from ragauge.engines.loading import DTYPES
from ragauge.engines.onnx.runtime import Slots
from ragauge.engines.protocol import Traced
from ragauge.errors import UserError, error_line, in_one_line
from ragauge.pipelines.modes._retro_network import RetroNetwork
from ragauge.pipelines.modes._retro_parts import PARTS, TorchGraph, split
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


class RetroReader(SequenceReader):
    """One sequence, whatever runs the parts: keys and values of its tokens in slots, states that
    condition the encoder, keys of encoded neighbours.

    The query conditions the encoder: neighbours cannot be read ahead.
    """

    def __init__(self, lm: Any) -> None:
        """`lm`: a `RetroLM`, or the same in ONNX Runtime."""
        super().__init__(lm)
        self._vocab = lm.vocab
        self._nothing = lm.nothing
        self._lower, self._encoder, self._upper = (lm.graphs[name] for name in PARTS)
        low = self._lower.past_sizes
        high = self._upper.past_sizes
        # (heads, dim)
        self._low = list(low)
        self._high = list(high)
        self._row = next(iter(low.values()))
        self._slots = Slots(low | high, 0, self._lower.types["states"][0], self._lower.device)
        # of the last tokens, at the first cross-attention
        self._states = self._lower.empty("states", 0, math.prod(self._row))
        self._memory = self._nothing  # of encoded neighbours
        # neighbours not encoded yet: the query's last token is not read
        self._pending: list[Tokens] | None = None
        self._since = 0  # the place of that token, from which cross-attention counts
        self._encoding_s = 0.0  # of neighbours, within the current read

    def attach(self, neighbours: Sequence[Tokens]) -> None:
        """See `SequenceReader.attach`; they are encoded when the next token is read."""
        self._pending = list(neighbours)
        self._since = self.length
        self._memory = self._nothing

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
        logits = self._forward(ids)
        self.lm.synchronize()
        seconds = time.perf_counter() - started - self._encoding_s  # which is a call of its own
        self.note(Call("read", (len(ids),), (past,), logits=(1,), seconds=seconds))
        return logits

    @torch.inference_mode()
    def decode(self, logits: Tensor, tokens: int) -> list[int]:
        return self.decode_with(self._forward, logits, tokens, self.length)

    def _forward(self, ids: Tokens) -> Tensor:
        """Read tokens: logits (token, vocab)."""
        first = self.length
        count = len(ids)
        slots = self._slots
        slots.reserve(first + count)
        positions = torch.arange(first, first + count, device=self._lower.device)
        states = self._lower.empty("states", count, self._states.shape[1])
        new = slots.room(count)
        read = {
            "ids": self._lower.tensor("ids", ids),
            "positions": positions,
            **slots.feeds(self._low),
        }
        self._lower.run(read, {"states": states, **slots.outputs(new, self._low)})
        self._states = torch.cat([self._states, states])[-CHUNK:]
        if self._pending is not None:
            self._encode_pending()
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

    def _encode_pending(self) -> None:
        """Encode the pending neighbours, given the states of the query's tokens, of which the last
        was just read.
        """
        texts = self._pending or []
        self._pending = None
        if any(map(len, texts)):
            self.lm.synchronize()
            started = time.perf_counter()
            read = self.encode(texts)
            self.lm.synchronize()
            self._encoding_s = time.perf_counter() - started
            self.note(Call("neighbours", (read,), (0,), seconds=self._encoding_s))

    def encode(self, texts: Sequence[Tokens]) -> int:
        """Let tokens attend to these neighbours; return how many tokens they have."""
        alike: dict[int, list[int]] = {}  # numbers of the neighbours, by length
        for number, ids in enumerate(texts):
            if len(ids):
                alike.setdefault(len(ids), []).append(number)
        heads, dim = self._row
        encoder = self._encoder
        states = self._states.contiguous()
        encoded = []
        places: list[int] = []
        for length, numbers in alike.items():
            ids = encoder.tensor("neighbours", [texts[number] for number in numbers])
            outputs = {n: encoder.empty(n, heads, ids.numel(), dim) for n in encoder.outputs}
            encoder.run({"neighbours": ids, "states": states}, outputs)
            encoded.append(outputs)
            for number in numbers:
                places += range(number * NEIGHBOUR, number * NEIGHBOUR + length)
        self._memory = {n: torch.cat([part[n] for part in encoded], 1) for n in encoder.outputs}
        self._memory["reads"] = self._upper.tensor("reads", [1.0])
        self._memory["places"] = self._upper.tensor("places", places)
        return len(places)


class RetroLM(Traced):
    """A RETRO model in torch as generation sees a decoder: it opens sequences and records its calls
    while `tracing`.
    """

    nothing: ClassVar[dict[str, Tensor]] = {}  # what `upper` takes where there are no neighbours

    def __init__(self, network: RetroNetwork, tokenizer: Any = None) -> None:
        self.tokenizer = tokenizer
        weight = network.head.weight
        self.device = weight.device
        self.vocab = network.sizes.vocab
        self.graphs = {name: TorchGraph(part) for name, part in split(network).items()}

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def open(self, tokens: int, neighbour_tokens: int = 0) -> RetroReader:
        """See `NeighbourModel.open`; slots grow with the sequence, whatever its `tokens`."""
        return RetroReader(self)
