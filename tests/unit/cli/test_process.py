"""How threads wait for each other is chosen before torch is loaded, and freed memory stays."""

import platform
import subprocess
import sys
from functools import partial

import pytest

from ragauge.cli import _main, _process


@pytest.mark.parametrize("stated", [{}, {"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "7"}])
def test_threads_spin_for_a_short_time_unless_the_user_says_otherwise(stated):
    environment = dict(stated)
    _process.choose_waiting(environment)
    assert environment == (stated or {"GOMP_SPINCOUNT": "3000"})


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
