"""Pack what a machine with a GPU needs to measure the papers' sizes, and measure there.

    python benchmarks/gpu_kit.py pack dist/gpu-kit.tar.gz          # or: make gpu-kit
    tar xzf gpu-kit.tar.gz && cd gpu-kit && python benchmarks/gpu_kit.py run OUT [--part NAME] [--step NAME]
    python benchmarks/gpu_kit.py tables OUT reports/gpu-shapes     # here, from what came back

The machine needs torch, transformers and the light packages of pyproject.toml: no hub, no
Snakemake, no faiss. Weights are random and made there. `gpu_kit.yaml` names the steps, each a
command of at most ten minutes that writes OUT/<step>; a step that fails or is killed keeps no other
from running, and the next start runs those that have not succeeded. The machine's rates are
measured first. OUT/summary.json has, of each step, how it ended, and of each stage that was timed
its seconds over its roofline. `run OUT --rehearse --device cpu` runs the same commands at tiny
sizes. `tables` puts what was measured beside the published numbers.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
KIT = "kit.json"  # of which commit an archive is
PACKED = ("src", "benchmarks", "configs", "tests", "pyproject.toml", "LICENSE", "README.md")
MOST_BYTES = 64 << 20
STEP_S = 590.0
TAIL = 2000  # characters of a failed step's output
UNCACHED = ("naive", "attention_sort")  # by the papers, whose prompts have no cached prefix
CACHED = "before the question the method has read what it can use, the full prompt nothing"
LATER = "no time was left; the next start runs it"
PROGRAMS = {
    "ragauge": (sys.executable, "-m", "ragauge.cli"),
    "python": (sys.executable,),
}


@dataclass(frozen=True)
class Step:
    """One command; where it cannot run, the reason in its place."""

    part: str
    name: str
    command: tuple[str, ...]
    lacks: str = ""
    before: tuple[str, ...] = ()  # parts that need it


def read_kit() -> dict[str, Any]:
    """Return what gpu_kit.yaml states."""
    text = (ROOT / "benchmarks/gpu_kit.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


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
    kit = read_kit()
    names = vars(args) | kit["sizes"]["rehearsed" if args.rehearse else "full"]["options"]
    for entry in kit["steps"]:
        missing = [name for name in entry.get("needs", ()) if not importlib.util.find_spec(name)]
        for each in entry.get("each", [""]):
            name = entry["name"].format(each=each)
            text = " ".join((entry["run"], entry.get("and", "")))
            program, *words = text.format(**names, each=each, name=name).split()
            yield Step(
                entry["part"],
                name,
                (*PROGRAMS[program], *words),
                "; ".join(f"{module} is not installed" for module in missing),
                tuple(entry.get("before", ())),
            )


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run the steps that are asked for and have not succeeded before; the summary on disk is whole
    after each of them.
    """
    args.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    file = args.out / "summary.json"
    kit = json.loads((ROOT / KIT).read_text()) if (ROOT / KIT).is_file() else None
    summary: dict[str, Any] = {"kit": kit, "steps": {}}
    if file.is_file():
        before = json.loads(file.read_text(encoding="utf-8"))
        summary["steps"] = before["steps"] if before["kit"] == kit else {}
    for step in _chosen(args):
        known = summary["steps"].get(step.name, {})
        if known.get("status") == "ok" and known["command"] == list(step.command[1:]):
            continue
        left = args.seconds - (time.monotonic() - started)
        record = run(step, min(args.limit, left), args.out) if left > 0 else _left_out(step, LATER)
        summary["steps"][step.name] = record
        unfinished = file.with_suffix(".part")
        unfinished.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        unfinished.replace(file)
        print(f"{step.name:44} {record['status']}  {record['reason']}", flush=True)
    return summary


def _chosen(args: argparse.Namespace) -> list[Step]:
    """The steps that are asked for, and what they need to have been made before."""
    every = list(steps(args))
    asked_for = [
        step for step in every if args.part in (None, step.part) and args.step in (None, step.name)
    ]
    parts = {step.part for step in asked_for}
    return [step for step in every if step in asked_for or parts & set(step.before)]


def run(step: Step, limit_s: float, out: Path) -> dict[str, Any]:
    """How a step ended, and what it was."""
    if step.lacks:
        return _left_out(step, step.lacks)
    paths = [str(ROOT / part) for part in ("src", "tests", "tests/support", "benchmarks")]
    paths.append(os.environ.get("PYTHONPATH", ""))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"}
    started = time.monotonic()
    try:
        done = subprocess.run(
            step.command, cwd=ROOT, env=environment, timeout=limit_s, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        code = done.returncode
        output = done.stdout
    except subprocess.TimeoutExpired:
        code = None
        output = f"ended after {limit_s:g} s"
    record = {
        **_left_out(step),
        "status": "ok" if code == 0 else "failed",
        "exit_code": code,
        "seconds": time.monotonic() - started,
        "output": output[-TAIL:],
    }
    result = out / f"{step.name}.json"
    if code == 0 and step.command[-1] == "--json":  # warnings may follow
        last = [line for line in output.splitlines() if line.startswith("{")][-1]
        result.write_text(last, encoding="utf-8")
    if code == 0 and "time" in step.command:
        record["over_roofline"] = over_roofline(result)
        if not record["over_roofline"]:
            record |= {"status": "failed", "reason": "nothing was timed"}
    return record


def _left_out(step: Step, reason: str = "") -> dict[str, Any]:
    """The record of a step that did not run."""
    return {
        "part": step.part,
        "command": list(step.command[1:]),
        "status": "not run",
        "reason": reason,
    }


def over_roofline(path: Path) -> dict[str, dict[str, float]]:
    """By variant and stage of a timed result: median seconds over the roofline's. The documents are
    those that were read before the question, where the variant gains from it.
    """
    result = json.loads(path.read_text(encoding="utf-8"))
    return {
        variant: {
            stage: part["seconds"] / part["roofline_s"]
            for stage, part in parts.items()
            if part.get("roofline_s")
        }
        for timed in result["states"].values()  # the last one's count
        for variant, parts in timed["stages"].items()
    }


# --- tables ---


def write_tables(out: Path, folder: Path) -> list[Path]:
    """Write a table for each published one of which a step in `out` measured numbers."""
    from ragauge.results.cells import Cell, frame
    from ragauge.results.publications import ON_SHAPE, read_csv

    gpu = json.loads((out / "machine.json").read_text(encoding="utf-8"))["processor"]
    written = []
    for name, entries in read_kit()["tables"].items():
        cells = [
            Cell(row, entry["column"], _measured(entry, row, out), float(row[entry["column"]]))
            for entry in entries["cells"]
            for row in read_csv(name)
            if entry.get("where", {}).items() <= row.items() and row[entry["column"]]
        ]
        measured = [cell for cell in cells if cell.measure]
        if measured:
            table = frame(entries["keys"], measured)
            table["status"] = f"{ON_SHAPE}, {gpu} (paper: {entries['paper']})"
            folder.mkdir(parents=True, exist_ok=True)
            table.to_csv(folder / f"{name}.csv", index=False)
            written.append(folder / f"{name}.csv")
    return written


def _measured(entry: Mapping[str, str], row: Mapping[str, str], out: Path) -> Any:
    """What the step of a published row measured (a `Measure`), or why nothing that counts; None
    where the step did not run.
    """
    from ragauge.results.cells import Measure
    from ragauge.results.timing import quartiles, ratio

    kind = entry["measure"]
    ending = "jsonl" if kind == "trials" else "json"
    file = out / f"{entry['step'].format(**row)}.{ending}"
    if not file.is_file():
        return None
    text = file.read_text(encoding="utf-8")
    if kind == "trials":
        return quartiles(json.loads(text.partition("\n")[0])["trials_s"])
    times = json.loads(text)
    seconds = _seconds(times, entry["variant"].format(**row), kind)
    slow = _seconds(times, "naive", kind)
    if not seconds or (kind == "speedup" and not slow):
        return Measure(reason=times["refused"] or "no undisturbed trial")
    if kind == "speedup":
        return ratio(slow, seconds, 0, len(seconds), note=CACHED)
    return quartiles([1000 * s for s in seconds])


def _seconds(times: Mapping[str, Any], variant: str, kind: str) -> list[float]:
    """The trials of a variant in the paper's state: what it can use is cached, and nothing of the
    full prompt is.
    """
    rows = times["evidence_batches"]["rows"] if kind == "batch" else times["rows"]
    busy = times["load"]["busy"]
    trials = [row for row in rows if row["variant"] == variant and (busy or not row["disturbed"])]
    states = ("nothing",) if variant in UNCACHED else ("set", "documents", "nothing")
    found = [[row for row in trials if row.get("state", of) == of] for of in states]
    counted = [] if times["refused"] else next(filter(None, found), [])
    if kind in ("speedup", "batch"):
        return [row["total_s" if kind == "speedup" else "evidence_s"] for row in counted]
    if kind == "evidence":  # all before the answer's prompt is read
        return [row["first_token_s"] - row["stages"]["prompt"] for row in counted]
    return [row["stages"].get(kind, 0.0) for row in counted]


def main() -> None:
    args = _arguments()
    if args.verb == "pack":
        print(f"{args.out}: {pack(args.out) / 2**20:.1f} MiB")
        return
    args.out = args.out.absolute()
    if args.verb == "tables":
        sys.path.insert(0, str(ROOT / "src"))
        print("\n".join(map(str, write_tables(args.out, args.folder))) or "nothing was measured")
        return
    if not _chosen(args):
        known = ", ".join(f"{step.part}: {step.name}" for step in steps(args))
        sys.exit(f"no such part or step; known: {known}")
    summary = measure(args)
    sys.exit(int(any(step["status"] == "failed" for step in summary["steps"].values())))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("pack").add_argument("out", type=Path, metavar="FILE.tar.gz")
    tables = verbs.add_parser("tables")
    tables.add_argument("out", type=Path, metavar="OUT")
    tables.add_argument("folder", type=Path, metavar="FOLDER")
    runs = verbs.add_parser("run")
    add = runs.add_argument
    add("out", type=Path, metavar="FOLDER")
    add("--part", help="one part of gpu_kit.yaml; default: all")
    add("--step", help="one step by its name; default: all")
    add("--device", default="cuda", help="cpu shows that the kit runs")
    add("--dtype", default="bfloat16")
    add("--trials", type=int, default=30)
    add("--limit", type=float, default=STEP_S, help="seconds of a step")
    add("--seconds", type=float, default=float("inf"), help="of all; a later start goes on")
    tiny = {"action": "store_const", "const": "--rehearse", "default": ""}
    add("--rehearse", help="the same commands at tiny sizes", **tiny)
    allowed = {"action": "store_const", "const": "--allow-load", "default": ""}
    add("--allow-load", dest="load", help="keep times though other processes ran", **allowed)
    return parser.parse_args()


if __name__ == "__main__":
    main()
