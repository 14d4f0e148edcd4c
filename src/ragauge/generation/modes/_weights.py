"""Trained weights of a mode: safetensors files whose metadata say which mode and which decoder they belong to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ragauge.engines import LM
from ragauge.engines.decoder import Decoder
from ragauge.errors import UserError
from ragauge.generation.modes._passes import Neighbours
from ragauge.generation.reader import Tokens
from ragauge.generation.windows import Windows
from ragauge.io.files import replace_atomically


class TrainedWeights(nn.Module, ABC):
    """The weights that RETRO-fit adds to a decoder so that it reads neighbours in one mode."""

    mode: ClassVar[str]  # its name, in the file

    @abstractmethod
    def groups(self) -> Sequence[tuple[list[nn.Parameter], float]]:
        """Parameters with their share of the learning rate."""

    @abstractmethod
    def sizes(self) -> dict[str, str]:
        """Metadata from which `of_sizes` makes weights of this size."""

    @classmethod
    @abstractmethod
    def of_sizes(cls, lm: LM, sizes: dict[str, str]) -> Self:
        """Untrained weights of the sizes in a file's metadata. Raises ValueError if they are not those of this mode."""

    @abstractmethod
    def nll(self, decoder: Decoder, ids: Tokens, neighbours: Neighbours, windows: Windows) -> Tensor:
        """Negative log-likelihood of the tokens after the first query, in nats: (token - 64,), fp32, differentiable.

        Args:
            ids: of the sequence, which is read in one pass with the neighbours of all its windows.
        """

    def save(self, path: Path, **about: str) -> None:
        """Write the weights; `about` says which decoder they belong to."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        replace_atomically(path, save(tensors, {"mode": self.mode, **self.sizes(), **about}))

    @classmethod
    def load(cls, path: Path, lm: LM, model_sha256: str | None = None) -> Self:
        """The weights of a file.

        Raises:
            UserError: the file is missing or damaged, or belongs to another mode, model or size of decoder.
        """
        about, tensors = read_weights(path, cls.mode, model_sha256)
        try:
            weights = cls.of_sizes(lm, about)
            weights.load_state_dict(tensors)
        except (KeyError, ValueError) as error:
            raise UserError(f"{path}: the metadata has no sizes of mode {cls.mode!r} ({error})") from None
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        except RuntimeError as error:
            first = str(error).splitlines()[-1].strip()
            raise UserError(f"{path}: of other sizes than the decoder's: {first}") from None
        return weights


def read_weights(path: Path, mode: str, model_sha256: str | None) -> tuple[dict[str, str], dict[str, Any]]:
    """(metadata, tensors) of a file of trained weights.

    Raises:
        UserError: the file is missing or damaged, or belongs to another mode or another model.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: cannot be read as adapters: {error}") from error
    if about.get("mode") != mode:
        raise UserError(f"{path}: trained for mode {about.get('mode')!r}, not {mode!r}")
    if model_sha256 and about.get("model_sha256", model_sha256) != model_sha256:
        raise UserError(f"{path}: trained for another decoder ({about.get('model', 'of another checkpoint')})")
    return about, tensors
