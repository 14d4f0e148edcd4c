"""Report the capabilities of this machine and installation, and how to add missing ones."""

import platform
import re
import shutil
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import NamedTuple

import psutil
import torch

from ragauge.assets.store import home
from ragauge.cost.machine import cpu_model, gpu_state
from ragauge.cost.shapes import named
from ragauge.engines import tuning
from ragauge.engines.kernels import compiled
from ragauge.errors import EXTRA_PACKAGES
from ragauge.io.files import file_system

FLAGS = {"avx512_vnni", "amx_int8", "i8mm"}  # of /proc/cpuinfo: what else decoding gains by
BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
VECTORS = {"avx2", "avx512f", "asimd", "sve"}
MIN_MEMORY_BYTES = 4e9
MIN_DISK_BYTES = 5e9  # of the default experiment, with what it downloads and writes


class HealthCheck(NamedTuple):
    """One line: a fact about this machine, and what to do where it falls short."""

    topic: str
    found: str
    todo: str = ""


def findings(measure: bool = False) -> Iterator[HealthCheck]:
    """Yield all findings as they are shown; nothing is measured unless `measure`."""
    yield HealthCheck(
        "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    yield from (
        processor(),
        memory(),
        compiler(),
        *torch_and_gpu(),
        *extras(),
        store(),
    )
    yield from speed(measure)


def processor() -> HealthCheck:
    flags = cpu_flags()
    known = (
        ", ".join(sorted(flags & (FLAGS | BFLOAT16 | VECTORS))) or "no known vector instructions"
    )
    # A container or a job of a cluster may run on some of the cores only.
    usable = len(psutil.Process().cpu_affinity() or ()) if psutil.LINUX else psutil.cpu_count()
    cores = f"{psutil.cpu_count(logical=False) or '?'} cores, {psutil.cpu_count()} threads, {usable} usable"
    todo = (
        ""
        if flags & BFLOAT16
        else "bfloat16 is emulated here; leave `dtype: auto`; train in float32"
    )
    todo = todo if flags & VECTORS else "decoding will be slow; use a processor with AVX2 or NEON"
    return HealthCheck("processor", f"{cpu_model()}: {cores}; {known}", todo)


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Return the instruction sets that the kernel reports; none where it reports none."""
    text = cpuinfo.read_text() if cpuinfo.is_file() else ""
    return set(" ".join(re.findall(r"^(?:flags|Features)\s*:(.*)", text, re.M)).split())


def memory() -> HealthCheck:
    total, available = psutil.virtual_memory()[:2]
    todo = "the default experiment takes 4 GB; end other programs or choose a smaller model"
    text = f"{total / 1e9:.1f} GB, {available / 1e9:.1f} GB of them available"
    return HealthCheck("memory", text, todo if available < MIN_MEMORY_BYTES else "")


def compiler() -> HealthCheck:
    if path := compiled.compiler():
        return HealthCheck("compiler", path)
    names = ", ".join(compiled.COMPILERS)
    return HealthCheck(
        "compiler",
        f"none of {names} on the PATH",
        "install one: the fastest kernels are compiled here",
    )


def torch_and_gpu() -> Iterator[HealthCheck]:
    cuda = (
        f"built for CUDA {torch.version.cuda}"
        if torch.version.cuda
        else "built for processors alone"
    )
    threads = torch.get_num_threads()
    yield HealthCheck(
        "torch", f"{torch.__version__}, {cuda}, {threads} thread{'s' * (threads > 1)}"
    )
    if state := gpu_state():
        count = f"{state['count']} x " if state["count"] > 1 else ""
        yield HealthCheck(
            "gpu",
            f"{count}{state['name']}, {state['memory_bytes'] / 1e9:.0f} GB, driver {state['driver']}",
        )
    elif shutil.which("nvidia-smi") is None:
        yield HealthCheck("gpu", "none: no nvidia-smi on the PATH")
    else:
        todo = (
            "see what `nvidia-smi` says of the driver"
            if torch.version.cuda
            else "install torch's build for CUDA"
        )
        yield HealthCheck("gpu", "none that torch can use, though nvidia-smi is there", todo)


def extras() -> Iterator[HealthCheck]:
    for extra, packages in sorted(EXTRA_PACKAGES.items()):
        missing = [name for name in packages.split() if util.find_spec(name) is None]
        state = f"without {', '.join(missing)}" if missing else "installed"
        yield HealthCheck(
            f"[{extra}]",
            state,
            f"where it is needed: pip install 'ragauge[{extra}]'" if missing else "",
        )


def store() -> HealthCheck:
    folder = home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        todo = "set RAGAUGE_HOME to a folder that can be written"
        return HealthCheck("store", f"{folder} cannot be written: {error.strerror or error}", todo)
    todo = (
        "set RAGAUGE_HOME to a larger disk, or see `ragauge cache prune`"
        if free < MIN_DISK_BYTES
        else ""
    )
    return HealthCheck("store", f"{folder}, {file_system(folder)}, {free / 1e9:.1f} GB free", todo)


def speed(measure: bool) -> Iterator[HealthCheck]:
    """Rates of a model's layers by data type, which settle `dtype: auto`, with the kernels chosen
    for this machine.
    """
    if not measure and not tuning.has_tables(tuning.DTYPE_CANDIDATES):
        yield HealthCheck(
            "speed", "not measured yet", "ragauge doctor --measure, on an idle machine"
        )
        return
    layers = named(tuning.MODEL).layers
    for dtype, layer in tuning.dtype_speeds(again=measure).items():
        reads = tuning.PROMPT / layer["prompt_s"] / layers
        writes = 1 / layer["token_s"] / layers
        yield HealthCheck(
            "speed",
            f"{dtype} reads {reads:,.0f}, writes {writes:,.0f} tokens/s (layers of {tuning.MODEL})",
        )
