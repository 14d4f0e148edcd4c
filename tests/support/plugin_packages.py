"""Packages with components, as if they were installed: files and the metadata that an installer
writes.
"""

import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

from ragauge import plugins, registry
from ragauge.io import digest

METHOD = '''
"""A method of another package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ragauge.engines.protocol import Engine
from ragauge.methods.base.method import Answer, Method, read_plain
from ragauge.engines.protocol import Limits
from ragauge.methods.prompts import Prompt


@dataclass(frozen=True)
class Last(Method):
    """The last document alone."""

    def answer(self, engine: Engine, state: Any, prompt: Prompt, limits: Limits) -> Answer:
        last = len(prompt.documents) - 1
        return Answer(read_plain(engine, prompt, [prompt.documents[last]], limits), (last,))
'''

Install = Callable[..., Path]


@contextmanager
def installer(folder):
    """What installs packages into a folder on the path, until the block ends."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    forget()

    def install(
        package,
        points,
        files,
        version="1.0",
    ):
        write(folder, package, points, files, version)
        forget()
        return folder

    try:
        yield install
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(folder)):
                del sys.modules[name]
        forget()


def write(
    folder,
    package,
    points,
    files,
    version,
):
    """The files of a package, its metadata and its entry points by group and name."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for old in folder.glob(f"{package.replace('-', '_')}-*.dist-info"):
        for file in old.iterdir():
            file.unlink()
        old.rmdir()
    about = folder / f"{package.replace('-', '_')}-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in named.items())
        for group, named in points.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))


def forget():
    """Look for packages and read their code anew, as a new process would."""
    for cached in (
        plugins.installed,
        plugins.path_of,
        plugins.of_module,
        registry._components,
        digest.imports,
        digest.digest,
        digest._path,
        digest._parsed,
        digest._package,
    ):
        cached.cache_clear()
