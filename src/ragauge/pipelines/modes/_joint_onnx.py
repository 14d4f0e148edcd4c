"""Joint attention in ONNX Runtime, over the graph of `engines/onnx/graph.py`, neighbours in the
first slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from ragauge.assets.resolver import resolve
from ragauge.assets.store import write_manifest
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.cost.trace import Call
from ragauge.engines.onnx.graph import OnnxDecoder, export_decoder
from ragauge.engines.onnx.runtime import HIDDEN, OnnxModel, check_origin
from ragauge.pipelines.modes._joint import JointStates, load_adapted
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.reader import Tokens


def export(checkpoint: Checkpoint, folder: Path) -> None:
    """Write a decoder, and the same with trained adapters where there are any, with the origin of
    both.
    """
    lm, adapted = load_adapted(checkpoint)
    export_decoder(lm.decoder, folder / "decoder.onnx")
    if adapted is not None:
        export_decoder(adapted.decoder, folder / "adapted.onnx")
    write_manifest(folder, {"model": checkpoint.model, **_origin(checkpoint)})


def load_exported(checkpoint: Checkpoint) -> OnnxJointDecoder:
    """Return what `export` wrote.

    Raises:
        UserError: it is incomplete or comes from something else.
    """
    assert checkpoint.exported is not None
    check_origin(checkpoint.exported, _origin(checkpoint))
    return OnnxJointDecoder(
        replace(checkpoint, tokenizer=load_tokenizer(resolve(checkpoint.model)))
    )


def _origin(checkpoint: Checkpoint) -> dict[str, str | None]:
    return {
        "model_sha256": checkpoint.sha256,
        "adapters_sha256": checkpoint.adapters_sha256,
        "dtype": checkpoint.dtype,
    }


class OnnxJointDecoder(OnnxModel):
    """A decoder in ONNX Runtime; a second graph of it, with trained adapters, reads neighbours
    where there is one.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        assert checkpoint.exported is not None
        adapted = "adapted" if checkpoint.adapters else "decoder"
        paths = {name: checkpoint.exported / f"{name}.onnx" for name in ("decoder", adapted)}
        super().__init__(paths, checkpoint.tokenizer, checkpoint.device, checkpoint.threads)
        self.decoder = OnnxDecoder(self.graphs["decoder"])
        self.adapted = OnnxDecoder(self.graphs[adapted])

    def open(self, tokens: int = 0, neighbour_tokens: int = 0) -> OnnxJointReader:
        """See `NeighbourModel.open`; slots for the sequence grow as it does, whatever its `tokens`."""
        return OnnxJointReader(self, neighbour_tokens)


class OnnxJointReader(JointStates):
    """A sequence and its neighbours in slots of one cache: first those of neighbours, then the
    sequence's.
    """

    lm: OnnxJointDecoder

    def __init__(self, lm: OnnxJointDecoder, front: int) -> None:
        super().__init__(lm)
        self.front = front
        self._slots = lm.decoder.slots(front)

    def _read(self, texts: Sequence[Tokens], calls: list[Call]) -> list[Tensor]:
        started = time.perf_counter()
        before = self.lm.decoder.slots(1)  # the sequence's first token
        before.put(self._sink, 0)
        states = [self.lm.adapted.run(ids, -len(ids), before)[1] for ids in texts]
        lengths = tuple(map(len, texts))
        seconds = time.perf_counter() - started
        calls.append(
            Call("neighbours", lengths, (1,) * len(texts), parallel=len(texts) > 1, seconds=seconds)
        )
        return states

    def _placed(self, states: Sequence[Tensor]) -> Callable[[], None]:
        def put() -> None:
            self._slots.mask[: self.front] = HIDDEN
            slot = 0
            for new in states:
                self._slots.put(new, slot)
                slot += new.shape[1]

        return put

    def read(self, ids: Tokens) -> Tensor:
        started = time.perf_counter()
        past = self._slots.attended
        logits = self._step(ids)
        seconds = time.perf_counter() - started
        self.note(Call("read", (len(ids),), (past,), logits=(len(ids),), seconds=seconds))
        return logits

    def decode(self, logits: Tensor, tokens: int) -> list[int]:
        return self.decode_with(self._step, logits, tokens, self._slots.attended)

    def _step(self, ids: Tokens) -> Tensor:
        """Read tokens of the sequence: logits (token, vocab)."""
        first = self.front + self.length
        self._slots.reserve(first + len(ids))
        logits, new = self.lm.decoder.run(ids, self.length, self._slots)
        self._slots.put(new, first)
        self.length += len(ids)
        if self._sink is None:
            self._sink = new[:, :1].clone()
        return logits
