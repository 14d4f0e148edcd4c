"""The very configs/paper.yaml at its smallest, as `make miniature` runs it.

Writes the papers' models and data in small, runs the workflow on them with configs/miniature.yaml laid over
configs/paper.yaml, and checks what came of it. No network is needed. Arguments are handed to Snakemake;
with any, what came of it is not checked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from endpoints import Reply, says, served
from miniature import check, hub, texts
from miniature.kinds import planned

FOLDER = Path("resources", "miniature")
CONFIGURATIONS = ("configs/paper.yaml", "configs/miniature.yaml")


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
        texts.write_all(folder / "data")
        (folder / "whole").touch()


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
        command = [sys.executable, "-m", "snakemake", *options, "--configfile", *CONFIGURATIONS]
        code = subprocess.run(command, env=os.environ | environment(folder) | told, check=False).returncode
    if code or arguments:
        return code
    faults = check.faults(planned(*map(Path, CONFIGURATIONS)), Path())
    print("\n".join(faults) or "every kind of the papers' plan was run", file=sys.stderr)
    print(f"{(time.monotonic() - began) / 60:.1f} minutes", file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
