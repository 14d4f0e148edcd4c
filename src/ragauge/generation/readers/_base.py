"""What all forms of reading neighbours share. A form is a file here with one class below `NeighbourReader`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ragauge import registry
from ragauge.errors import SettingError, UnsupportedError

if TYPE_CHECKING:
    from ragauge.engines import LM
    from ragauge.generation.reader import NeighbourModel
    from ragauge.generation.settings import PipelineSettings


@dataclass(frozen=True)
class Checkpoint:
    """Which weights a model that reads neighbours is loaded with, and where it runs."""

    model: str = ""  # name, source or folder of the decoder
    sha256: str | None = None  # of the decoder's weights
    dtype: str = "float32"
    device: str = "cpu"
    threads: int | None = None
    adapters: Path | None = None  # what `ragauge retrofit` trained
    adapters_sha256: str | None = None
    exported: Path | None = None  # what `ragauge export` wrote: run it by ONNX Runtime
    weights: Path | None = None  # RETRO's own tensors; None: random ones, by the seed
    seed: int = 0
    vocabulary: int = 0  # of the database's tokenizer
    tokenizer: Any = None  # the database's

    def decoder(self) -> LM:
        """The decoder in torch."""
        from ragauge.engines import load_lm

        return load_lm(self.model, dtype=self.dtype, device=self.device, threads=self.threads)


class NeighbourReader(ABC):
    """A form of reading neighbours: a frozen dataclass whose fields are its options. Its file's name is its name.

    Importing it imports no torch: configuration, plan and costs ask it for what the class variables say.
    """

    name: ClassVar[str]  # its file's
    label: ClassVar[str]  # in tables
    engines: ClassVar[tuple[str, ...]]  # what can run it: "torch", "onnx"
    needs_training: ClassVar[bool] = False  # whether it reads nothing before `ragauge retrofit` trained it
    own_model: ClassVar[str | None] = None  # a model, and shape, of its own in place of a decoder that RETRO-fit trains
    in_cache: ClassVar[bool] = False  # whether neighbours are slots of the cache, among those that a step attends to

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = cls.__module__.rpartition(".")[2]

    @classmethod
    def options(cls) -> set[str]:
        """Keys of `PipelineSettings` that are of this form, and not of every one."""
        own = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        trained = {"retrofit_minutes", "adapters"} if cls.name in registry.names("trainable form") else set()
        return own | trained | ({"weights"} if cls.own_model else set())

    @classmethod
    def check(cls, settings: PipelineSettings) -> None:
        """Raise SettingError if a setting does not go with this form."""
        trained = settings.retrofit_minutes is not None or settings.adapters is not None
        if cls.needs_training and not trained:
            message = f"{settings.form!r} must be trained first; give retrofit_minutes or adapters"
            raise SettingError("form", message)
        if settings.engine not in cls.engines:
            message = f"{settings.engine!r} does not run form {settings.form!r}; known: {', '.join(cls.engines)}"
            raise SettingError("engine", message)

    @abstractmethod
    def load(self, checkpoint: Checkpoint) -> NeighbourModel:
        """The model that opens sequences.

        Raises:
            UserError: weights that are missing, damaged, or of another model or form.
        """

    def export(self, checkpoint: Checkpoint, folder: Path) -> Path:
        """Write the graphs that `load` opens from `checkpoint.exported`, where the form's engines include ONNX."""
        raise UnsupportedError(f"form {self.name!r} cannot be exported to ONNX")

    def origin(self, checkpoint: Checkpoint) -> tuple[str, str]:
        """(name, hash) of the weights. Raises UserError if they cannot be had."""
        from ragauge import assets

        assets.resolve(checkpoint.model)
        return checkpoint.model, assets.describe(checkpoint.model)["sha256"]
