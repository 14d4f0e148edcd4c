"""Checkpoints of safetensors in shards, written so that memory holds one shard."""

import errno
import json
from pathlib import Path
from typing import Any

SHARD_BYTES = 1 << 28
INDEX = "model.safetensors.index.json"


class ShardWriter:
    """Writes `model-00001.safetensors`, ... and their index to a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pending: dict[str, Any] = {}  # tensors
        self._files: dict[str, str] = {}  # of the tensors that are written

    def add(self, name: str, tensor: Any) -> None:
        """Append a tensor, which is written at once if the shard is full.

        Raises:
            OSError: it cannot be written.
        """
        self._pending[name] = tensor.contiguous()
        if sum(pending.nbytes for pending in self._pending.values()) >= SHARD_BYTES:
            self._write()

    def close(self) -> None:
        """Write what is left, and the index."""
        self._write()
        (self._folder / INDEX).write_text(
            json.dumps({"metadata": {}, "weight_map": self._files}, indent=1)
        )

    def _write(self) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        path = self._folder / f"model-{len(set(self._files.values())) + 1:05d}.safetensors"
        try:
            save_file(self._pending, path, {"format": "pt"})
        except SafetensorError as error:
            raise OSError(errno.EIO, str(error), str(path)) from error
        path.chmod(0o644)  # safetensors writes for the owner alone; the cache may be shared
        self._files |= dict.fromkeys(self._pending, path.name)
        self._pending = {}
