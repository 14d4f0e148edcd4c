"""What all attention modes share. A mode is a file in this folder with one class below `Mode`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ragauge import registry
from ragauge.assets import resolver
from ragauge.errors import UnsupportedError
from ragauge.io.files import file_sha256

if TYPE_CHECKING:
    from ragauge.engines.lm import LM
    from ragauge.pipelines.modes._trained import TrainedWeights
    from ragauge.pipelines.reader import NeighbourModel


@dataclass(frozen=True)
class Checkpoint:
    """The weights that a mode is loaded with, and where it runs."""

    model: str = ""  # name, source or folder of the decoder
    sha256: str | None = None  # of the decoder's weights
    dtype: str = "float32"
    device: str = "cpu"
    threads: int | None = None
    adapters: Path | None = None  # trained by `ragauge piperag retrofit`
    exported: Path | None = None  # graphs of `ragauge piperag export`, which ONNX Runtime runs
    seed: int = 0  # of RETRO's random weights
    vocabulary: int = 0  # of the database's tokenizer
    tokenizer: Any = None  # the database's

    @cached_property
    def adapters_sha256(self) -> str | None:
        return file_sha256(self.adapters) if self.adapters else None

    @property
    def released_retro(self) -> Path | None:
        """The folder of the model where that is a checkpoint of RETRO."""
        is_retro = self.model and resolver.is_retro(self.model)
        return resolver.resolve(self.model) if is_retro else None

    def decoder(self) -> LM:
        """Return the decoder in torch.

        Raises:
            UnsupportedError: it has sliding windows.
        """
        from ragauge.engines.kernels import choice
        from ragauge.engines.loading import load_lm

        lm = load_lm(self.model, dtype=self.dtype, device=self.device, threads=self.threads)
        # "native" switches oneDNN off in all threads; another one may read neighbours
        if lm.device.type == "cpu":
            choice.use(choice.active().without("native"))
        if window := lm.shape.shortest_window:
            raise UnsupportedError(
                f"{self.model}: a sliding window of {window} tokens; pipelines need full attention"
            )
        return lm


class Mode(ABC):
    """An attention mode, in a file of its name without torch."""

    name: ClassVar[str]  # its file's
    label: ClassVar[str]  # in tables
    engines: ClassVar[tuple[str, ...]]  # that run it: "torch", "onnx"
    # whether it reads nothing before RETRO-fit has trained it
    needs_training: ClassVar[bool] = False
    trainable: ClassVar[bool] = False  # by RETRO-fit
    # name, and shape, of a model of its own that replaces the decoder
    own_model: ClassVar[str | None] = None
    # whether neighbours are slots of the cache that a decoding step attends to
    in_cache: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__module__.rpartition(".")[2]

    @classmethod
    def untrained(cls, lm: LM, seed: int) -> TrainedWeights:
        """Return the weights before training, with which neighbours have no effect or are read by
        the unchanged decoder.
        """
        raise UnsupportedError(f"RETRO-fit does not train mode {cls.name!r}")

    @abstractmethod
    def load(self, checkpoint: Checkpoint) -> NeighbourModel:
        """Return the model that opens sequences.

        Raises:
            UserError: weights missing, damaged, or of another model or mode.
        """

    def export(self, checkpoint: Checkpoint, folder: Path) -> None:
        """Write the graphs that `load` opens from `checkpoint.exported`, where the mode's engines
        include ONNX.
        """
        raise UnsupportedError(f"mode {self.name!r} cannot be exported to ONNX")

    def origin(self, checkpoint: Checkpoint) -> tuple[str, str]:
        """(name, hash) of the weights.

        Raises:
            UserError: they are not available.
        """
        resolver.resolve(checkpoint.model)
        return checkpoint.model, resolver.describe(checkpoint.model)["sha256"]


def mode_class(name: str) -> type[Mode]:
    """Return the class of a mode.

    Raises:
        UserError: there is none, with the choices.
    """
    return registry.component("mode", name, Mode)


def mode_classes() -> dict[str, type[Mode]]:
    return {name: mode_class(name) for name in registry.names("mode")}


def trainable_modes() -> list[str]:
    """Return the names of the modes that RETRO-fit trains."""
    return [name for name, mode in mode_classes().items() if mode.trainable]
