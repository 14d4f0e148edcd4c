"""How threads wait for each other is chosen before torch is loaded."""

import os
import signal
import subprocess
import sys

import pytest

from ragauge.cli import _process

SPIN, PASSIVE = {"GOMP_SPINCOUNT": "3000"}, {"OMP_WAIT_POLICY": "PASSIVE"}


@pytest.mark.parametrize(
    ("stated", "busy", "loaded", "chosen"),
    [
        ({}, False, False, SPIN),
        ({}, True, False, PASSIVE),
        ({"OMP_NUM_THREADS": "2"}, True, False, PASSIVE),
        ({"OMP_NUM_THREADS": "1"}, True, False, {}),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, True, False, {}),
        ({"GOMP_SPINCOUNT": "7"}, True, False, {}),
        ({}, True, True, {}),  # too late
    ],
)
def test_threads_spin_where_no_other_process_is_busy(
    stated: dict[str, str], busy: bool, loaded: bool, chosen: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_process, "others_busy", lambda: busy)
    monkeypatch.setattr(sys, "modules", {"torch": None} if loaded else {})
    environment = dict(stated)
    _process.choose_waiting(environment)
    assert environment == stated | chosen


def test_a_busy_process_is_seen() -> None:
    orphan = "(while :; do :; done) > /dev/null 2>&1 & echo $!"  # the work of a child would be this process's own
    busy = int(subprocess.check_output(["sh", "-c", orphan]))
    try:
        assert any(_process.others_busy() for _ in range(20))
    finally:
        os.kill(busy, signal.SIGKILL)
