"""The workflow in a folder of its own, and how tests start it there."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from json_lines import read_lines

INSTALLED = str(Path(sys.executable).parent)
SNAKEMAKE = shutil.which("snakemake", path=f"{INSTALLED}{os.pathsep}{os.environ.get('PATH', '')}")
METHODS = {
    "naive": {},
    "bm25_k1": {"method": "bm25", "top_k": 1},
    "superposition_k1": {"method": "superposition", "top_k": 1},
}
EXPERIMENT = """\
run: {name}
models: {{tiny: {{source: "path:{folder}/model"}}}}
datasets: {{nq_open: {{data: {data}}}}}
methods: {methods}
generation: {{max_new_tokens: 16}}
items: [frontier]
"""
CLOCKS = ("offline_s", "online_s", "first_token_s")
needs_snakemake = pytest.mark.skipif(SNAKEMAKE is None, reason="snakemake is not installed")


@dataclass(frozen=True)
class Planned:
    """What `snakemake -n` says that it would do."""

    output: str

    @property
    def counts(self):
        """The number of jobs of each rule."""
        table = self.output.partition("\ntotal ")[0].rpartition("job  ")[2]
        return {
            name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)
        }

    @property
    def resources(self):
        """The rule and the resources of each job."""
        jobs = re.findall(
            r"^(?:local)?rule (\w+):\n(?: .*\n)*? +resources: (.*)$", self.output, re.MULTILINE
        )
        return [
            (rule, dict(part.split("=", 1) for part in line.split(", "))) for rule, line in jobs
        ]


def copy_workflow(root, folder):
    """The workflow's files in `folder`, where nothing has been run."""
    for name in ("Snakefile", "config.yaml", "configs", "workflow", "profiles", "envs"):
        source = root / name
        shutil.copytree(source, folder / name) if source.is_dir() else shutil.copy(
            source, folder / name
        )
    return folder


def snakemake(folder, *arguments, timeout_s=300, commands=None):
    """A run of the workflow, waited for; Snakemake and its jobs are the installed commands or
    preloaded ones.
    """
    program = str(commands.folder / "snakemake") if commands else SNAKEMAKE
    process = start(folder, *arguments, commands=commands, program=program)
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
    finally:
        kill(process)
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def run(folder, *arguments, commands=None):
    """Run the workflow, which must succeed, and return what it printed."""
    done = snakemake(folder, *arguments, commands=commands)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def start(
    folder,
    *arguments,
    commands=None,
    program=SNAKEMAKE,
):
    """A run of the workflow as a process group of its own; its jobs are the installed commands or
    preloaded ones.
    """
    assert program is not None
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    path = f"{INSTALLED}{os.pathsep}{os.environ.get('PATH', '')}"  # jobs call `ragauge` by its name
    env = (
        commands.environment() if commands else {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    )
    return subprocess.Popen(
        [program, *arguments], cwd=folder, env=env, start_new_session=True, **pipes
    )


def kill(process):
    """SIGKILL a run with all of its jobs, if it has not ended."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with process:  # waits for it and closes its pipes
        pass


def configure(folder, methods, data="few.jsonl", name="tiny"):
    """An experiment of these method variants."""
    path = folder / f"{name}.yaml"
    path.write_text(
        EXPERIMENT.format(name=name, folder=folder, data=data, methods=json.dumps(methods))
    )
    return path


def records(path):
    """The records of a file without what the clock said."""
    lines = read_lines(path)
    for record in lines:
        for clock in CLOCKS:
            del record[clock]
        for call in record["trace"]:
            for clock in ("seconds", "loading_s", "computed"):
                call.pop(clock, None)
    return lines
