"""Run a command while a server of a model is up, as the printed command of a study does.

`python -m ragauge.study.serving SERVER MODEL COMMAND...`; docs/study.md says when.
"""

import subprocess
import sys

from ragauge.measure.servers import serving


def run(server: str, model: str, *command: str) -> int:
    """Return the exit code of a command that ran while the server was up."""
    with serving(server, model):
        return subprocess.call(command)


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:]))
