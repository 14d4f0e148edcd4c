"""Compressors of keys and values: one file each, named as the file."""

from ragauge import registry
from ragauge.methods.compressors.base import Compressor


def find(name: str, where: str = "") -> type[Compressor]:
    """Find a compressor by its name.

    Raises:
        UserError: an unknown one.
    """
    return registry.component("compressor", name, Compressor, where)
