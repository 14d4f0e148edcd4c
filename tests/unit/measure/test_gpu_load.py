"""What else a GPU does while times are taken, as a fake `nvidia-smi` tells it."""

import os
from types import SimpleNamespace

import pytest

from ragauge.cost.machine import Load
from ragauge.measure import timing
from ragauge.measure.gpu_load import watch
from ragauge.measure.protocols import latency
from ragauge.results.times import Trial

FAKE = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$1" in
    --query-gpu=*) cat {folder}/state ;;
    --query-compute-apps=*) cat {folder}/processes ;;
esac
"""
QUIET = "0x0000000000000000"


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """The folder of a `nvidia-smi` that prints its files `state` and `processes`."""
    (tmp_path / "nvidia-smi").write_text(FAKE.format(folder=tmp_path))
    (tmp_path / "nvidia-smi").chmod(0o755)
    (tmp_path / "state").write_text(QUIET + "\n")
    (tmp_path / "processes").write_text(f"{os.getpid()}\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def looked(smi, *states, processes=None):
    result = watch("cuda")
    if processes is not None:
        (smi / "processes").write_text(processes)
    for state in states:
        (smi / "state").write_text(state + "\n")
        result.look()
    return result


def test_a_gpu_of_ones_own_at_its_own_pace(smi):
    # a power cap is the rule at full load
    result = looked(smi, QUIET, "0x0000000000000004")
    assert result.refusal() is None
    assert result.state().to_json() == {"looks": 2, "other_processes": 0, "slowed": {}}


@pytest.mark.parametrize(
    ("processes", "others"),
    [
        ("{mine}\n1\n", 0),  # a process above this one, such as the shell that started it
        ("{mine}\n99999991\n99999992\n", 2),
        ("99999991\n", 0),  # another name space: it is this one
        ("99999991\n99999992\n", 1),
        ("", 0),
    ],
)
def test_processes_of_others_are_counted(processes, others, smi):
    result = looked(smi, QUIET, processes=processes.format(mine=os.getpid()))
    assert result.others == others
    assert (result.refusal() is None) == (not others)


def test_a_gpu_that_is_slowed_down_is_refused_with_the_reason(smi):
    result = looked(smi, QUIET, "0x0000000000000060")
    why = "the GPU lowered its clocks: software thermal slowdown at 1 of 2 looks, hardware thermal slowdown at 1 of 2"
    assert str(result.refusal()).startswith(why)


def test_the_gpu_is_the_one_that_this_process_sees(smi, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-abc, 3")
    for device, name in (("cuda", "GPU-abc"), ("cuda:1", "3")):
        result = watch(device)
        result.look()
        assert (smi / "asked").read_text().splitlines()[-1].endswith(f"--id={name}")


def test_latencies_of_a_gpu_that_others_used_are_refused(smi):
    result = looked(smi, QUIET, processes=f"{os.getpid()}\n99999991\n")
    assert (
        latency.disturbance([Trial(variant="x")], Load(), 0.0, result)
        == "1 other process used the GPU"
    )


def test_a_look_frames_what_is_measured(smi):
    lm = SimpleNamespace(device="cuda")
    processes = f"{os.getpid()}\n99999991\n"
    _, seen = timing.watched(lm, False, lambda: (smi / "processes").write_text(processes))
    assert (seen.gpu.looks, seen.gpu.other_processes) == (2, 1)
    assert "process" in seen.refused
