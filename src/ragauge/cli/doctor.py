"""Report what this machine can run and how fast, and what to do about what is missing."""

import argparse
import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path
from typing import NamedTuple

import psutil

from ragauge.cli import _options as options
from ragauge.cli._model_findings import model_findings
from ragauge.errors import EXTRA_PACKAGES
from ragauge.io.files import file_system

FLAGS = {"avx512_vnni", "amx_int8", "i8mm"}  # of /proc/cpuinfo: what else decoding gains by
BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}
VECTORS = {"avx2", "avx512f", "asimd", "sve"}
STEPS = {
    "machine": "measure memory bandwidth and matrix rates, for `ragauge time`",
    "kernels": "show the kernels in use, measuring those not measured yet",
}
MIN_MEMORY_BYTES = 4e9
MIN_DISK_BYTES = 5e9  # of the default experiment, with what it downloads and writes


class Finding(NamedTuple):
    """One line: a fact about this machine, and what to do where it falls short."""

    topic: str
    found: str
    todo: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure how fast this machine reads and writes tokens",
    )
    parser.add_argument(
        "--model", metavar="NAME", help="show what is read of a model, and what is refused and why"
    )
    (_, machine), (_, kernels) = options.add_steps(parser, STEPS, required=False)
    machine.set_defaults(verb=_measure_machine)
    options.add_threads(machine)
    options.add_device(machine, help="what is measured (cpu)")
    machine.add_argument("--out", type=Path, required=True, metavar="FILE.json")
    machine.add_argument(
        "--allow-load", action="store_true", help="measure once even if other processes are busy"
    )
    kernels.set_defaults(verb=_show_kernels)
    options.add_threads(kernels, "default: torch's own choice")


def run(args: argparse.Namespace) -> None:
    shown = list(
        map(Finding._make, model_findings(args.model) if args.model else findings(args.measure))
    )
    lines = [f"{one.topic:12} {one.found}{f'  -> {one.todo}' if one.todo else ''}" for one in shown]
    options.print_result(args, "\n".join(lines), findings=[one._asdict() for one in shown])


def _measure_machine(args: argparse.Namespace) -> None:
    from ragauge.cost import machine
    from ragauge.engines.tuning import weight_read

    rates = machine.measure(
        args.threads, args.device, allow_load=args.allow_load, weight_read=weight_read
    )
    options.write_json(args.out, {"provenance": machine.provenance(), **rates})
    options.print_result(args, args.out, out=args.out)


def _show_kernels(args: argparse.Namespace) -> None:
    import torch

    from ragauge.engines import tuning

    if args.threads:
        torch.set_num_threads(args.threads)
    tables = tuning.load_or_measure_tables([torch.float32, torch.bfloat16, torch.int8])
    path = str(tuning.table_path())
    lines = list[str]()
    for name, table in tables.items():
        for size, row in table.items():
            times = sorted((seconds, kernel) for kernel, seconds in row["seconds"].items())
            shown = ", ".join(f"{kernel} {1e3 * seconds:.3g}" for seconds, kernel in times)
            lines.append(f"{name}, {size}: {row['kernel']} (ms: {shown})")
    options.print_result(
        args, "\n".join([*lines, path]), machine=tuning.machine(), file=path, kernels=tables
    )


def findings(measure: bool = False) -> Iterator[Finding]:
    """Yield all findings as they are shown; nothing is measured unless `measure`."""
    yield Finding(
        "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    yield from (
        processor(),
        memory(),
        compiler(),
        *torch_and_gpu(),
        *extras(),
        *onnx_runtime(),
        store(),
    )
    yield from speed(measure)


def processor() -> Finding:
    from ragauge.cost.machine import cpu_model

    flags = cpu_flags()
    known = (
        ", ".join(sorted(flags & (FLAGS | BFLOAT16 | VECTORS))) or "no known vector instructions"
    )
    # A container or a job of a cluster may run on some of the cores only.
    usable = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    cores = f"{psutil.cpu_count(logical=False) or '?'} cores, {psutil.cpu_count()} threads, {usable} usable"
    todo = (
        ""
        if flags & BFLOAT16
        else "bfloat16 is emulated here; leave `dtype: auto`, or state float32"
    )
    todo = todo if flags & VECTORS else "decoding will be slow; use a processor with AVX2 or NEON"
    return Finding("processor", f"{cpu_model()}: {cores}; {known}", todo)


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Return the instruction sets that the kernel reports; none where it reports none."""
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    return set(
        next(
            (line.partition(":")[2] for line in lines if line.startswith(("flags", "Features"))), ""
        ).split()
    )


def memory() -> Finding:
    total, available = psutil.virtual_memory()[:2]
    todo = "the default experiment takes 4 GB; end other programs or choose a smaller model"
    text = f"{total / 1e9:.1f} GB, {available / 1e9:.1f} GB of them available"
    return Finding("memory", text, todo if available < MIN_MEMORY_BYTES else "")


def compiler() -> Finding:
    from ragauge.engines.kernels import compiled

    if path := compiled.compiler():
        return Finding("compiler", path)
    names = ", ".join(compiled.COMPILERS)
    return Finding(
        "compiler",
        f"none of {names} on the PATH",
        "install one: the fastest kernels are compiled here",
    )


def torch_and_gpu() -> Iterator[Finding]:
    import torch

    from ragauge.cost.machine import gpu_state

    cuda = (
        f"built for CUDA {torch.version.cuda}"
        if torch.version.cuda
        else "built for processors alone"
    )
    threads = torch.get_num_threads()
    yield Finding("torch", f"{torch.__version__}, {cuda}, {threads} thread{'s' * (threads > 1)}")
    if state := gpu_state():
        count = f"{state['count']} x " if state["count"] > 1 else ""
        yield Finding(
            "gpu",
            f"{count}{state['name']}, {state['memory_bytes'] / 1e9:.0f} GB, driver {state['driver']}",
        )
    elif shutil.which("nvidia-smi") is None:
        yield Finding("gpu", "none: no nvidia-smi on the PATH")
    else:
        todo = (
            "see what `nvidia-smi` says of the driver"
            if torch.version.cuda
            else "install torch's build for CUDA"
        )
        yield Finding("gpu", "none that torch can use, though nvidia-smi is there", todo)


def extras() -> Iterator[Finding]:
    for extra, packages in sorted(EXTRA_PACKAGES.items()):
        missing = [name for name in packages.split() if util.find_spec(name) is None]
        state = f"without {', '.join(missing)}" if missing else "installed"
        yield Finding(
            f"[{extra}]",
            state,
            f"where it is needed: pip install 'ragauge[{extra}]'" if missing else "",
        )


def onnx_runtime() -> Iterator[Finding]:
    builds = [
        name
        for name in ("onnxruntime", "onnxruntime-gpu")
        if any(metadata.distributions(name=name))
    ]
    todo = f"they overwrite each other's files; pip uninstall {' '.join(builds)}, then install one of them"
    if builds:
        yield Finding("onnxruntime", " and ".join(builds), todo if len(builds) > 1 else "")


def store() -> Finding:
    from ragauge.assets.store import home

    folder = home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        todo = "set RAGAUGE_HOME to a folder that can be written"
        return Finding("store", f"{folder} cannot be written: {error.strerror or error}", todo)
    todo = (
        "set RAGAUGE_HOME to a larger disk, or see `ragauge cache prune`"
        if free < MIN_DISK_BYTES
        else ""
    )
    return Finding("store", f"{folder}, {file_system(folder)}, {free / 1e9:.1f} GB free", todo)


def speed(measure: bool) -> Iterator[Finding]:
    """Rates of a model's layers by data type, which settle `dtype: auto`, with the kernels chosen
    for this machine.
    """
    from ragauge.cost.machine import MAX_LOAD
    from ragauge.cost.shapes import named
    from ragauge.engines import tuning

    if not measure and not tuning.has_tables(tuning.DTYPE_CANDIDATES):
        yield Finding("speed", "not measured yet", "ragauge doctor --measure, on an idle machine")
        return
    layers = named(tuning.MODEL).layers
    for dtype, layer in tuning.dtype_speeds(again=measure).items():
        reads = tuning.PROMPT / layer["prompt_s"] / layers
        writes = 1 / layer["token_s"] / layers
        yield Finding(
            "speed",
            f"{dtype} reads {reads:,.0f}, writes {writes:,.0f} tokens/s (layers of {tuning.MODEL})",
        )
    if (share := tuning.load_share()) > MAX_LOAD:
        busy = f"measured while other processes used {share:.0%} of the machine"
        yield Finding("speed", busy, "ragauge doctor --measure, when it is idle")
