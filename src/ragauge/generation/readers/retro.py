"""RETRO itself: a decoder that attends to what its own encoder makes of the neighbours (`retro_model/reader.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ragauge.generation.readers._base import Checkpoint, NeighbourReader

if TYPE_CHECKING:
    from ragauge.generation.reader import Model


@dataclass(frozen=True)
class OwnEncoder(NeighbourReader):
    """RETRO itself, at the sizes of its paper and with its own encoder, in place of a decoder that was made to read."""

    label: ClassVar[str] = "RETRO's own decoder and encoder"
    engines: ClassVar[tuple[str, ...]] = ("torch", "onnx")
    own_model: ClassVar[str] = "retro"

    def load(self, checkpoint: Checkpoint) -> Model:
        """See `NeighbourReader.load`."""
        if checkpoint.exported is not None:
            from ragauge.generation.onnx.retro import open_retro

            return open_retro(checkpoint)
        import torch

        from ragauge.engines import DTYPES
        from ragauge.generation.retro_model.reader import RetroLM
        from ragauge.generation.retro_model.weights import make_retro

        if checkpoint.threads:
            torch.set_num_threads(checkpoint.threads)
        model = make_retro(checkpoint.weights, checkpoint.seed, checkpoint.vocabulary, checkpoint.device)
        return RetroLM(model.to(DTYPES[checkpoint.dtype]), checkpoint.tokenizer)

    def export(self, checkpoint: Checkpoint, folder: Path) -> Path:
        """See `NeighbourReader.export`."""
        from ragauge.engines import DTYPES
        from ragauge.generation.onnx.retro import export_retro
        from ragauge.generation.retro_model.weights import make_retro

        model = make_retro(checkpoint.weights, checkpoint.seed, checkpoint.vocabulary)
        about = {"model": self.own_model, "model_sha256": checkpoint.sha256, "vocabulary": checkpoint.vocabulary}
        return export_retro(model.to(DTYPES[checkpoint.dtype]), folder, about | {"dtype": checkpoint.dtype})

    def origin(self, checkpoint: Checkpoint) -> tuple[str, str]:
        """See `NeighbourReader.origin`."""
        from ragauge.generation.retro_model.weights import origin

        return self.own_model, origin(checkpoint.weights, checkpoint.seed)
