"""The very configs/paper.yaml at its smallest, as `make miniature` runs it.

Writes the papers' models and data in small, runs the workflow on them with configs/miniature.yaml laid over
configs/paper.yaml, and checks what came of it. No network is needed. Arguments are handed to Snakemake;
where they name targets, what came of it is not checked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from endpoints import Reply, says, served
from miniature import check, hub, texts
from miniature.kinds import planned
from ragauge.experiment.schema import Config

FOLDER = Path("resources", "miniature")
CONFIGURATIONS = ("configs/paper.yaml", "configs/miniature.yaml")
# Numbers that mean nothing need no machine of their own: what is timed runs beside other jobs, as a fork, on a thread.
BESIDE = ("--set-threads", "pipeline=1", "index_training=1", "index_recall=1")


def environment(folder: Path) -> dict[str, str]:
    """What points the program at the folder's models in place of the network's."""
    return {
        "RAGAUGE_HOME": str(folder / "home"),
        "HF_HUB_CACHE": str(folder / "hub"),
        "HF_HUB_OFFLINE": "1",
        "RAGAUGE_KERNELS": "default",
    }


def write(folder: Path) -> None:
    """Models, encoders, data sets and corpora, once."""
    if not (folder / "whole").exists():
        hub.write_all(folder / "home", folder / "hub")
        write_local(folder / "data")
        (folder / "whole").touch()


def write_local(folder: Path) -> None:
    """What the overlay names by its path: data sets, corpora and a checkpoint."""
    texts.write_all(folder)
    hub.write_small_retro(folder / "retro")


def reply(request: str) -> Reply:
    """What the endpoint says: to the judge's question a label, to a span a question about a word of its own."""
    if "supported" in request:
        return says("fully supported")
    longest = max(re.findall(r"[a-z]+", request.rpartition("\n\n")[0]), key=len)  # of the span, which stands first
    return says(f"Which of all of them is it that {longest} stands for?")


def main(arguments: Sequence[str]) -> int:
    began = time.monotonic()
    folder = FOLDER.absolute()
    write(folder)
    with served(reply) as endpoint:
        names = {"RAGAUGE_WRITER": endpoint.url, "RAGAUGE_JUDGE": endpoint.url}
        told = {f"{name}_{key}": value for name, url in names.items() for key, value in (("URL", url), ("MODEL", "m"))}
        options = list(arguments) or ["--cores", "all"]
        command = [sys.executable, "-m", "snakemake", *options, *BESIDE, "--configfile", *CONFIGURATIONS]
        code = subprocess.run(command, env=os.environ | environment(folder) | told, check=False).returncode
    print(f"{(time.monotonic() - began) / 60:.1f} minutes", file=sys.stderr)
    return code or (int(failed(planned(*map(Path, CONFIGURATIONS)))) if _is_whole(arguments) else 0)


def _is_whole(arguments: Sequence[str]) -> bool:
    """Whether the arguments leave the run the whole experiment: none but a number of cores."""
    return not arguments or (len(arguments) == 2 and arguments[0] == "--cores")


def failed(config: Config) -> bool:
    """Whether the run has faults; tells them, and what stays empty without being one."""
    found = [*check.faults(config, Path()), *stale(config)]
    print("\n".join([*told(config), *(found or ["every kind of the papers' plan was run"])]), file=sys.stderr)
    return bool(found)


def told(config: Config) -> Iterator[str]:
    """What is no fault: cells that stay empty, times that were refused."""
    for one, count in check.empty(config, Path()).items():
        yield f"{one.item}: {count} cells stay empty, as in the papers' own experiment: {one.note}: {one.why}"
    for (dataset, model), reason in check.Run(config, Path()).busy.items():
        yield f"the times of {model} on {dataset} are not shown whole: {reason}"


def stale(config: Config) -> Iterator[str]:
    """Reasons for which no cell stays empty: they would hide one to be filled. None where times were refused."""
    refused = check.Run(config, Path()).busy
    for one, count in check.empty(config, Path()).items():
        if not (count or one.by_chance or refused):
            yield f"{one.item}: no cell stays empty that is {one.note!r}; tests/miniature/check.py says some do"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
