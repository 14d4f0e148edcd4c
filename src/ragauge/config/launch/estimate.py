"""What a run that begins says about itself."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from ragauge.config.experiment import Config
from ragauge.io import progress

# fewer jobs are not estimated; an estimate takes some seconds, a minute at most
ESTIMATED_JOBS = 30
ESTIMATE_S = 90


def say_estimate(config: Config, settings: Path, jobs: int, cores: int) -> None:
    """Say what a run does, and about how long it takes on this machine.

    Args:
        settings: the file of the configuration, every `dtype` resolved.
    """
    progress.line(f"{jobs} jobs of this experiment:\n{config.overview()}")
    if jobs < ESTIMATED_JOBS:
        return
    verb = ["estimate", str(settings), "--brief", "--quiet", f"--cores={cores}"]
    command = [sys.executable, "-m", "ragauge.cli", *verb]
    with suppress(subprocess.TimeoutExpired):
        estimate = subprocess.run(
            command, capture_output=True, text=True, timeout=ESTIMATE_S, check=False
        )
        if estimate.returncode == 0:
            progress.line(estimate.stdout.strip())
