"""The text level in ONNX Runtime: whole prompts in, greedy responses out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call, Trace
from ragauge.engines.onnx.graph import OnnxDecoder
from ragauge.engines.onnx.runtime import BLOCK, Slots
from ragauge.engines.protocol import ANSWERING, Capabilities, Limits, Response, Traced
from ragauge.errors import UserError


class OnnxEngine(Traced):
    """An exported decoder with its tokenizer; a cache lives as long as its response.

    A prompt is read in pieces of 256 tokens, as the graph returns the logits of every token that it reads.
    """

    capabilities: Capabilities = ANSWERING

    def __init__(self, decoder: OnnxDecoder, shape: Shape, tokenizer: Any) -> None:
        self.decoder, self.shape, self.tokenizer = decoder, shape, tokenizer
        self.max_context = shape.max_context
        self.first_token_at: float | None = None
        self.peak_cache_bytes = 0
        self.cut = False

    def respond(
        self, prompt: Sequence[int] | str, limits: Limits, *, stage: str = "prompt", logp: bool = False
    ) -> Response:
        """See `Engine.respond`; log-probabilities take no call of their own."""
        ids = self.tokenizer(prompt)["input_ids"] if isinstance(prompt, str) else list(prompt)
        if not ids:
            raise UserError("the prompt has no tokens")
        if len(ids) > self.max_context:
            raise UserError(f"the prompt has {len(ids)} tokens; the model's context is {self.max_context}")
        started, slots = time.perf_counter(), self.decoder.slots()
        logits = self._read(ids, slots)
        self.note(Call(stage, (len(ids),), (0,), logits=(1,), seconds=time.perf_counter() - started))
        new, at, scores = self._generate(logits, len(ids), slots, limits)
        self.first_token_at = at[0]
        if len(new) > 1:
            seconds = at[-1] - at[0]
            self.note(Call("decode", (1,), (len(ids),), logits=(1,), steps=len(new) - 1, seconds=seconds))
        self.peak_cache_bytes = max(self.peak_cache_bytes, slots.bytes)
        kept = len(new) - (not limits.ignore_stop and new[-1] in self.shape.eos)
        times = tuple(moment - started for moment in at[:kept])
        return Response(new[:kept], times, tuple(scores[:kept]) if logp else ())

    @contextmanager
    def tracing(self) -> Iterator[Trace]:
        """See `Engine.tracing`."""
        self.peak_cache_bytes = 0
        with super().tracing() as trace:
            yield trace

    def _read(self, ids: Sequence[int], slots: Slots, first: int = 0) -> Tensor:
        """Read tokens into the cache from position `first` on; the logits (vocab,) after the last."""
        logits = torch.empty(0)
        for start in range(0, len(ids), BLOCK):
            piece, place = ids[start : start + BLOCK], first + start
            slots.reserve(place + len(piece))
            every, new = self.decoder.run(piece, place, slots)
            slots.put(new, place, place)
            logits = every[-1]
        return logits

    def _generate(
        self, logits: Tensor, past: int, slots: Slots, limits: Limits
    ) -> tuple[list[int], list[float], list[float]]:
        """(tokens, when each was known, log-probability of each) after `past` tokens, the token that ends included."""
        ids, at, scores = list[int](), list[float](), list[float]()
        most = max(1, min(limits.max_new_tokens, self.max_context - past))
        while True:
            ids.append(int(logits.argmax()))
            at.append(time.perf_counter())
            scores.append(_logp(logits, ids[-1]))
            ended = self._ended(ids, limits)
            if ended or len(ids) == most:
                self.cut = not ended and most < limits.max_new_tokens
                return ids, at, scores
            logits = self._read(ids[-1:], slots, past + len(ids) - 1)

    def _ended(self, ids: Sequence[int], limits: Limits) -> bool:
        if limits.ignore_stop:
            return False
        text = self.tokenizer.decode(ids, skip_special_tokens=True) if limits.stop else ""
        return ids[-1] in self.shape.eos or any(stop in text for stop in limits.stop)


def _logp(logits: Tensor, token: int) -> float:
    return float(logits.log_softmax(-1)[token])
