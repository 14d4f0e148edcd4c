"""How threads wait for each other is chosen before torch is loaded, and freed memory stays."""

import os
import platform
import signal
import subprocess
import sys
from functools import partial

import pytest

from ragauge.cli import _main, _process

SPIN = {"GOMP_SPINCOUNT": "3000"}
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}


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
    stated,
    busy,
    loaded,
    chosen,
    monkeypatch,
):
    monkeypatch.setattr(_process, "others_busy", lambda: busy)
    monkeypatch.setattr(sys, "modules", {"torch": None} if loaded else {})
    environment = dict(stated)
    _process.choose_waiting(environment)
    assert environment == stated | chosen


def test_a_busy_process_is_seen():
    # the work of a child would be this process's own
    orphan = "(while :; do :; done) > /dev/null 2>&1 & echo $!"
    busy = int(subprocess.check_output(["sh", "-c", orphan]))
    try:
        assert any(_process.others_busy() for _ in range(20))
    finally:
        os.kill(busy, signal.SIGKILL)


FAULTS = """
import resource
from ragauge.cli import _process
{before}
for _ in range(2):
    began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(2**26)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - began)
"""


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries have no such choice"
)
def test_freed_memory_is_not_mapped_anew():
    faults = [
        int(subprocess.check_output([sys.executable, "-c", FAULTS.format(before=before)]))
        for before in ("", "_process.retain_freed_memory()")
    ]
    assert faults[1] * 10 < faults[0]


def test_a_training_alone_returns_freed_memory(monkeypatch, tmp_path):
    retained = []
    for step, options in {
        "data": [],
        "train": ["--data", str(tmp_path), "--checkpoints", str(tmp_path)],
    }.items():
        monkeypatch.setattr(_main, "retain_freed_memory", partial(retained.append, step))
        assert (
            _main.main(
                ["sft", step, *options, "--set", "model=none", "--out", str(tmp_path / step)]
            )
            == 2
        )
    assert retained == ["data"]
