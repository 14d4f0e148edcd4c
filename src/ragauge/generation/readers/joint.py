"""Chunked joint attention: a decoder reads neighbours in the same softmax as its own past (`retrofit/joint.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ragauge.generation.readers._base import Checkpoint, NeighbourReader
from ragauge.generation.retrofit.placement import Placement

if TYPE_CHECKING:
    from ragauge.engines import LM
    from ragauge.generation.reader import NeighbourModel


@dataclass(frozen=True)
class JointAttention(Placement, NeighbourReader):
    """A decoder reads neighbours itself; untrained, or trained by `ragauge retrofit`."""

    label: ClassVar[str] = "joint attention"
    engines: ClassVar[tuple[str, ...]] = ("torch", "onnx")
    in_cache: ClassVar[bool] = True

    def load(self, checkpoint: Checkpoint) -> NeighbourModel:
        """See `NeighbourReader.load`."""
        if checkpoint.exported is not None:
            from ragauge.generation.onnx.decoder import open_exported

            return open_exported(checkpoint, self)
        from ragauge.generation.retrofit.joint import JointDecoding

        return JointDecoding(*_in_torch(checkpoint), self)

    def export(self, checkpoint: Checkpoint, folder: Path) -> Path:
        """See `NeighbourReader.export`."""
        from ragauge.generation.onnx.decoder import export_model

        lm, adapted = _in_torch(checkpoint)
        about = {"model": checkpoint.model, "model_sha256": checkpoint.sha256, "dtype": checkpoint.dtype}
        return export_model(lm, folder, about | {"adapters_sha256": checkpoint.adapters_sha256}, adapted)


def _in_torch(checkpoint: Checkpoint) -> tuple[LM, LM | None]:
    """The decoder, and the same with trained adapters where there are any."""
    from ragauge.generation.retrofit.adapters import Adapters

    lm = checkpoint.decoder()
    if checkpoint.adapters is None:
        return lm, None
    return lm, Adapters.load(checkpoint.adapters, lm, checkpoint.sha256).merged(lm)
