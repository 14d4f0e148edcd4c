"""The process of a server: signals and reloading."""

import ctypes
import os
import signal
import threading

import service_parts as parts
from ragauge.pipelines.retrieval.retriever import Query
from ragauge.pipelines.service.client import Client


def signal_another_thread(process, number):
    """Have a thread that is not the main one take a signal, as the kernel may choose."""
    other = next(
        int(thread) for thread in os.listdir(f"/proc/{process}/task") if int(thread) != process
    )
    assert ctypes.CDLL(None).tgkill(process, other, number) == 0


def test_a_reload_loses_no_request_and_a_signal_is_heard_whichever_thread_takes_it():
    whole = parts.Toy()
    half = parts.Toy(part=1, of=2)
    query = Query(text="a", k=5, nprobe=16)
    known = [whole.search([query])[0].ids.tolist(), half.search([query])[0].ids.tolist()]
    answers: list[list[int]] = []
    stop = threading.Event()
    with parts.process() as running, Client(running.address) as client:

        def ask():
            while not stop.is_set():
                answers.append(client.search([query])[0].ids.tolist())

        askers = [threading.Thread(target=ask) for _ in range(4)]
        for asker in askers:
            asker.start()
        parts.wait_for(lambda: known[0] in answers)
        signal_another_thread(running.process.pid, signal.SIGHUP)
        parts.wait_for(lambda: client.describe().index == "another")
        parts.wait_for(lambda: known[1] in answers)
        stop.set()
        for asker in askers:
            asker.join(5)
        signal_another_thread(running.process.pid, signal.SIGTERM)
        assert running.process.wait(5) == 0
    assert [answers.count(one) > 0 for one in known] == [True, True]
    assert all(answer in known for answer in answers)
