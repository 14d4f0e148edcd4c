"""The process of a server: signals, reloading, and the command that starts it."""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import service_parts as parts
from ragauge.retrieval.retriever import Query
from ragauge.retrieval.service.client import Client

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


def test_a_reload_loses_no_request() -> None:
    whole, half = parts.Toy(), parts.Toy(part=1, of=2)
    query = Query(text="a", k=5, nprobe=16)
    known = [whole.search([query])[0].ids.tolist(), half.search([query])[0].ids.tolist()]
    answers: list[list[int]] = []
    stop = threading.Event()
    with parts.process() as running, Client(running.address) as client:

        def ask() -> None:
            while not stop.is_set():
                answers.append(client.search([query])[0].ids.tolist())

        askers = [threading.Thread(target=ask) for _ in range(4)]
        for asker in askers:
            asker.start()
        parts.wait_for(lambda: known[0] in answers)
        running.process.send_signal(signal.SIGHUP)
        parts.wait_for(lambda: client.describe().index == "another")
        parts.wait_for(lambda: known[1] in answers)
        stop.set()
        for asker in askers:
            asker.join(5)
    assert [answers.count(one) > 0 for one in known] == [True, True]
    assert all(answer in known for answer in answers)
