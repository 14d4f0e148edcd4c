"""The process of a server: signals."""

import ctypes
import os
import signal

import service_parts as parts
from ragauge.pipelines.service.client import Client


def signal_another_thread(process, number):
    """Have a thread that is not the main one take a signal, as the kernel may choose."""
    other = next(
        int(thread) for thread in os.listdir(f"/proc/{process}/task") if int(thread) != process
    )
    assert ctypes.CDLL(None).tgkill(process, other, number) == 0


def test_a_signal_is_heard_whichever_thread_takes_it():
    with parts.process() as running, Client(running.address) as client:
        client.search(parts.queries(1))
        signal_another_thread(running.process.pid, signal.SIGTERM)
        assert running.process.wait(5) == 0
