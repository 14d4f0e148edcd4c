"""Chunked joint attention: a decoder attends to neighbours in the same softmax as to its own past."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.pipelines.modes.base import Checkpoint, Mode

if TYPE_CHECKING:
    from ragauge.engines.lm import LM
    from ragauge.pipelines.modes._joint import Adapters
    from ragauge.pipelines.reader import NeighbourModel


class JointAttention(Mode):
    """A decoder reads neighbours itself; untrained, or trained by RETRO-fit."""

    label = "joint attention"
    engines = ("torch", "onnx")
    trainable = True
    in_cache = True

    @classmethod
    def untrained(cls, lm: LM, seed: int) -> Adapters:
        from ragauge.pipelines.modes._joint import Adapters

        return Adapters.fresh(lm, seed)

    def load(self, checkpoint: Checkpoint) -> NeighbourModel:
        from ragauge.pipelines.modes._joint import JointDecoder, load_adapted

        if checkpoint.exported is not None:
            from ragauge.pipelines.modes._joint_onnx import load_exported

            return load_exported(checkpoint)
        return JointDecoder(*load_adapted(checkpoint))

    def export(self, checkpoint: Checkpoint, folder: Path) -> None:
        from ragauge.pipelines.modes._joint_onnx import export

        export(checkpoint, folder)
