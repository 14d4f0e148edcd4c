"""Files of trained weights: safetensors whose metadata say which form and which decoder they belong to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ragauge.errors import UserError
from ragauge.io.files import replace_atomically


class TrainedWeights(nn.Module, ABC):
    """What training adds to a decoder so that it reads neighbours in one form."""

    form: ClassVar[str]  # the name of its reader, in the file

    @abstractmethod
    def groups(self) -> list[dict[str, Any]]:
        """Parameters by their share of the learning rate."""

    @abstractmethod
    def sizes(self) -> dict[str, str]:
        """What `load` needs to make weights of this size, as metadata."""

    def save(self, path: Path, **about: str) -> None:
        """Write the weights; `about` says which decoder they belong to."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in self.state_dict().items()}
        replace_atomically(path, save(tensors, {"form": self.form, **self.sizes(), **about}))


M = TypeVar("M", bound=nn.Module)


def read_trained(path: Path, form: str, model_sha256: str | None) -> tuple[dict[str, str], dict[str, Tensor]]:
    """(metadata, tensors) of a file of trained weights.

    Raises:
        UserError: the file is missing or damaged, or belongs to another form or another model.
    """
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: cannot be read as adapters: {error}") from error
    if about.get("form") != form:
        raise UserError(f"{path}: trained for form {about.get('form')!r}, not {form!r}")
    if model_sha256 and about.get("model_sha256", model_sha256) != model_sha256:
        raise UserError(f"{path}: trained for another decoder ({about.get('model', 'of another checkpoint')})")
    return about, tensors


def load_into(made: M, tensors: dict[str, Tensor], path: Path) -> M:
    """The module with a file's tensors loaded; UserError if their sizes differ."""
    try:
        made.load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise UserError(f"{path}: of other sizes than the decoder's: {first}") from None
    return made
