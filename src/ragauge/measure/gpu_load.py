"""Watch a GPU between timed trials: other processes and lowered clocks, by `nvidia-smi`."""

import os
import shutil
from collections import Counter
from dataclasses import dataclass, field

import psutil

from ragauge.cost.machine import command_output
from ragauge.results.times import GpuState

AFFECTS_RESULTS = False

QUERY = "clocks_throttle_reasons.active"
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
    slowed: Counter[str] = field(default_factory=Counter)  # reason -> looks

    def look(self) -> None:
        """Note what the GPU is doing; nothing where `nvidia-smi` fails."""
        if self.gpu is None or not (state := _query(f"--query-gpu={QUERY}", self.gpu)):
            return
        self.looks += 1
        self.others = max(self.others, _count_others(_query("--query-compute-apps=pid", self.gpu)))
        bits = int(state[0], 16) if state[0].startswith("0x") else 0  # or [N/A]
        self.slowed.update(reason for bit, reason in SLOWED.items() if bits & bit)

    def refusal(self) -> str | None:
        """Why times must not be reported; None if the GPU was this process's and ran at its own
        pace.
        """
        if self.others:
            return f"{self.others} other process{'es' * (self.others > 1)} used the GPU"
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
            slowed=dict(self.slowed),
        )


def watch(device: str) -> GpuWatch:
    """A watch over the GPU of a torch device (`cuda`, `cuda:1`); over none for a CPU, or without
    `nvidia-smi`.
    """
    if not device.startswith("cuda") or shutil.which("nvidia-smi") is None:
        return GpuWatch(None)
    index = int(device.partition(":")[2] or 0)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(",", " ").split()
    # `nvidia-smi` sees all GPUs
    return GpuWatch(visible[index] if index < len(visible) else str(index))


def _count_others(lines: list[str]) -> int:
    """Count processes of others on a GPU; all but one where a container has numbers of its own."""
    pids = [int(line) for line in lines if line.isdigit()]
    me = psutil.Process()
    own = {me.pid, *(process.pid for process in (*me.parents(), *me.children(recursive=True)))}
    return len(pids) - (len(own & set(pids)) or min(1, len(pids)))


def _query(query: str, gpu: str) -> list[str]:
    shown = (
        command_output("nvidia-smi", query, "--format=csv,noheader,nounits", f"--id={gpu}") or ""
    )
    return [line.strip() for line in shown.splitlines() if line.strip()]
