"""Decoding in steps of one shape, at one place in memory: what a CUDA graph needs to be replayed
token after token.

Decoding one token with a small decoder launches hundreds of kernels, and launching them takes
longer than running them. See docs/protocols.md. Off CUDA a step runs eagerly, which tests
use to compare it with `LM.generate`'s own step.
"""

import logging
from threading import Lock

import torch
from torch import Tensor

from ragauge.cost.machine import engines_state
from ragauge.engines.cache import KVCache
from ragauge.engines.decoder import Decoder
from ragauge.engines.layout import Layout, Part
from ragauge.engines.passes import Ended, check_finite
from ragauge.engines.spans import Span
from ragauge.errors import in_one_line

logger = logging.getLogger(__name__)

# capacities are multiples of this: a prompt a little longer needs no other graph
CAPACITY_STEP = 1024
MAX_GRAPHS = 4  # one for each capacity; each has a cache of its size
CAPTURING = Lock()  # waiting for the whole device, in any thread, would break a capture
WARM_UP = 3  # steps before a capture, in which libraries choose kernels and take their workspaces


class FixedSteps:
    """Greedy steps over a cache of fixed capacity."""

    def __init__(self, decoder: Decoder, capacity: int) -> None:
        embedding = decoder.weights.embedding
        self.decoder = decoder
        self.device = embedding.device
        self.cache = KVCache(decoder.shape, capacity, embedding.dtype, self.device)
        self._slots = torch.arange(capacity, device=self.device)
        self._token = torch.zeros(1, dtype=torch.long, device=self.device)
        self._slot = torch.zeros(1, dtype=torch.long, device=self.device)
        # sum of the tokens' logits: not finite if one is not, as argmax prefers NaN
        self.largest = torch.zeros(1, dtype=torch.float32, device=self.device)
        self._position = torch.zeros(1, dtype=torch.float32, device=self.device)
        self._graph = self._capture() if self.device.type == "cuda" else None

    def start(self, cache: KVCache, token: int, position: float) -> None:
        """Copy a cache's content, and set the token that the next step reads at a position."""
        self.cache.truncate(0)
        self.cache.append(cache, Span(0, cache.length))
        self._token.fill_(token)
        self._slot.fill_(cache.length)
        self._position.fill_(position)
        self.largest.zero_()

    def step(self) -> Tensor:
        """Read the pending token; the next one (1,), on the device, overwritten by the next step."""
        self.cache.length += 1
        if self._graph is None:
            self._step()
        else:
            self._graph.replay()
        return self._token

    def _step(self) -> None:
        decoder = self.decoder
        length = self.cache.length
        last = self.cache.capacity - 1
        mask = (self._slots <= self._slot)[None, None, None]
        layout = Layout(last, (1,), (last,), mask=mask, slots=self._slot)
        part = Part(self._position, self.cache, layout)
        states = decoder.read(decoder.embed(self._token), [part])
        logits = decoder.logits(decoder.weights.norm(states))
        self._token.copy_(logits.argmax(-1))
        self.largest += logits.gather(-1, self._token[None])[0]
        self._slot += 1
        self._position += 1
        self.cache.length = length  # the layout made the decoder set it to the capacity

    def _capture(self) -> torch.cuda.CUDAGraph:
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._step()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # another thread reads neighbours: what it calls must not end the capture
        with CAPTURING, torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._step()
        return graph


class StepsByCapacity:
    """Greedy decoding by fixed steps; those of the capacities used last are reused."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._by_capacity: dict[int, FixedSteps] = {}
        # why steps cannot be captured; None: they can, or none were needed
        self.fallback: str | None = None

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values in use in all their caches."""
        return sum(steps.cache.bytes for steps in self._by_capacity.values())

    def continue_response(
        self, cache: KVCache, ids: list[int], position: float, most: int, ended: Ended | None
    ) -> list[int]:
        """`RecordedEngine.decode`; reads nothing if steps cannot be captured, waits once for all
        without `ended`.
        """
        past = cache.length
        count = most - len(ids)
        steps = self._steps(past + count)
        if steps is None:
            return ids
        steps.start(cache, ids[-1], position + len(ids) - 1)
        if ended is None:
            more = torch.cat([steps.step().clone() for _ in range(count)]).tolist()
        else:
            more = [int(steps.step())]
            while len(more) < count and not ended([*ids, *more]):
                more.append(int(steps.step()))
        check_finite(steps.largest)
        cache.append(steps.cache, Span(past, past + len(more)))
        return [*ids, *more]

    def _steps(self, tokens: int) -> FixedSteps | None:
        """Steps with room for this many tokens, captured now if they are new; None if the device
        cannot do that.
        """
        if self.fallback is not None:
            return None
        capacity = -(-tokens // CAPACITY_STEP) * CAPACITY_STEP
        try:
            steps = self._by_capacity.pop(capacity, None) or FixedSteps(self._decoder, capacity)
        except RuntimeError as error:  # torch's for all that goes wrong on a device
            self.fallback = in_one_line(error)
            self._by_capacity.clear()
            engines_state["cuda_graphs"] = f"off: {self.fallback}"
            logger.warning("decoding continues without CUDA graphs, more slowly: %s", self.fallback)
            return None
        self._by_capacity[capacity] = steps  # the latest used is the last
        if len(self._by_capacity) > MAX_GRAPHS:
            del self._by_capacity[next(iter(self._by_capacity))]
        return steps
