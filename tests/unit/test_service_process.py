"""A server's process hears each signal, whichever of its threads the kernel hands it to."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

HEARD_S = 5.0
ELSEWHERE = """
import os, signal, threading
from ragauge.retrieval.service import process

class Server:
    address = "here"
    def start(self):
        pass
    def stop(self, grace_s):
        return True

threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP, signal.SIGTERM])
process.serve(Server(), grace_s=1.0, reload=lambda: os.write(1, b"."))
"""


@pytest.fixture
def served() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose signals another thread than the main one takes."""
    with subprocess.Popen([sys.executable, "-c", ELSEWHERE], stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"serving here\n"
            yield process
        finally:
            process.kill()


def test_a_signal_that_another_thread_takes_is_heard(served: subprocess.Popen[bytes]) -> None:
    assert served.stdout is not None
    for _ in range(3):
        served.send_signal(signal.SIGHUP)
        assert select.select([served.stdout], [], [], HEARD_S)[0]
        os.read(served.stdout.fileno(), 1)
    served.send_signal(signal.SIGTERM)
    assert served.wait(HEARD_S) == 0
