"""What else a GPU did while times were taken: other processes, lowered clocks, heat, as `nvidia-smi` tells them.

A look takes tens of milliseconds, so it is taken between trials, never in one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil

QUERY = "utilization.gpu,clocks.sm,clocks.max.sm,temperature.gpu,clocks_throttle_reasons.active"
WAIT_S = 10
# Bits of the reasons by which a GPU runs slower than its load would have it. A power cap is not among them: at full
# load it is the rule.
SLOWED = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


@dataclass
class GpuWatch:
    """Looks at one GPU during a measurement."""

    gpu: str  # index or UUID
    looks: int = 0
    others: int = 0  # the most processes of others at a look
    sm_mhz: list[float] = field(default_factory=list)
    max_sm_mhz: float | None = None
    temperature_c: list[float] = field(default_factory=list)
    slowed: dict[str, int] = field(default_factory=dict)  # reason -> looks

    def look(self) -> None:
        """Note what the GPU is doing; nothing where `nvidia-smi` fails."""
        state = _asked(f"--query-gpu={QUERY}", self.gpu)
        if not state:
            return
        _, clock, most, heat, reasons = [part.strip() for part in (*state[0].split(","), *[""] * 5)[:5]]
        self.looks += 1
        self.others = max(self.others, _others([int(pid) for pid in self._processes() if pid.strip().isdigit()]))
        self.sm_mhz += _numbers(clock)
        self.temperature_c += _numbers(heat)
        self.max_sm_mhz = next(iter(_numbers(most)), self.max_sm_mhz)
        bits = int(reasons, 16) if reasons.startswith("0x") else 0
        for reason in (text for bit, text in SLOWED.items() if bits & bit):
            self.slowed[reason] = self.slowed.get(reason, 0) + 1

    def refusal(self) -> str | None:
        """Why times must not be reported; None if the GPU was this process's and ran at its own pace."""
        if self.others:
            return f"{self.others} other {'process' if self.others == 1 else 'processes'} used the GPU"
        if self.slowed:
            told = ", ".join(f"{reason} at {count} of {self.looks} looks" for reason, count in self.slowed.items())
            return f"the GPU lowered its clocks: {told}"
        return None

    def to_json(self) -> dict[str, Any] | None:
        """What was seen; None where nothing could be."""
        if not self.looks:
            return None
        return {
            "looks": self.looks,
            "other_processes": self.others,
            "sm_mhz": _range(self.sm_mhz),
            "max_sm_mhz": self.max_sm_mhz,
            "temperature_c": _range(self.temperature_c),
            "slowed": dict(self.slowed),
        }

    def _processes(self) -> list[str]:
        return _asked("--query-compute-apps=pid", self.gpu)


def watch(device: str) -> GpuWatch | None:
    """A watch over the GPU of a torch device (`cuda`, `cuda:1`); None for a CPU, or where there is no `nvidia-smi`."""
    if not device.startswith("cuda") or shutil.which("nvidia-smi") is None:
        return None
    return GpuWatch(_identity(int(device.partition(":")[2] or 0)))


@contextmanager
def looked_at(gpu: GpuWatch | None) -> Iterator[None]:
    """Look at the GPU, if there is one, before and after the block."""
    if gpu:
        gpu.look()
    yield
    if gpu:
        gpu.look()


def _identity(index: int) -> str:
    """What `nvidia-smi`, which sees all GPUs, calls the GPU that this process numbers `index`."""
    visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return visible[index] if index < len(visible) else str(index)


def _others(pids: list[int]) -> int:
    """How many of the processes on a GPU are not of this program.

    In a container the numbers are those of another name space; then all but one are others.
    """
    me = psutil.Process()
    own = {me.pid, *(process.pid for process in (*me.parents(), *me.children(recursive=True)))}
    ours = len(own & set(pids))
    return len(pids) - (ours or min(1, len(pids)))


def _asked(query: str, gpu: str) -> list[str]:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits", f"--id={gpu}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line for line in done.stdout.splitlines() if line.strip()]


def _numbers(text: str) -> list[float]:
    try:
        return [float(text)]
    except ValueError:  # [N/A]
        return []


def _range(values: list[float]) -> list[float] | None:
    return [min(values), max(values)] if values else None
