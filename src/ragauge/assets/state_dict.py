"""State dictionaries in torch's own files, read without running code of such a file."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ragauge.errors import UserError, error_line

if TYPE_CHECKING:
    from torch import Tensor


def read_state(path: Path) -> Mapping[str, Tensor]:
    """Return the tensors, by name, of a file that `torch.save` wrote: of a dictionary, or of the
    `state_dict` in one.

    Raises:
        UserError: it is damaged or holds anything else.
    """
    import torch

    try:
        loaded = torch.load(
            path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
        )
    except pickle.UnpicklingError:  # torch's own message suggests loading it anyway
        raise UserError(
            f"{path}: refused: it is damaged, or holds more than tensors, which could run code"
        ) from None
    except Exception as error:  # a damaged pickle fails in any way
        raise UserError(f"{path}: truncated or damaged ({error_line(error)})") from None
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else None
    if not isinstance(state, dict) or not all(
        isinstance(tensor, torch.Tensor) for tensor in state.values()
    ):
        raise UserError(f"{path}: not a dictionary of tensors by name")
    return state
