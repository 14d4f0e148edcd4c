"""Exports a decoder that reads neighbours, or a mode's own model, to ONNX."""

from dataclasses import replace
from pathlib import Path

from ragauge.assets.store import has_manifest
from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.modes.base import Checkpoint, mode_class


def write(name: str, checkpoint: Checkpoint, database: Path | None, folder: Path) -> None:
    """Write the graphs that a mode runs in ONNX Runtime.

    Args:
        name: of the mode.
        checkpoint: the weights; their hash is added here.
        database: chunk database whose tokenizer sets the vocabulary of a mode's own model.
        folder: where they are written; an earlier export there is replaced.

    Raises:
        UserError: the mode is not exported, an option does not go with it, or weights are missing.
    """
    folders.check_replaceable(folder, has_manifest)
    mode = mode_class(name)()
    if "onnx" not in mode.engines:
        raise UserError(f"--mode {name}: cannot be exported to ONNX")
    if mode.own_model and not database:
        raise UserError(f"--mode {name}: requires --database, whose tokenizer sets the vocabulary")
    if mode.own_model and checkpoint.adapters:
        raise UserError(f"--adapters: not valid with mode {name!r}")
    if checkpoint.adapters and not checkpoint.adapters.is_file():
        raise UserError(f"--adapters: no such file: {checkpoint.adapters}")
    if database:
        checkpoint = replace(checkpoint, vocabulary=Database(database).vocabulary)
    checkpoint = replace(checkpoint, sha256=mode.origin(checkpoint)[1])
    folders.replace(folder, lambda target: mode.export(checkpoint, target), has_manifest)
