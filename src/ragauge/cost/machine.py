"""The machine: how fast it reads and multiplies, what it consists of, and how busy other processes
keep it.
"""

from __future__ import annotations

import platform
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from pydantic import BaseModel, Field

from ragauge import plugins
from ragauge.cost.hardware import DTYPES
from ragauge.errors import validating
from ragauge.io.jsonl import JsonObject, read_object

if TYPE_CHECKING:
    import torch

AFFECTS_RESULTS = False
PACKAGES = (
    "ragauge", "torch", "transformers", "tokenizers", "numpy", "bm25s", "scikit-learn", "faiss-cpu", "onnxruntime",
    "snakemake",
)  # fmt: skip

CPU_READ_BYTES = 256 * 2**20
CUDA_READ_BYTES = 4 * 2**30  # much larger than any cache
CPU_MATMUL_SIDE = 1024
CUDA_MATMUL_SIDE = 8192
BUDGET_S = 0.25  # of each quantity

MAX_LOAD = 0.05  # share of the machine's CPU time that others may take while anything is measured
ATTEMPTS = 5
PAUSE_S = 1.0  # to find the machine quiet
TICK_S = 0.01  # resolution of the kernel's CPU accounting

WeightRead = Callable[[int], Callable[[], object] | None]

# what this process's engines report about how they compute; part of its provenance
engines_state: JsonObject = {}


@dataclass
class Load:
    """CPU time that other processes took during an interval; filled in when the interval ends."""

    seconds: float = 0.0  # length of the interval
    # CPU seconds of the whole machine less those of this process and its children
    others_cpu_s: float = 0.0

    @property
    def share(self) -> float:
        """The part of the whole machine's CPU time that others took, less what the clock ticks
        cannot resolve.
        """
        available = self.seconds * (psutil.cpu_count() or 1)
        taken = max(0.0, self.others_cpu_s - 2 * TICK_S) / available if available else 0.0
        return min(1.0, taken)  # two clocks count: their sum may be a little more than all

    def __add__(self, other: Load) -> Load:
        return Load(self.seconds + other.seconds, self.others_cpu_s + other.others_cpu_s)


@contextmanager
def competing_load() -> Iterator[Load]:
    """Measure the CPU time that other processes take during the block."""
    load = Load()
    busy = _busy_s()
    own = _own_s()
    started = time.perf_counter()
    try:
        yield load
    finally:
        load.seconds = time.perf_counter() - started
        load.others_cpu_s = max(0.0, (_busy_s() - busy) - (_own_s() - own))


def measure(
    threads: int | None = None,
    device: str = "cpu",
    *,
    allow_load: bool = False,
    weight_read: WeightRead | None = None,
) -> JsonObject:
    """Read bandwidth and matrix rates of the machine, each as {"median", "low", "high", "n"}, in a
    few seconds.

    Repeated up to ATTEMPTS times while other processes keep the machine busy (once with
    `allow_load`); the least disturbed attempt counts. `weight_read` makes a read of so many bytes
    as a CPU's kernels read weights (`engines.tuning.weight_read`).

    Returns:
        `bandwidth_bytes_per_s`: the faster read of a buffer much larger than the caches: a sum, or
            `weight_read`;
        `matmul_flop_per_s` by dtype, int8 among them: square matrix products; `threads`, `device`,
            its `processor`, and `load_share`, the part of the machine that others took meanwhile.
    """
    import torch

    before = torch.get_num_threads()
    measured = list[JsonObject]()
    torch.set_num_threads(threads or before)
    try:
        for attempt in range(1 if allow_load else ATTEMPTS):
            if attempt:
                time.sleep(PAUSE_S)
            with competing_load() as load:
                rates = _rates(torch.device(device), weight_read)
            rates |= {
                "threads": torch.get_num_threads(),
                "device": device,
                "processor": processor(device),
                "load_share": load.share,
            }
            measured.append(rates)
            if load.share <= MAX_LOAD:
                break
    finally:
        torch.set_num_threads(before)
    return min(measured, key=itemgetter("load_share"))


class _Rate(BaseModel):
    high: float = Field(gt=0, lt=1e300)


class _Rates(BaseModel):
    """The rates that the roofline needs."""

    bandwidth_bytes_per_s: _Rate
    matmul_flop_per_s: dict[str, _Rate] = Field(min_length=1)
    load_share: float = Field(0.0, allow_inf_nan=False)


def read(path: Path) -> JsonObject:
    """Read what `ragauge doctor machine` wrote.

    Raises:
        UserError: no JSON, or a rate of the roofline is missing.
    """
    rates = read_object(path)
    with validating(str(path), "; measure the machine again"):
        _Rates.model_validate(rates, strict=True)
    return rates


def provenance() -> JsonObject:
    """The machine, the versions and the commit that a result was made with; no host name, user name
    or path.
    """
    import torch

    git_state = None  # where this package is not a checkout of its own
    changes = uncommitted()
    if changes is not None:
        commit = command_output("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD")
        git_state = {"commit": commit, "dirty": bool(changes)}
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": git_state,
        "cpu": cpu_model(),
        "cores": {"physical": psutil.cpu_count(logical=False), "logical": psutil.cpu_count()},
        "memory_bytes": psutil.virtual_memory().total,
        "gpu": gpu_state(),
        "os": f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        "python": platform.python_version(),
        "packages": package_versions(),
        "threads": torch.get_num_threads(),
        **engines_state,
    }


def uncommitted(file: Path = Path(__file__)) -> list[str] | None:
    """Return the tracked files that differ from the last commit in the checkout of a file, but for
    those below `reports`, which runs write; None where no checkout tracks the file.
    """
    git = partial(command_output, "git", "-C", str(file.parent))
    if git("ls-files", "--error-unmatch", file.name) is None:
        return None
    changed = git("diff", "HEAD", "--name-only", "--", ":/", ":(top,exclude)reports")
    return (changed or "").splitlines()


def cpu_model() -> str:
    """The processor's name, with family and model where it has no number: on many virtual machines
    two generations of processors have one name.
    """
    facts: dict[str, str] = {}
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        facts = dict(re.findall(r"(.+?)\s*: (.*\S)", first))
    name = facts.get("model name") or platform.processor() or platform.machine()
    if {"cpu family", "model"} <= facts.keys() and not any(map(str.isdigit, name)):
        return f"{name} family {facts['cpu family']} model {facts['model']}"
    return name


def processor(device: str | None) -> str:
    """The name of the GPU, where a decoder runs on one, else of the processor."""
    gpu = gpu_state() if str(device).startswith("cuda") else None
    return str(gpu["name"]) if gpu else cpu_model()


def gpu_state() -> JsonObject | None:
    """Name, memory, driver and CUDA version of the first CUDA device; None where torch sees none."""
    import torch

    if not torch.cuda.is_available():
        return None
    device = torch.cuda.get_device_properties(0)
    return {
        "name": device.name,
        "memory_bytes": device.total_memory,
        "count": torch.cuda.device_count(),
        "driver": command_output(
            "nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"
        ),
        "torch_cuda": torch.version.cuda,
    }


def package_versions() -> dict[str, str]:
    """Installed versions of the packages that results depend on, of those that add components too."""
    versions = {}
    for name in (*PACKAGES, *dict.fromkeys(plugin.package for plugin in plugins.installed())):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _rates(device: torch.device, weight_read: WeightRead | None) -> JsonObject:
    import torch

    size = CUDA_READ_BYTES if device.type == "cuda" else CPU_READ_BYTES
    with torch.inference_mode():
        reads: list[Callable[[], object]] = [
            torch.ones(size // 4, dtype=torch.float32, device=device).sum
        ]
        if weight_read and device.type == "cpu" and (read := weight_read(size)):
            reads.append(read)
        return {
            "bandwidth_bytes_per_s": max(
                (_rate(size, read) for read in reads), key=itemgetter("high")
            ),
            "matmul_flop_per_s": {
                name: _matmul_rate(device, getattr(torch, name)) for name in (*DTYPES, "int8")
            },
        }


def _matmul_rate(device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """Operations a second of a square matrix product; 8-bit integers are summed in 32 bits. On a
    CPU the faster of two ways counts: the bound must not depend on one library's choice for a
    processor.
    """
    import torch

    side = CUDA_MATMUL_SIDE if device.type == "cuda" else CPU_MATMUL_SIDE
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    product = torch._int_mm if dtype == torch.int8 else torch.mm
    rates = [_rate(2 * side**3, partial(product, left, right.t()))]
    if device.type == "cpu":
        with suppress(RuntimeError, AttributeError):  # torch or the processor lacks it
            rates.append(_rate(2 * side**3, _packed_product(left, right)))
    return max(rates, key=itemgetter("high"))


def _packed_product(left: torch.Tensor, right: torch.Tensor) -> Callable[[], object]:
    """The product by oneDNN, the right matrix in the layout that it prefers."""
    import torch

    side = len(left)
    mkldnn = torch.ops.mkldnn
    onednn = torch.ops.onednn
    if left.dtype != torch.int8:
        packed = mkldnn._reorder_linear_weight(right, side)
        return partial(mkldnn._linear_pointwise, left, packed, None, "none", [], "")
    packed = onednn.qlinear_prepack(right, None)
    scales = torch.ones(side)
    zeros = torch.zeros(side, dtype=torch.int32)
    rescaled: tuple[Any, ...] = (None, 1.0, 0, torch.float32, "none", [], "")
    return partial(
        onednn.qlinear_pointwise, left.view(torch.uint8), 1.0, 0, packed, scales, zeros, *rescaled
    )


def _rate(work: float, run: Callable[[], object]) -> dict[str, float]:
    """`work` over the seconds of `run`, repeated for BUDGET_S after a warm-up."""
    import torch
    from torch.utils.benchmark import Timer  # waits for a GPU, and keeps the garbage collector out

    timer = Timer("run()", globals={"run": run}, num_threads=torch.get_num_threads())
    rates = [work / seconds for seconds in timer.blocked_autorange(min_run_time=BUDGET_S).times]
    return {
        "median": statistics.median(rates),
        "low": min(rates),
        "high": max(rates),
        "n": len(rates),
    }


def _busy_s() -> float:
    """CPU seconds that the whole machine has worked since it started; time stolen by a hypervisor
    counts as work.
    """
    times = psutil.cpu_times()
    kinds = ("user", "nice", "system", "irq", "softirq", "steal")
    return sum(getattr(times, kind, 0.0) for kind in kinds)


def _own_s() -> float:
    """CPU seconds of this process and of its children, living and ended."""
    me = psutil.Process()
    ended = me.cpu_times()
    own = time.process_time()
    for child in me.children(recursive=True):
        with suppress(psutil.Error):
            times = child.cpu_times()
            own += times.user + times.system
    return float(own + ended.children_user + ended.children_system)


def command_output(*command: str) -> str | None:
    """Return the output of a command, stripped; None if it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
