"""The workflow on a real Slurm through profiles/slurm: what jobs ask for, that runs recover, and
their results.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import served_workflow
import workflow_folder
from ragauge.testing import write_checkpoint, write_questions
from workflow_folder import records

pytest.importorskip("snakemake_executor_plugin_slurm", reason="needs the extra 'cluster'")
pytestmark = [workflow_folder.needs_snakemake, pytest.mark.slow, pytest.mark.cluster]

WAIT_S = 1800  # on a machine that others use, too
PROFILE = ("--profile", "profiles/slurm")
FORMAT = (
    "JobID:|,State:|,Partition:|,NumCPUs:|,MinMemory:|,TimeLimit:|,OverSubscribe:|,Feature:|,tres-per-job:|,"
    "WorkDir:|,Comment:|"
)
EXPERIMENT = """\
run: {name}
models:
  tiny:
    source: "path:{folder}/model"
    resources: {{gpu: 1, mem_mb: 1500, runtime: 90}}
datasets: {{nq_open: {{data: {data}}}}}
methods: {{superposition_k1: {{method: superposition, top_k: 1}}}}
generation: {{max_new_tokens: 16}}
items: [superposition_table_1]
"""
LOCAL_RULES = {"asset", "predictions", "provenance", "report_page", "superposition_table_1"}


@pytest.fixture(scope="module")
def folder(root, cluster, tmp_path_factory):
    """The workflow with a tiny model, its profile filled in for a cluster of several partitions and
    kinds of nodes.
    """
    made = fill_in(workflow_folder.copy_workflow(root, tmp_path_factory.mktemp("run")))
    write_checkpoint(made / "model")
    write_questions(made / "few.jsonl", count=3)
    write_questions(made / "many.jsonl", count=300)
    return made


def fill_in(folder):
    profile = folder / "profiles" / "slurm" / "config.yaml"
    filled = yaml.safe_load(profile.read_text(encoding="utf-8"))
    filled["default-resources"] |= {"slurm_partition": "spare", "constraint": "tested"}
    filled["set-resources"] = {"data": {"slurm_partition": "main"}}
    filled |= {"slurm-init-seconds-before-status-checks": 1, "latency-wait": 10}
    profile.write_text(yaml.safe_dump(filled), encoding="utf-8")
    return folder


def configure(folder, name, data, **changes):
    """An experiment of one method; the options that name it."""
    experiment = yaml.safe_load(EXPERIMENT.format(name=name, folder=folder, data=data))
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(experiment | changes), encoding="utf-8")
    return "--configfile", path.name


def answers(folder, name):
    return folder / "results" / name / "answers" / "nq_open" / "tiny" / "superposition_k1.jsonl"


def of_answers(folder, state=""):
    return [job for job in jobs(folder) if job.rule == "answers" and job.state.startswith(state)]


@pytest.fixture(scope="module")
def undisturbed(folder):
    """The records over the many questions of a local run that nobody disturbed."""
    out = answers(folder, "local")
    run(
        folder,
        str(out.relative_to(folder)),
        "--cores",
        "1",
        *configure(folder, "local", "many.jsonl"),
    )
    return records(out)


def test_jobs_ask_slurm_for_what_their_rules_say_and_the_profile_for_where(folder):
    timed = {"methods": ["superposition_k1"], "dataset": "nq_open", "trials": 1, "warmup": 1}
    printed = run(folder, *PROFILE, *configure(folder, "timed", "few.jsonl", latency=timed))
    submitted = {job.rule: job for job in jobs(folder)}
    assert set(submitted) == {"data", "answers", "machine", "latency"}
    assert all(job.state == "COMPLETED" for job in submitted.values())
    assert {rule: (job.memory_mb, job.minutes, job.gpus) for rule, job in submitted.items()} == {
        "data": (4000, 60, 0),
        "answers": (1500, 90, 1),
        "machine": (4000, 10, 0),
        "latency": (1500, 90, 1),
    }
    assert {rule for rule, job in submitted.items() if job.alone} == {"machine", "latency"}
    assert {job.partition for rule, job in submitted.items() if rule != "data"} == {"spare"}
    assert submitted["data"].partition == "main"
    assert {job.feature for job in submitted.values()} == {"tested"}
    assert all(f"localrule {rule}:" in printed for rule in LOCAL_RULES)
    assert (folder / "reports" / "timed" / "index.html").is_file()


def test_a_run_with_nothing_to_do_submits_nothing(folder):
    timed = {"methods": ["superposition_k1"], "dataset": "nq_open", "trials": 1, "warmup": 1}
    before = jobs(folder)
    assert "Nothing to be done" in run(
        folder, *PROFILE, *configure(folder, "timed", "few.jsonl", latency=timed)
    )
    assert jobs(folder) == before


def test_a_job_that_is_cancelled_is_tried_again_with_more_memory_and_goes_on(folder, undisturbed):
    out = answers(folder, "cancelled")
    experiment = configure(folder, "cancelled", "many.jsonl")
    earlier = len(of_answers(folder))
    process = workflow_folder.start(folder, str(out.relative_to(folder)), *PROFILE, *experiment)
    try:
        kept = first_records(process, out)
        subprocess.run(["scancel", of_answers(folder, "RUNNING")[-1].number], check=True)
        stdout, stderr = process.communicate(timeout=WAIT_S)
    finally:
        workflow_folder.kill(process)
    assert process.returncode == 0, stdout + stderr
    first, second = of_answers(folder)[earlier:]
    assert (first.state, first.memory_mb) == ("CANCELLED", 1500)
    assert (second.state, second.memory_mb) == ("COMPLETED", 3000)
    assert lines(out)[: len(kept)] == kept  # not asked again: their clocks, too
    assert records(out) == undisturbed


def test_a_run_goes_on_after_its_snakemake_was_killed(folder, undisturbed):
    """SIGKILL for the coordinator leaves its job at work in Slurm, which must not write beside the
    next run's.
    """
    out = answers(folder, "killed")
    arguments = [str(out.relative_to(folder)), *PROFILE, *configure(folder, "killed", "many.jsonl")]
    earlier = len(of_answers(folder))
    process = workflow_folder.start(folder, *arguments)
    try:
        kept = first_records(process, out)
    finally:
        workflow_folder.kill(process)
    assert [job.state for job in of_answers(folder)[earlier:]] == ["RUNNING"]
    run(folder, *arguments)
    assert [job.state for job in of_answers(folder)[earlier:]] == ["CANCELLED", "COMPLETED"]
    assert lines(out)[: len(kept)] == kept
    assert records(out) == undisturbed


def test_pipelines_ask_a_server_that_is_a_job_over_the_nodes_own_name(
    root, cluster, tmp_path_factory
):
    """The database is made and one pipeline run on this machine; the server and those that ask it
    are Slurm's jobs.
    """
    pytest.importorskip("trustme", reason="needs trustme")
    folder = fill_in(served_workflow.write(root, tmp_path_factory.mktemp("served")))
    pipelines = served_workflow.secured(folder, socket.gethostname())
    experiment = served_workflow.configure(folder, pipelines)
    run(folder, *served_workflow.targets("alone"), "--cores", "1", *experiment)
    run(folder, *served_workflow.targets(*pipelines), *PROFILE, *experiment)
    submitted = jobs(folder)
    assert sorted(job.rule for job in submitted) == [
        "retrieval_server",
        "served_pipeline",
        "served_pipeline",
    ]
    assert {job.state for job in submitted} == {"COMPLETED"}, "\n\n".join(failures(folder))
    assert served_workflow.records(folder, "beside") == served_workflow.records(folder, "alone")


def first_records(process, out):
    """The first answers of a run, as soon as it has some."""

    def made():
        assert process.poll() is None, process.communicate()
        sealed = lines(out.with_name(f"{out.name}.partial"))[1:]  # without the header
        made_so_far = [line.partition(b',"seal":')[0] + b"}" for line in sealed]
        return made_so_far if len(made_so_far) > 3 else []

    return wait_for("answer", made)


# --- what Slurm says of the jobs ---


@dataclass(frozen=True)
class Job:
    """A job as Slurm knows it, ended or not."""

    number: str
    state: str  # PENDING, RUNNING, COMPLETED, CANCELLED, ...
    partition: str
    cpus: int
    memory_mb: int
    minutes: int
    alone: bool  # on its node
    feature: str  # of the node, that it asked for
    gpus: int
    folder: Path  # where it runs
    what: str  # rule_<rule>, or rule_<rule>_wildcards_<their values>

    @property
    def rule(self):
        return self.what.removeprefix("rule_").partition("_wildcards_")[0]


def jobs(folder):
    """The jobs of the runs in `folder`, in the order they were submitted."""
    listed = subprocess.run(
        ["squeue", "--states=all", "--noheader", "--sort=i", f"--Format={FORMAT}"],
        capture_output=True,
        text=True,
        check=True,
    )
    known = [_job(line.split("|")) for line in listed.stdout.splitlines()]
    return [job for job in known if job.folder == folder]


def failures(folder):
    """What the jobs said that Slurm does not call completed."""
    return [
        f"{job.what}: {job.state}\n{log.read_text(errors='replace')[-4000:]}"
        for job in jobs(folder)
        if job.state != "COMPLETED"
        for log in (folder / "logs" / "slurm").glob(f"**/{job.number}.log")
    ]


def _job(fields):
    number, state, partition, cpus, memory, limit, shared, feature, tres, folder, what, _ = fields
    request = {
        "cpus": int(cpus),
        "memory_mb": _megabytes(memory),
        "minutes": _minutes(limit),
        "alone": shared == "NO",
    }
    gpus = int(tres.removeprefix("gres:gpu:")) if tres.startswith("gres:gpu:") else 0
    return Job(
        number,
        state,
        partition,
        feature=feature,
        gpus=gpus,
        folder=Path(folder),
        what=what,
        **request,
    )


def _megabytes(memory):
    number, unit = re.fullmatch(r"([\d.]+)([MGT])", memory).groups()  # type: ignore[union-attr]
    return round(float(number) * {"M": 1, "G": 1024, "T": 1024**2}[unit])


def _minutes(limit):
    """Of Slurm's days-hours:minutes:seconds."""
    days, _, clock = limit.rpartition("-")
    seconds = 0
    for part in clock.split(":"):
        seconds = seconds * 60 + int(part)
    return int(days or 0) * 1440 + seconds // 60


def run(folder, *arguments):
    """A run of the workflow that has to succeed; what it printed."""
    done = workflow_folder.snakemake(folder, *arguments, timeout_s=WAIT_S)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-12000:]
    return done.stdout + done.stderr


def wait_for(what, happened):
    """What `happened` returns once that is true."""
    deadline = time.monotonic() + WAIT_S
    while not (result := happened()):
        assert time.monotonic() < deadline, f"no {what} in {WAIT_S} s"
        time.sleep(0.05)
    return result


def lines(path):
    """The lines of a file that are whole; none where there is no file yet."""
    *whole, _torn = path.read_bytes().split(b"\n") if path.exists() else [b""]
    return whole
