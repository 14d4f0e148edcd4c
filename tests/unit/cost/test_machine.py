"""The rates of the machine, and how busy others keep it."""

import json
import subprocess
import sys
import time
from contextlib import nullcontext

import psutil
import pytest
import torch

from ragauge.cost import machine
from ragauge.cost.machine import Load, competing_load

BURN = "import time; end = time.time() + 1.2\nwhile time.time() < end: pass"


def test_competing_load_sees_others_and_not_ourselves():
    orphan = 'p="$1"; "$p" -c "$2" >/dev/null 2>&1 &'  # outlives its shell, so it is nobody's child
    with competing_load() as load:
        subprocess.run(["/bin/sh", "-c", orphan, "sh", sys.executable, BURN], check=True)
        time.sleep(1.0)
    assert load.others_cpu_s > 0.4
    with competing_load() as load:
        end = time.perf_counter() + 0.3
        while time.perf_counter() < end:
            pass
    assert load.seconds >= 0.3


def test_load_adds_up_and_ignores_what_ticks_cannot_resolve():
    assert (Load(1.0, 0.5) + Load(2.0, 0.25)) == Load(3.0, 0.75)
    assert Load(0.1, 0.02).share == Load().share == 0.0


def test_measured_machine(measured_quickly):
    threads = torch.get_num_threads()
    result = machine.measure(threads=1)
    assert result["threads"] == 1
    assert torch.get_num_threads() == threads
    for rate in (result["bandwidth_bytes_per_s"], *result["matmul_flop_per_s"].values()):
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]


@pytest.mark.parametrize(("allow_load", "counts"), [(False, 0.3), (True, 0.8)])
def test_a_busy_machine_is_measured_again_unless_that_is_allowed(
    allow_load, counts, measured_quickly, monkeypatch
):
    shares = iter([0.8, 0.3, 0.6])
    monkeypatch.setattr(machine, "ATTEMPTS", 3)
    cores = psutil.cpu_count()
    monkeypatch.setattr(
        machine, "competing_load", lambda: nullcontext(Load(100.0, 100 * next(shares) * cores))
    )
    result = machine.measure(threads=1, allow_load=allow_load)
    assert result["load_share"] == pytest.approx(counts, abs=1e-3)
    assert len(list(shares)) == (2 if allow_load else 0)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("AMD EPYC", "AMD EPYC family 26 model 2"), ("AMD EPYC 9R14", "AMD EPYC 9R14")],
)
def test_a_processors_name_without_a_number_has_family_and_model(name, shown, monkeypatch):
    one = f"processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: {name}\n"
    monkeypatch.setattr(machine.Path, "read_text", lambda *_: f"{one}\n{one}")
    assert machine.cpu_model() == shown


def test_provenance_names_no_host_user_or_path():
    import getpass
    import socket

    text = json.dumps(machine.provenance())
    words = text.replace('"', " ").split()
    assert "torch" in text
    assert not {socket.gethostname(), getpass.getuser()} & set(words)
    assert "/home" not in text
    assert str(machine.Path(machine.__file__).parent) not in text
