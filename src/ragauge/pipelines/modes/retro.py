"""RETRO itself: a decoder that attends to its own encoder's states of the neighbours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.pipelines.modes.base import Checkpoint, Mode

if TYPE_CHECKING:
    from ragauge.pipelines.reader import NeighbourModel


class OwnEncoder(Mode):
    """RETRO itself with its own encoder, in place of a decoder that learns to read neighbours.

    Without a checkpoint it has the paper's sizes and random weights, for latency alone.
    """

    label = "RETRO's own decoder and encoder"
    engines = ("torch", "onnx")
    own_model = "retro"

    def load(self, checkpoint: Checkpoint) -> NeighbourModel:
        # its tokenizer must be the database's
        folder = checkpoint.released_retro
        if folder is not None:
            from ragauge.assets.tokenizer import load_tokenizer

            checkpoint = replace(checkpoint, tokenizer=load_tokenizer(folder))
        if checkpoint.exported is not None:
            from ragauge.pipelines.modes._retro_onnx import load_exported

            return load_exported(checkpoint)
        import torch

        from ragauge.pipelines.modes._retro import RetroLM, make_network

        if checkpoint.threads:
            torch.set_num_threads(checkpoint.threads)
        return RetroLM(make_network(checkpoint), checkpoint.tokenizer)

    def export(self, checkpoint: Checkpoint, folder: Path) -> None:
        from ragauge.pipelines.modes._retro_onnx import export

        export(checkpoint, self.origin(checkpoint)[0], folder)

    def origin(self, checkpoint: Checkpoint) -> tuple[str, str]:
        """See `Mode.origin`; random weights are named by their seed."""
        if checkpoint.released_retro is not None:
            return super().origin(checkpoint)
        return self.own_model, f"random, seed {checkpoint.seed}"
