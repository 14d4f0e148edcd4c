"""Time `ragauge --help`, one question's answer and, on request, whole runs.

    python benchmarks/startup.py [--trials 3] [--smoke] [--default] [--full] [--tests] [--json]

Whole runs are made in a folder where nothing has been run; what assets were downloaded before is
used. Run it alone on the machine: a run of the workflow takes all cores. Their CPU seconds, which
are printed too, say more on a busy one. What a run says at its start about its time is compared
with the time that it took.
"""

import math
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

from _common import finish, load_line, parse_options
from ragauge.config import run_progress
from ragauge.cost.machine import competing_load, cpu_model
from targets import Verdicts

ROOT = Path(__file__).resolve().parent.parent
WORKFLOW = ("Snakefile", "config.yaml", "configs", "workflow", "profiles", "envs")
WATCHED_S = 3
INSTALLED = Path(sys.executable).parent
CONFIGURATIONS = {
    "smoke": ROOT / "configs" / "ci" / "smoke.yaml",
    "default": ROOT / "config.yaml",
    "full": ROOT / "configs" / "full.yaml",
}
_BEGUN = re.compile(r"^\[(.+)\]\n(?:local)?rule (\w+):\n(?: .*\n)*? +jobid: (\d+)$", re.MULTILINE)
_ESTIMATED = re.compile(r"^ragauge: .*; about ([\d.]+) (s|min|h|days) left$", re.MULTILINE)
UNITS = {"s": 1, "min": 60, "h": 3600, "days": 86400}
_ENDED = re.compile(r"^\[(.+)\]\nFinished jobid: (\d+) ", re.MULTILINE)


def main() -> None:
    args = parse_options(
        __doc__,
        trials=(3, "of each command but whole runs"),
        smoke=(False, "run the smoke experiment from nothing"),
        default=(False, "run the default experiment from nothing"),
        full=(False, "run all items on a small model from nothing"),
        tests=(False, "run the tests"),
    )
    print(f"{cpu_model()}, {os.cpu_count()} cores")
    verdicts = Verdicts()
    rules = {}
    cpu = {}
    # before anything is run: nobody knows whose jobs are that outlive their parents
    with competing_load() as load:
        time.sleep(WATCHED_S)
    print(load_line(load))
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        verdicts.check(
            "help_s", min(seconds(["ragauge", "--help"], folder) for _ in range(args.trials))
        )
        verdicts.check("one_question_s", one_question(folder, args.trials))
        repeated = []
        for name in CONFIGURATIONS:
            if getattr(args, name):
                began = cpu_s()
                whole, again, rules[name], estimated = workflow(name, folder / name, args.trials)
                cpu[name] = cpu_s() - began
                verdicts.check(f"{name}_s", whole)
                verdicts.check("estimate", abs(estimated / whole - 1), of=name)
                repeated.append(again)
            else:
                verdicts.skip(f"{name}_s", f"needs --{name}")
        if repeated:
            verdicts.check("second_make_s", max(repeated))
        else:
            verdicts.skip("second_make_s", "needs --smoke or --default")
        if args.tests:
            began = cpu_s()
            verdicts.check("tests_s", seconds(["make", "test"], ROOT))
            cpu["tests"] = cpu_s() - began
        else:
            verdicts.skip("tests_s", "needs --tests")
    for name, value in cpu.items():
        print(f"{name}: {value:.0f} CPU seconds")
    finish(
        {"job_seconds": rules, "cpu_seconds": cpu, "load_share": load.share}, verdicts, args.json
    )


def one_question(folder: Path, trials: int) -> float:
    """The least seconds in which a process answers one question of `wiki_single`."""
    questions = folder / "wiki_single.jsonl"
    seconds(["ragauge", "fetch", "--dataset", "wiki_single", "--out", str(questions)], folder)
    question = [
        "--method",
        "superposition",
        "--dataset",
        "wiki_single",
        "--examples",
        str(questions),
        "--limit",
        "1",
    ]
    command = ["ragauge", "run", *question, "--model", "smollm2-135m-instruct"]
    return min(
        seconds([*command, "--out", f"answer_{trial}.jsonl"], folder) for trial in range(trials)
    )


def workflow(name: str, folder: Path, trials: int) -> tuple[float, float, dict[str, float], float]:
    """Run a configuration, and again with nothing to do.

    Returns:
        Seconds of the run, of the second run, of each rule's jobs, and as the run estimated.
    """
    folder.mkdir()
    for part in WORKFLOW:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, folder / part)
    command = ["snakemake", "--cores", "all", "--configfile", str(CONFIGURATIONS[name])]
    log = folder / "workflow.log"
    whole = seconds(command, folder, log)
    spent = job_seconds(log.read_text(encoding="utf-8"))
    print(
        f"{name}: {sum(spent.values()):.0f} s of jobs; "
        + ", ".join(f"{r} {s:.0f}" for r, s in [*spent.items()][:12])
    )
    estimated = estimated_seconds(log.read_text(encoding="utf-8"))
    return whole, min(seconds(command, folder, log) for _ in range(trials)), spent, estimated


def estimated_seconds(log: str) -> float:
    """Read a run's time from its first line of progress; not a number where it has none."""
    said = _ESTIMATED.search(log)
    return run_progress.PAUSE_S + float(said[1]) * UNITS[said[2]] if said else math.nan


def cpu_s() -> float:
    """CPU seconds of all ended children."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def job_seconds(log: str) -> dict[str, float]:
    """The seconds that the jobs of each rule took, most first, from what Snakemake said."""
    begun = {job: (rule, _time(at)) for at, rule, job in _BEGUN.findall(log)}
    spent: Counter[str] = Counter()
    for at, job in _ENDED.findall(log):
        if job in begun:
            rule, started = begun[job]
            spent[rule] += int((_time(at) - started).total_seconds())
    return dict(spent.most_common())


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%a %b %d %H:%M:%S %Y")


def seconds(command: list[str], folder: Path, log: Path | None = None) -> float:
    """Until a command of this environment has ended, which it must do well."""
    environment = {**os.environ, "PATH": f"{INSTALLED}{os.pathsep}{os.environ.get('PATH', '')}"}
    with open(log or os.devnull, "w") as out:
        started = time.perf_counter()
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=out, stderr=out, check=False
        )
        taken = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}")
    return taken


if __name__ == "__main__":
    main()
