"""Hostile files of native parsers: index files of faiss with a manifest that fits them, and graphs of ONNX.

    python foreign_files.py ivf|hnsw|onnx FOLDER COUNT

Each is what a stranger sends, hash and all, so nothing but `trial` stands between it and this process. A fork runs
`trial`, whose death is what it is for; where it does not complain, another fork reads and searches as a server does,
and that one must not die. A fork, since importing the libraries for each file would take a second. Prints one line of
JSON: how often what happened, and the files that got through and killed their reader.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from damage import damaged
from ragauge.errors import UserError
from ragauge.io import folders, graphs
from ragauge.retrieval import index as indexes
from ragauge.retrieval.indexes import recipe_of

LONGEST_S = 20
MOST_BYTES = 1 << 30  # of further address space, that a file of some kilobytes may take


def forked(work: Callable[[], None]) -> str:
    """How a fork ends that does some work: `well`, `refused`, or by which signal."""
    if pid := os.fork():
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            return signal.Signals(os.WTERMSIG(status)).name
        return {0: "well", 1: "refused"}.get(os.WEXITSTATUS(status), "a traceback")
    code = 3
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.alarm(LONGEST_S)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        work()
        code = 0
    except UserError:
        code = 1
    except Exception:  # in `trial`, whatever a library raises; its line is the refusal
        code = 2
    finally:
        os._exit(code)


def sealed(folder: Path) -> None:
    """Have the manifest say that the folder's files are what they should be, as a stranger can."""
    path = folder / folders.MANIFEST
    manifest = json.loads(path.read_bytes())
    manifest.pop("seal")
    manifest["files"] = {name: folders.file_facts(folder / name) for name in manifest["files"]}
    manifest["seal"] = folders.text_sha256(manifest)
    path.write_text(json.dumps(manifest))


@st.composite
def stray(draw: st.DrawFn, whole: bytes) -> bytes:
    """One number of a file is another, mostly near its start or end, where sizes and offsets stand."""
    size = draw(st.sampled_from((1, 4, 8)))
    places = st.integers(0, 200) | st.integers(len(whole) - 400, len(whole) - size) | st.integers(0, len(whole) - size)
    at = max(0, min(draw(places), len(whole) - size))
    number = draw(st.sampled_from((0, 1, 2, 255, 1 << 15, 1 << 31, 1 << 40, -1)) | st.integers(0, 300))
    return whole[:at] + (number % (1 << 8 * size)).to_bytes(size, "little") + whole[at + size :]


def searched(folder: Path) -> None:
    """What a server does with an index."""
    manifest = folders.read(folder, indexes.MERGED, hashed="*.faiss")
    recipe = recipe_of(manifest)
    opened = recipe.open(folder)
    drawn = np.random.default_rng(0).standard_normal((4, int(manifest["dim"]))).astype(np.float32)
    for nprobe in {1, recipe.default_nprobe, min(recipe.max_nprobe, 64)}:
        opened.search(drawn, 5, nprobe)


def opened_graph(path: Path) -> None:
    """What an engine does with a graph, as far as it is the same for all: open it, and run it on zeros."""
    session = graphs.open_session(path, 1)
    fed = {}
    for node in session.get_inputs():
        shape = [size if isinstance(size, int) and 0 <= size < 64 else 2 for size in node.shape]
        fed[node.name] = np.zeros(shape, np.int64 if node.type == "tensor(int64)" else np.float32)
    try:
        session.run(None, fed)
    except Exception as error:  # a graph that fails says so; it must not end the process
        raise UserError(str(error)) from None


class Tally:
    """What happened, and which files got through and killed their reader."""

    def __init__(self) -> None:
        self.happened: Counter[str] = Counter()
        self.deadly: list[str] = []


def attempts(kind: str, whole: Path, file: Path, count: int, tally: Tally) -> None:
    """Read damaged forms of one file: of a graph, or of an index that is `whole`."""
    content = file.read_bytes()

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        backend="repeatable",
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(damaged(content) | stray(content))
    def attempt(found: bytes) -> None:
        file.write_bytes(found)
        if kind != "onnx":
            sealed(whole)
        tried = forked(lambda: (graphs if kind == "onnx" else indexes).trial(whole))
        tally.happened[f"tried: {tried}"] += 1
        if tried == "well":
            read = forked(lambda: (opened_graph if kind == "onnx" else searched)(whole))
            tally.happened[f"read: {read}"] += 1
            if read not in ("well", "refused"):
                kept = whole.parent / f"deadly-{kind}-{len(tally.deadly)}"
                shutil.copyfile(file, kept)
                tally.deadly.append(f"{kept.name}: {read}")

    attempt()
    file.write_bytes(content)


def main() -> None:
    from ragauge.io import trials

    trials.check = lambda *_: None  # it has been done by the time that `searched` and `opened_graph` read
    kind, whole, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    files, tally = [whole] if kind == "onnx" else sorted(whole.glob("*.faiss")), Tally()
    for file in files:
        attempts(kind, whole, file, -(-count // len(files)), tally)
    print(json.dumps({"happened": tally.happened, "deadly": tally.deadly}))


if __name__ == "__main__":
    main()
