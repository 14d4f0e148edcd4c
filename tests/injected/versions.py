"""What other versions of this program wrote: older files are read, newer ones refused by name and left as they are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from injected import writers
from injected.children import one_line, run
from injected.kinds import Case, expect
from injected.writers import Found, Tested
from ragauge.errors import UserError

KIND = "another version"
WHERE = "files of versions before and after this one"
PROMISE = "older ones are read; newer ones are refused by name, and left as they are"
NEWER = (1, 7, 10**6)  # versions after this one


@dataclass(frozen=True)
class Versioned:
    """A file that states a version."""

    tested: Tested
    file: str
    key: str
    older: tuple[int | None, ...]  # None: it states none
    unsealed: bool = False  # older ones have no hash of themselves


def _named(name: str) -> Tested:
    return next(tested for tested in writers.ALL if tested.name == name)


FILES = [
    Versioned(_named("records"), "x.meta.json", "version", (None, 0)),
    Versioned(_named("a folder, made"), "a/manifest.json", "format", (1,), unsealed=True),
    Versioned(_named("a database"), "database/manifest.json", "format", (1,), unsealed=True),
    Versioned(_named("an index"), "indexes/ivf/merged/manifest.json", "format", (1,), unsealed=True),
    Versioned(_named("checkpoints of a training"), "checkpoints/state.json", "version", (None, 0)),
    Versioned(_named("an asset, unpacked"), "asset/ragauge-asset.json", "format", (None, 0)),
]


def cases(room: Path) -> dict[str, list[tuple[str, Case]]]:
    """By file."""
    found = dict[str, list[tuple[str, Case]]]()
    for number, versioned in enumerate(FILES):
        made = _Made(versioned, room / f"{number}")
        older: list[tuple[str, Case]] = [(f"version {v}", lambda v=v, m=made: m.older(v)) for v in versioned.older]
        newer: list[tuple[str, Case]] = [(f"newer by {n}", lambda n=n, m=made: m.newer(n)) for n in NEWER]
        found[f"{versioned.tested.name}: {Path(versioned.file).name}"] = older + newer
    return found


class _Made:
    """A finished folder, and the file in it whose version is changed."""

    def __init__(self, versioned: Versioned, folder: Path) -> None:
        self.about, self.folder, self.path = versioned, folder, folder / versioned.file
        folder.mkdir(parents=True)
        versioned.tested.before(folder)
        ended = run(versioned.tested.write, folder)
        expect(ended.status == 0, ended.said)
        self.wanted, self.content = self._found(), self.path.read_bytes()

    def older(self, version: int | None) -> str:
        changed = self._content()
        changed.pop(self.about.key)
        if version is not None:
            changed[self.about.key] = version
        if self.about.unsealed:
            changed.pop("seal")
        self._write(changed)
        expect(self._found() == self.wanted, "not read as it was")
        return "read"

    def newer(self, by: int) -> str:
        changed = self._content()
        self._write({**changed, self.about.key: changed[self.about.key] + by})
        before = self._bytes()
        try:
            self.about.tested.found(self.folder)
        except UserError as error:
            told = str(error)
        else:
            raise AssertionError("read as if it were of this version")
        expect(str(self.path.parent.name) in told and "\n" not in told, f"its place is not named: {told}")
        expect("newer" in told and str(changed[self.about.key] + by) in told, f"its version is not named: {told}")
        again = run(self.about.tested.write, self.folder)
        expect(one_line(again), f"written over: {again.status}: {again.said}")
        expect(self._bytes() == before, "not left as it was")
        return "refused by name"

    def _found(self) -> Found:
        """What is read, but the changed file's own bytes."""
        found = self.about.tested.found(self.folder)
        for value in found.values():
            for name in (self.path.name, "manifest") if isinstance(value, dict) else ():
                value.pop(name, None)
        return found

    def _bytes(self) -> dict[str, bytes]:
        files = (path for path in self.folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))
        return {str(path): path.read_bytes() for path in files}

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.content)
        return content

    def _write(self, content: dict[str, Any]) -> None:
        self.path.write_text(json.dumps(content))
