"""What models in ONNX that read neighbours share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from ragauge.engines.protocol import Traced
from ragauge.generation.readers import Checkpoint
from ragauge.io.graphs import open_session


class OnnxModel(Traced):
    """The graphs of a folder in ONNX Runtime, as a model that reads neighbours."""

    def __init__(self, folder: Path, names: Sequence[str], checkpoint: Checkpoint) -> None:
        """
        Raises:
            UserError: a file that is missing or that ONNX Runtime cannot read; no GPU where one is asked for.
        """
        cuda = checkpoint.device != "cpu"
        self.sessions = {name: open_session(folder / f"{name}.onnx", checkpoint.threads, cuda) for name in names}
        self.tokenizer, self._device = checkpoint.tokenizer, checkpoint.device

    def synchronize(self) -> None:
        """See `Model.synchronize`: what follows a graph (states put in their slots) is torch's."""
        if self._device != "cpu":
            torch.cuda.synchronize()
