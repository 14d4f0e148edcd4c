"""Pack what a machine with a GPU needs to measure the papers' sizes, and measure there.

    python benchmarks/gpu_kit.py pack dist/gpu-kit.tar.gz          # or: make gpu-kit
    tar xzf gpu-kit.tar.gz && cd gpu-kit && python benchmarks/gpu_kit.py run OUT [--part NAME] [--step NAME]

The machine needs torch, transformers and the light packages of pyproject.toml: no hub, no
Snakemake, no faiss. Weights are random and made there. Every step is a command of at most ten
minutes that writes OUT/<step>.json; a step that fails or is killed keeps no other from running. The
machine's rates are measured once, before the first step that is timed. OUT/summary.json has, of
each step, how it ended, and of each stage that was timed its seconds over its roofline. A step that
lacks something (pytest, faiss, a database) says so there.
"""

import argparse
import importlib.util
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KIT = "kit.json"  # of which commit an archive is
PACKED = ("src", "benchmarks", "configs", "tests", "pyproject.toml", "LICENSE", "README.md")
MOST_BYTES = 64 << 20
STEP_S = 590.0
NEEDS_CUDA = "torch.cuda.is_available()"  # stands in the files of tests that run on a GPU
TAIL = 2000  # characters of a failed step's output
MACHINE = "machine"  # the step that measures its rates
MODELS = (
    "mpt-7b-instruct",
    "bloomz-7b1",
    "bloomz-3b",
    "openelm-3b-instruct",
)  # Superposition, Tables 5 and 7
CFIC_MODEL = "llama-2-7b"
CFIC_METHODS = "cfic,free_extraction"
CFIC_LENGTHS = ("longbench_qasper", "longbench_musique")  # CFIC, Tables 6 and 8
RETRO = {
    "no_retrieval": ["--schedule", "no_retrieval"],
    "retro": ["--schedule", "retro"],
    "s1": ["--schedule", "piperag", "--interval", "64"],  # pipelined
    "s2": ["--schedule", "piperag", "--interval", "16"],  # and at a shorter interval
    "s3": [
        "--schedule",
        "piperag",
        "--interval",
        "16",
        "--nprobe",
        "hide",
    ],  # and searching as long as is hidden
}


@dataclass(frozen=True)
class Step:
    """One command; where it cannot run, the reason in its place."""

    part: str
    name: str
    command: tuple[str, ...] = ()
    lacks: str | None = None
    timed: bool = False  # its times are put over what the machine could do


# --- packing ---


def pack(out: Path) -> int:
    """Write the archive of what git tracks; returns its bytes.

    Raises:
        SystemExit: it is larger than the machines take.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    listed = _git("ls-files", "-z", *PACKED).split("\0")
    kit = {
        "commit": _git("rev-parse", "HEAD").strip(),
        "changed": bool(_git("status", "--porcelain").strip()),
    }
    with tarfile.open(out, "w:gz") as archive:
        for name in filter(None, listed):
            if (ROOT / name).is_file():  # not one that was removed since
                archive.add(ROOT / name, f"gpu-kit/{name}")
        content = json.dumps(kit).encode()
        entry = tarfile.TarInfo(f"gpu-kit/{KIT}")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    size = out.stat().st_size
    if size > MOST_BYTES:
        sys.exit(f"{out}: {size} bytes; the most is {MOST_BYTES}")
    return size


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


# --- running ---


def steps(args: argparse.Namespace) -> Iterator[Step]:
    """All steps, in the order of what is wanted most."""
    yield _tests()
    yield _machine(args)
    models = args.models.split(",") if args.models else MODELS
    for model in models:
        yield _timed("latency", model, "naive,superposition", args.lengths or "paper", args)
    yield from (_retro(name, options, args) for name, options in RETRO.items())
    for lengths in [args.cfic_lengths] if args.cfic_lengths else CFIC_LENGTHS:
        yield from _cfic(models[0] if args.models else CFIC_MODEL, lengths, args)


def _tests() -> Step:
    if importlib.util.find_spec("pytest") is None:
        return Step("tests", "tests", lacks="pytest is not installed")
    files = [
        path
        for path in sorted((ROOT / "tests/unit").rglob("test_*.py"))
        if NEEDS_CUDA in path.read_text("utf-8")
    ]
    return Step(
        "tests",
        "tests",
        (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, files)),
    )


def _machine(args: argparse.Namespace) -> Step:
    measured = ["--device", args.device, *_load(args), "--out", str(_rates(args))]
    return Step(MACHINE, MACHINE, (*_ragauge("doctor"), "machine", *measured))


def _timed(part: str, model: str, methods: str, lengths: str, args: argparse.Namespace) -> Step:
    """The latency protocol with random weights at a model's shape."""
    asked = ["--methods", methods, "--dataset", lengths, "--random-weights", "--model", model]
    return _time(part, f"{part}_{Path(model).name}_{Path(lengths).stem}", asked, args)


def _cfic(model: str, lengths: str, args: argparse.Namespace) -> Iterator[Step]:
    """Evidence found and written in long articles of random words; the weights are made first."""
    name = f"cfic_{Path(model).name}_{Path(lengths).stem}"
    folder = args.out / f"material_{Path(model).name}"
    material = (
        sys.executable,
        str(ROOT / "benchmarks/_gpu_kit_material.py"),
        model,
        lengths,
        str(folder),
    )
    yield Step("cfic", f"{name}_material", material)
    data = ["--dataset", "longbench_qasper", "--data", str(folder / "questions.jsonl")]
    asked = ["--methods", CFIC_METHODS, *data, "--model", f"path:{folder / 'model'}"]
    yield _time("cfic", name, asked, args)


def _time(part: str, name: str, asked: Sequence[str], args: argparse.Namespace) -> Step:
    engine = ["--device", args.device, "--dtype", args.dtype, "--trials", str(args.trials)]
    out = ["--out", str(args.out / f"{name}.json")]
    return Step(
        part,
        name,
        (*_ragauge("time"), *asked, *engine, *(_load(args) or ["--no-allow-load"]), *out),
        timed=True,
    )


def _rates(args: argparse.Namespace) -> Path:
    return args.out / f"{MACHINE}.json"


def _load(args: argparse.Namespace) -> list[str]:
    return ["--allow-load"] if args.allow_load else []


def _retro(name: str, options: Sequence[str], args: argparse.Namespace) -> Step:
    """RETRO's sizes beside a server of an index on the CPU."""
    step = f"retro_{name}"
    lacking = [
        module
        for module in ("faiss", "grpc", "onnxruntime")
        if importlib.util.find_spec(module) is None
    ]
    if args.database is None or lacking:
        what = "; ".join(
            [f"{module} is not installed" for module in lacking]
            + ["no --database"] * (not args.database)
        )
        return Step("retro", step, lacks=what)
    asked = [
        "--mode",
        "retro",
        "--task",
        "generate",
        "--limit",
        "1",
        "--trials",
        "5",
        "--database",
        str(args.database),
    ]
    index = [] if name == "no_retrieval" else ["--index", args.index]
    engine = ["--device", args.device, "--out", str(args.out / f"{step}.jsonl")]
    return Step("retro", step, (*_ragauge("pipeline"), *options, *asked, *index, *engine))


def _ragauge(verb: str) -> tuple[str, ...]:
    return sys.executable, "-m", "ragauge.cli", verb


def run(step: Step, limit_s: float, more: Sequence[str] = ()) -> dict[str, Any]:
    """How a step ended, and what it was; its command takes `more` options."""
    command = (*step.command, *more)
    record: dict[str, Any] = {"part": step.part, "command": command[1:]}
    if step.lacks:
        return {**record, "status": "not run", "reason": step.lacks}
    paths = [
        str(ROOT / "src"),
        str(ROOT / "tests"),
        str(ROOT / "tests" / "support"),
        str(ROOT / "benchmarks"),
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    started = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, timeout=limit_s, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        code = done.returncode
        output = done.stdout
    except subprocess.TimeoutExpired:
        code = None
        output = f"ended after {limit_s:g} s"
    status = "ok" if code == 0 else "failed"
    return {
        **record,
        "status": status,
        "exit_code": code,
        "seconds": time.monotonic() - started,
        "output": output[-TAIL:],
    }


def over_roofline(path: Path) -> dict[str, dict[str, float]]:
    """By variant and stage of a timed result: median seconds over the roofline's. The documents are
    those that were read before the question, where the variant gains from it.
    """
    states = json.loads(path.read_text(encoding="utf-8"))["states"]
    return {
        variant: {
            stage: part["seconds"] / part["roofline_s"]
            for stage, part in parts.items()
            if part.get("roofline_s")
        }
        for variant, parts in states["set"]["stages"].items()
    }


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run the steps that are asked for; the summary on disk is whole after each of them."""
    args.out.mkdir(parents=True, exist_ok=True)
    kit = ROOT / KIT
    summary: dict[str, Any] = {
        "kit": json.loads(kit.read_text()) if kit.is_file() else None,
        "steps": {},
    }
    for step in _chosen(args):
        measured = _rates(args) if summary["steps"].get(MACHINE, {}).get("status") == "ok" else None
        rates = args.machine or measured  # of neither: the step measures them itself
        record = run(step, args.limit, ("--machine", str(rates)) if step.timed and rates else ())
        result = args.out / f"{step.name}.json"
        if step.timed and record["status"] == "ok" and result.is_file():
            record["over_roofline"] = over_roofline(result)
            record |= (
                {}
                if record["over_roofline"]
                else {"status": "failed", "reason": "nothing was timed"}
            )
        summary["steps"][step.name] = record
        (args.out / "summary.json").write_text(
            json.dumps(summary, indent=2) + "\n", encoding="utf-8"
        )
        print(
            f"{step.name:44} {record['status']}  {record.get('reason') or ''}".rstrip(), flush=True
        )
    return summary


def _chosen(args: argparse.Namespace) -> list[Step]:
    """The steps that are asked for, and what they need to have been measured before."""
    every = list(steps(args))
    chosen = [
        step for step in every if args.part in (None, step.part) and args.step in (None, step.name)
    ]
    timed = args.machine is None and any(step.timed for step in chosen)
    return [step for step in every if step in chosen or (timed and step.part == MACHINE)]


def main() -> None:
    args = _arguments()
    if args.verb == "pack":
        print(f"{args.out}: {pack(args.out) / 2**20:.1f} MiB")
        return
    args.out = args.out.absolute()
    if args.machine and not args.machine.is_file():
        sys.exit(f"--machine: {args.machine}: no such file")
    args.machine = args.machine and args.machine.absolute()
    summary = measure(args)
    if not summary["steps"]:
        sys.exit(
            "no such part or step; known: " + ", ".join(f"{s.part}: {s.name}" for s in steps(args))
        )
    sys.exit(int(any(step["status"] == "failed" for step in summary["steps"].values())))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("pack").add_argument("out", type=Path, metavar="FILE.tar.gz")
    runs = verbs.add_parser("run")
    add = runs.add_argument
    add("out", type=Path, metavar="FOLDER")
    add("--part", help="tests, machine, latency, retro or cfic; default: all")
    add("--step", help="one step by its name; default: all")
    add("--device", default="cuda", help="cpu shows that the kit runs")
    add("--dtype", default="bfloat16")
    add("--trials", type=int, default=30)
    add("--limit", type=float, default=STEP_S, help="seconds of a step")
    add("--models", metavar="NAME,...", help="shapes or folders; default: the papers'")
    add("--lengths", help="token counts of the latency protocol; default: paper")
    add("--cfic-lengths", help="token counts of CFIC's; default: Qasper's and MuSiQue's")
    add(
        "--database",
        type=Path,
        metavar="FOLDER",
        help="a chunk database for RETRO's sizes, in the tokens of T5",
    )
    add("--index", default="ivf", metavar="LABEL", help="its index")
    add(
        "--machine",
        type=Path,
        metavar="FILE.json",
        help="rates of `ragauge doctor machine`; default: measured first",
    )
    add("--allow-load", action="store_true", help="keep times though other processes ran")
    return parser.parse_args()


if __name__ == "__main__":
    main()
