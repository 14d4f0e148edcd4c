"""The files of the workflow, in a clone or in an installed package."""

import sys
from pathlib import Path

from ragauge.errors import UserError

SNAKEFILE = Path("workflow", "Snakefile")
PROFILE = Path("profiles", "default")
COMMAND = "command.txt"  # of a folder without a Snakefile: how to run it again


def workflow_files() -> Path:
    """Find the folder of `workflow` and `profiles`: in the clone that this package is in, or in a
    wheel's package.
    """
    package = Path(__file__).parents[2]
    for folder in (package / "_workflow", package.parents[1]):
        if (folder / SNAKEFILE).is_file():
            return folder
    raise UserError(
        f"{package}: installed without the workflow's files; install a wheel of ragauge, or a clone"
    )


def workflow_command(folder: Path, config: Path, cores: str = "all") -> list[str]:
    """Return the command of the package's own workflow in a folder that has none, by the Snakemake
    of this environment, from whatever folder or shell.

    Snakemake looks for profiles next to the Snakefile and where it is started; the package's are in
    neither place.

    Args:
        folder: absolute path of the folder to work in.
        config: absolute path of the configuration.
    """
    files = workflow_files()
    places = ["--snakefile", str(files / SNAKEFILE), "--workflow-profile", str(files / PROFILE)]
    run = ["--directory", str(folder), "--configfile", str(config), "--cores", cores]
    return [sys.executable, "-m", "snakemake", *places, *run]


def rerun_command(folder: Path) -> str:
    """Return the command that runs the experiment of a folder again, to be followed by files."""
    stored = folder / COMMAND
    return stored.read_text(encoding="utf-8") if stored.is_file() else "snakemake --cores all"
