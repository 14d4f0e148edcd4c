"""Watch a GPU between timed trials: other processes, lowered clocks and heat, by
`nvidia-smi`.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from ragauge.cost.machine import command_output
from ragauge.results.times import GpuState

AFFECTS_RESULTS = False

QUERY = "clocks.sm,clocks.max.sm,temperature.gpu,clocks_throttle_reasons.active"
# Bits of the reasons by which a GPU runs slower than its load would have it. A power cap is not
# among them: at full load it is the rule.
SLOWED = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


@dataclass
class GpuWatch:
    gpu: str | None  # index or UUID; None: there is none to watch
    looks: int = 0
    others: int = 0  # the most processes of others at a look
    sm_mhz: list[float] = field(default_factory=list)
    max_sm_mhz: float | None = None
    temperature_c: list[float] = field(default_factory=list)
    slowed: dict[str, int] = field(default_factory=dict)  # reason -> looks

    def look(self) -> None:
        """Note what the GPU is doing; nothing where `nvidia-smi` fails."""
        if self.gpu is None or not (state := _query(f"--query-gpu={QUERY}", self.gpu)):
            return
        *numbers, reasons = (*(part.strip() for part in state[0].split(",")), *[""] * 4)[:4]
        self.looks += 1
        self.others = max(self.others, _count_others(_query("--query-compute-apps=pid", self.gpu)))
        maxima = list[float]()
        for text, seen in zip(numbers, (self.sm_mhz, maxima, self.temperature_c), strict=True):
            with suppress(ValueError):  # [N/A]
                seen.append(float(text))
        self.max_sm_mhz = maxima[0] if maxima else self.max_sm_mhz
        bits = int(reasons, 16) if reasons.startswith("0x") else 0
        for reason in (text for bit, text in SLOWED.items() if bits & bit):
            self.slowed[reason] = self.slowed.get(reason, 0) + 1

    def refusal(self) -> str | None:
        """Why times must not be reported; None if the GPU was this process's and ran at its own
        pace.
        """
        if self.others:
            return (
                f"{self.others} other {'process' if self.others == 1 else 'processes'} used the GPU"
            )
        if self.slowed:
            reasons = ", ".join(
                f"{reason} at {count} of {self.looks} looks"
                for reason, count in self.slowed.items()
            )
            return f"the GPU lowered its clocks: {reasons}"
        return None

    def state(self) -> GpuState | None:
        """Return the state over all looks; None without a look."""
        if not self.looks:
            return None
        return GpuState(
            looks=self.looks,
            other_processes=self.others,
            sm_mhz=_range(self.sm_mhz),
            max_sm_mhz=self.max_sm_mhz,
            temperature_c=_range(self.temperature_c),
            slowed=dict(self.slowed),
        )


def watch(device: str) -> GpuWatch:
    """A watch over the GPU of a torch device (`cuda`, `cuda:1`); over none for a CPU, or without
    `nvidia-smi`.
    """
    if not device.startswith("cuda") or shutil.which("nvidia-smi") is None:
        return GpuWatch(None)
    index = int(device.partition(":")[2] or 0)
    visible = [
        name.strip()
        for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if name.strip()
    ]
    # `nvidia-smi` sees all GPUs
    return GpuWatch(visible[index] if index < len(visible) else str(index))


def _range(values: list[float]) -> list[float] | None:
    return [min(values), max(values)] if values else None


def _count_others(lines: list[str]) -> int:
    """Count processes of others on a GPU; all but one where a container has numbers of its own."""
    pids = [int(line) for line in lines if line.strip().isdigit()]
    me = psutil.Process()
    own = {me.pid, *(process.pid for process in (*me.parents(), *me.children(recursive=True)))}
    return len(pids) - (len(own & set(pids)) or min(1, len(pids)))


def _query(query: str, gpu: str) -> list[str]:
    shown = (
        command_output("nvidia-smi", query, "--format=csv,noheader,nounits", f"--id={gpu}") or ""
    )
    return [line for line in shown.splitlines() if line.strip()]
