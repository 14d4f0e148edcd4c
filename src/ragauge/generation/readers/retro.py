"""RETRO itself: a decoder that attends to what its own encoder makes of the neighbours (`retro_model/reader.py`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ragauge.generation.readers._base import Checkpoint, NeighbourReader

if TYPE_CHECKING:
    from ragauge.generation.reader import NeighbourModel


@dataclass(frozen=True)
class OwnEncoder(NeighbourReader):
    """RETRO itself with its own encoder, in place of a decoder that was made to read.

    Its weights are those of the pipeline's model where that is a checkpoint of RETRO; else it has the sizes of the
    paper of PipeRAG, and random weights, for latency alone, or those of `weights`.
    """

    label: ClassVar[str] = "RETRO's own decoder and encoder"
    engines: ClassVar[tuple[str, ...]] = ("torch", "onnx")
    own_model: ClassVar[str] = "retro"

    def load(self, checkpoint: Checkpoint) -> NeighbourModel:
        """See `NeighbourReader.load`."""
        checkpoint = _of_own_text(checkpoint)
        if checkpoint.exported is not None:
            from ragauge.generation.onnx.retro import open_retro

            return open_retro(checkpoint)
        import torch

        from ragauge.engines import DTYPES
        from ragauge.generation.retro_model.reader import RetroLM
        from ragauge.generation.retro_model.weights import make_retro

        if checkpoint.threads:
            torch.set_num_threads(checkpoint.threads)
        model = make_retro(checkpoint)
        return RetroLM(model.to(DTYPES[checkpoint.dtype]), checkpoint.tokenizer)

    def export(self, checkpoint: Checkpoint, folder: Path) -> Path:
        """See `NeighbourReader.export`."""
        from ragauge.engines import DTYPES
        from ragauge.generation.onnx.retro import export_retro
        from ragauge.generation.retro_model.weights import make_retro

        model, name = make_retro(checkpoint), self._name(checkpoint)
        about = {"model": name, "model_sha256": checkpoint.sha256, "vocabulary": checkpoint.vocabulary}
        return export_retro(model.to(DTYPES[checkpoint.dtype]), folder, about | {"dtype": checkpoint.dtype})

    def origin(self, checkpoint: Checkpoint) -> tuple[str, str]:
        """See `NeighbourReader.origin`."""
        from ragauge.generation.retro_model.weights import origin

        return self._name(checkpoint), origin(checkpoint)

    def _name(self, checkpoint: Checkpoint) -> str:
        """The model's own where that is a RETRO; else that of the architecture."""
        from ragauge.generation.retro_model.weights import released

        return checkpoint.model if released(checkpoint) is not None else self.own_model


def _of_own_text(checkpoint: Checkpoint) -> Checkpoint:
    """With the tokenizer that a checkpoint of RETRO was trained on, where there is one: the database's must be it."""
    from ragauge.assets.tokenizer import load_tokenizer
    from ragauge.generation.retro_model.weights import released

    folder = released(checkpoint)
    return checkpoint if folder is None else replace(checkpoint, tokenizer=load_tokenizer(folder))
