"""Reading documents in a process of its own, which a document that takes too long ends.

python -m ragauge.study.reader_process SOCKET      # as `ReaderProcess` starts it
"""

import os
import signal
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter

from ragauge.errors import UserError
from ragauge.study import formats
from ragauge.study.errors import UnreadableError

LONGEST_S = 20  # for one document,
LONGEST_S_PER_MB = 10  # and more for a large one
MAX_BYTES = 1 << 30  # of an outcome


# a content, or whether an error is a user's mistake, and its message
Outcome = formats.Content | tuple[bool, str]
# JSON, since unpickling could run what a document made of its reader
OUTCOMES = TypeAdapter[Outcome](Outcome)


class ReaderProcess:
    """Reads documents one after another. A context: the process ends with it.

    The process is ended by its own alarm, which stops the code of libraries in C too, and leaves
    nothing behind where this process was killed.
    """

    _process: subprocess.Popen[bytes] | None = None
    _pipe: Connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._pipe.close()
            self._process = None

    def read(self, path: Path) -> formats.Content:
        """Read a document; see `formats.read`, whose errors these are.

        Raises:
            UnreadableError: also if it takes too long, or ends the process.
        """
        if self._process is None:
            self._pipe, theirs = Pipe()
            with theirs:
                fd = theirs.fileno()
                # -P: no module of the folder that this runs in
                command = [sys.executable, "-P", "-m", __name__, str(fd)]
                self._process = subprocess.Popen(command, pass_fds=[fd])
        try:
            self._pipe.send_bytes(os.fsencode(path))
            outcome = OUTCOMES.validate_json(self._pipe.recv_bytes(MAX_BYTES), strict=True)
        except (EOFError, OSError):
            code = self._process.wait()
            self.__exit__()
            late = f"not read within {_longest_s(path)} s"
            ended = f"its reader ended with exit code {code}"
            outcome = (False, late if code == -signal.SIGALRM else ended)
        except ValueError:
            self.__exit__()
            outcome = (False, "its reader handed over something else than a text")
        if isinstance(outcome, formats.Content):
            return outcome
        is_mistake, message = outcome
        raise UserError(message) if is_mistake else UnreadableError(message)


def _longest_s(path: Path) -> int:
    return LONGEST_S + LONGEST_S_PER_MB * (path.stat().st_size >> 20)


def _main() -> None:
    """Read the documents that come by a socket, and send each or its error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the parent as well
    pipe = Connection(int(sys.argv[1]))
    while True:
        try:
            path = Path(os.fsdecode(pipe.recv_bytes()))
        except (EOFError, OSError):
            return
        signal.alarm(_longest_s(path))
        outcome: Outcome
        try:
            outcome = formats.read(path)
        except (UnreadableError, UserError) as error:
            outcome = (isinstance(error, UserError), str(error))
        signal.alarm(0)
        pipe.send_bytes(OUTCOMES.dump_json(outcome))


if __name__ == "__main__":
    _main()
