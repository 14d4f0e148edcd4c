"""Common parts of ONNX models: attention with a cache as input, running by IO binding, cache
slots, an export's origin.

Nothing that a graph reads or writes leaves its device: inputs and outputs are torch's tensors,
whose addresses ONNX Runtime gets. So keys and values stay on a GPU, and are not copied on a CPU.
"""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ragauge.assets import store
from ragauge.engines.onnx.graphs import open_session
from ragauge.engines.protocol import Traced
from ragauge.errors import UserError

# slots by which a cache grows, so that attention does not cover a cache that is mostly empty
BLOCK = 256
# added to scores of slots that hold nothing; -inf would make rows of NaN
HIDDEN = float(np.finfo(np.float32).min)

TOKENS = torch.export.Dim("tokens", min=1, max=1 << 16)
SLOTS = torch.export.Dim("slots", min=0, max=1 << 20)

TYPES = {
    "tensor(float)": (torch.float32, np.float32),
    "tensor(float16)": (torch.float16, np.float16),
    "tensor(int64)": (torch.int64, np.int64),
}


def causal(tokens: int, device: torch.device | None = None) -> Tensor:
    """A causal mask as a bias of the scores (token, token) of new tokens."""
    places = torch.arange(tokens, device=device)
    return torch.where(places[None] > places[:, None], HIDDEN, 0.0)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past_k: Tensor,
    past_v: Tensor,
    cached_bias: Tensor,
    own_bias: Tensor,
) -> Tensor:
    """Attention of (head, token, dim) over cached slots and over the new tokens: (token, width).

    Nothing of the cache is joined: scores of cached and of new keys are computed apart and put
    together before the softmax. Heads that share keys are rows of one product, so that keys are
    read once. Queries are scaled; keys and values are (kv_head, token or slot, dim). Biases of
    scores (kv_head, heads that share it, token, slot or token) are in float32, so that a softmax
    over scores in half precision is in float32 as well.
    """
    heads, tokens, dim = q.shape
    kv = k.shape[0]
    grouped = q.reshape(kv, heads // kv * tokens, dim)
    own = (grouped @ k.transpose(1, 2)).view(kv, heads // kv, tokens, tokens) + own_bias
    cached = (grouped @ past_k.transpose(1, 2)).view(kv, heads // kv, tokens, -1) + cached_bias
    weights = (
        torch.cat([cached, own], -1).softmax(-1).view(kv, heads // kv * tokens, -1).to(v.dtype)
    )
    slots = past_k.shape[1]
    mixed = weights[:, :, :slots] @ past_v + weights[:, :, slots:] @ v
    return mixed.view(heads, tokens, dim).transpose(0, 1).reshape(tokens, heads * dim)


def check_origin(folder: Path, origin: Mapping[str, Any]) -> None:
    """Raise UserError if an export's manifest is missing, has other facts than `origin`, or a file
    has changed.
    """
    if (stated := store.manifest(folder)) is None:
        raise UserError(
            f"{folder}: has no manifest; `ragauge piperag export` writes it with the graphs"
        )
    for key, value in origin.items():
        if stated.get(key) != value:
            raise UserError(
                f"{folder}: {key} is {stated.get(key)}, not {value}: exported from something else"
            )
    if problem := store.damage(folder, verify=True):
        raise UserError(f"{folder}: {problem}; export it again")


class OnnxModel(Traced):
    """A model of several graphs in ONNX Runtime, with the tokenizer of its text."""

    def __init__(
        self,
        paths: Mapping[str, Path],
        tokenizer: Any = None,
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        """Open graphs by name; raises UserError for one that cannot be read, or no GPU where one is
        required.
        """
        self.graphs = {
            name: Graph(open_session(path, threads, device != "cpu"))
            for name, path in paths.items()
        }
        self.tokenizer = tokenizer
        self._device = device

    def synchronize(self) -> None:
        """Wait for the device; after a graph, the states put into their slots are torch's work."""
        if self._device != "cpu":
            torch.cuda.synchronize()


class Graph:
    """A graph in ONNX Runtime, run by IO binding on the device of its session."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.device = torch.device(
            "cuda" if session.get_providers()[0].startswith("CUDA") else "cpu"
        )
        nodes = [*session.get_inputs(), *session.get_outputs()]
        self.types = {node.name: TYPES[node.type] for node in nodes}
        self.outputs = [node.name for node in session.get_outputs()]
        past = (node for node in session.get_inputs() if node.name.startswith("past_"))
        # (heads, dim) of the cached keys and values that the graph takes, by name, in order
        self.past_sizes = {
            node.name.removeprefix("past_"): (node.shape[0], node.shape[2]) for node in past
        }

    def tensor(self, name: str, values: Any) -> Tensor:
        """An input or output of this name from numbers on the host."""
        return torch.tensor(values, dtype=self.types[name][0], device=self.device)

    def empty(self, name: str, *shape: int) -> Tensor:
        """Room for an output of this name."""
        return torch.empty(shape, dtype=self.types[name][0], device=self.device)

    def run(self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> None:
        """Fill `outputs` from `inputs`, all of them contiguous tensors of the device. Threads may
        do so at once.
        """
        binding = self.session.io_binding()
        for name, tensor in inputs.items():
            binding.bind_input(name, *self._bound(name, tensor))
        for name, tensor in outputs.items():
            binding.bind_output(name, *self._bound(name, tensor))
        # the runtime has a stream of its own, and returns when that is done
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        self.session.run_with_iobinding(binding)

    def _bound(self, name: str, tensor: Tensor) -> tuple[str, int, Any, tuple[int, ...], int]:
        dtype, element = self.types[name]
        where = self.device.type
        assert (tensor.dtype, tensor.device.type) == (dtype, where), name
        assert tensor.is_contiguous(), name
        return where, 0, element, tuple(tensor.shape), tensor.data_ptr()


class Slots:
    """Cached keys and values by name, (head, slot, dim) each, under a mask that says which slots
    hold something.

    They are the rows of one tensor, so that the states of new tokens are written by one copy.
    """

    def __init__(
        self,
        sizes: Mapping[str, tuple[int, int]],
        slots: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        ends = list(itertools.accumulate((heads for heads, _ in sizes.values()), initial=0))
        self._rows = {
            name: slice(*pair) for name, pair in zip(sizes, itertools.pairwise(ends), strict=True)
        }
        dim = next(iter(sizes.values()))[1]
        # (heads of all names, slot, dim)
        self.states = torch.zeros(ends[-1], slots, dim, dtype=dtype, device=device)
        self.mask = torch.full((slots,), HIDDEN, device=device)

    @property
    def attended(self) -> int:
        """Slots that new tokens attend to."""
        return int((self.mask > HIDDEN).sum())

    def feeds(self, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """The graph's inputs of these names; default: all."""
        chosen = self._rows if names is None else names
        return {f"past_{name}": self.states[self._rows[name]] for name in chosen} | {
            "mask": self.mask
        }

    def room(self, tokens: int) -> Tensor:
        """Room for the keys and values of new tokens: (heads of all names, token, dim)."""
        return self.states.new_empty(self.states.shape[0], tokens, self.states.shape[2])

    def outputs(self, new: Tensor, names: Iterable[str] | None = None) -> dict[str, Tensor]:
        """The graph's outputs of these names, as parts of `room`; default: all."""
        return {
            f"new_{name}": new[self._rows[name]]
            for name in (self._rows if names is None else names)
        }

    def put(self, new: Tensor, slot: int) -> None:
        """Write new keys and values, filled `room`, to the slots from `slot` on, and let them be
        seen.
        """
        count = new.shape[1]
        self.states[:, slot : slot + count] = new
        self.mask[slot : slot + count] = 0.0

    def reserve(self, slots: int) -> None:
        """Make room for so many slots in all."""
        if slots <= len(self.mask):
            return
        more = -(-slots // BLOCK) * BLOCK - len(self.mask)
        self.mask = F.pad(self.mask, (0, more), value=HIDDEN)
        self.states = F.pad(self.states, (0, 0, 0, more))
