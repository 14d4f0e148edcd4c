"""SIGKILL of a job alone and of the coordinating snakemake alone, and two runs in one folder:
nothing is lost.
"""

import os
import signal
import time
from contextlib import contextmanager

import pytest

import workflow_folder
from ragauge.cli._main import main
from ragauge.testing import write_checkpoint, write_questions
from workflow_folder import (
    METHODS,
    configure,
    copy_workflow,
    kill,
    needs_snakemake,
    records,
    snakemake,
    start,
)

pytestmark = [needs_snakemake, pytest.mark.slow]

QUESTIONS = 40
VARIANT = "superposition_k1"
PATIENCE_S = 120


@pytest.fixture(scope="module")
def folder(root, tmp_path_factory):
    made = copy_workflow(root, tmp_path_factory.mktemp("killed"))
    write_checkpoint(made / "model")
    write_questions(made / "many.jsonl", QUESTIONS)
    return made


@pytest.fixture(scope="module")
def undisturbed(folder):
    out = folder / "undisturbed.jsonl"
    source = f"--dataset nq_open --data {folder / 'many.jsonl'} --model {folder / 'model'}"
    options = f"--template chat --threads 1 --max-new-tokens 16 --out {out}"
    assert main(f"run --method superposition {source} {options}".split()) == 0
    return records(out)


class Run:
    """The answers of one variant as a workflow of its own name."""

    def __init__(self, folder, name, commands):
        self.folder = folder
        self.commands = commands
        self.out = folder / "results" / name / "answers" / "nq_open" / "tiny" / f"{VARIANT}.jsonl"
        self.partial = self.out.with_name(f"{self.out.name}.partial")
        settings = configure(folder, {VARIANT: METHODS[VARIANT]}, "many.jsonl", name)
        target = str(self.out.relative_to(folder))
        self.arguments = [target, "--cores", "1", "--configfile", settings.name]

    @contextmanager
    def begun(self):
        """A run and the process that answers in it, once it has some answers."""
        process = start(self.folder, *self.arguments, commands=self.commands)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not (self.partial.exists() and self.partial.read_bytes().count(b'\n{"key"') > 2):
                assert process.poll() is None, "it ended before it was killed"
                assert time.monotonic() < deadline, "no answer yet"
                time.sleep(0.005)
            [answering] = self.commands.working(self.folder)
            yield process, answering
        finally:
            kill(process)

    def again(self):
        workflow_folder.run(self.folder, *self.arguments, commands=self.commands)

    def refused(self, reason):
        """A run beside another one ends, and says why."""
        done = snakemake(self.folder, *self.arguments, commands=self.commands)
        assert done.returncode == 1
        assert reason in done.stdout + done.stderr


def goes_on(run, undisturbed):
    """The next run asks what is left and nothing else."""
    assert not run.out.exists()
    *lines, _torn = run.partial.read_text().split("\n")
    run.again()
    sealed = [line for line in lines if line.startswith('{"key"')]
    answered = [line.partition(',"seal":')[0] + "}" for line in sealed]
    assert run.out.read_text().splitlines()[: len(answered)] == answered  # their clocks, too
    assert records(run.out) == undisturbed


def test_a_killed_job_fails_its_run_and_another_run_is_refused_meanwhile(
    folder, undisturbed, preloaded
):
    run = Run(folder, "job", preloaded)
    with run.begun() as (process, job):
        job.suspend()  # lest the first run ends while the second starts
        run.refused("another run of this workflow is active in this folder")
        job.kill()
        printed = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == 1
    assert "answers failed: logs/job/" in printed.rpartition("Error in rule answers")[2]
    goes_on(run, undisturbed)


def test_a_killed_coordinator(folder, undisturbed, preloaded):
    """Its job answers on; a run beside it is refused the file, and one after it finds the answers."""
    run = Run(folder, "coordinator", preloaded)
    with run.begun() as (process, job):
        os.kill(process.pid, signal.SIGKILL)
        job.suspend()
        run.refused("another process is writing it")
        job.resume()
        job.wait(PATIENCE_S)
    run.again()
    assert records(run.out) == undisturbed
