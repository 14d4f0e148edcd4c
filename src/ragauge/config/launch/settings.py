"""The files that a run writes before its first job."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from ragauge.assets import pins
from ragauge.config import dtypes
from ragauge.config.experiment import Config
from ragauge.io.files import write_file


def write_settings(config: Config, path: Path, files: Sequence[str] = ()) -> None:
    """Write the checked configuration for the commands of the rules to read; `dtype: auto` is
    resolved.

    The lock of the configuration, the last of its `files`, is copied next to it, and is in use from
    here on.

    Not a rule's output: Snakemake does not look at the parameters of jobs below one that runs. The
    rules have what they use of it as parameters.
    """
    settings = dtypes.resolved(config, path).model_dump(exclude_none=True)
    write_file(path, yaml.safe_dump(settings, sort_keys=False).encode())
    lock = pins.lock_path(Path(files[-1])) if files else None
    if lock and lock.is_file():
        pins.write(pins.lock_path(path), pins.read(lock))
        pins.activate_lock(path)
    else:
        pins.lock_path(path).unlink(missing_ok=True)


def write_clients(clients: Mapping[str, Sequence[str]]) -> None:
    """List in the file of each server that is a job what is made with it, and remove that of an
    earlier run.
    """
    for path, outputs in clients.items():
        for stale in outputs:
            Path(stale).unlink(missing_ok=True)
        write_file(Path(path), "".join(f"{line}\n" for line in outputs).encode())
