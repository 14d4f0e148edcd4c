"""A retrieval server as a job: asked by all its pipelines, ended with them, whatever happens."""

import re
import socket

import pytest

import served_workflow
from served_workflow import JOB, NAME, PIPELINES, RETRO, configure, records, targets
from workflow_folder import needs_snakemake, run, snakemake

pytestmark = [needs_snakemake, pytest.mark.slow]
SERVER = f"results/{NAME}/servers/words/ivf"


@pytest.fixture(scope="module")
def folder(root, tmp_path_factory):
    return served_workflow.write(root, tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def finished(folder, preloaded):
    """The folder after a run of all pipelines on two cores, of which the server takes one."""
    run(folder, *targets(*PIPELINES), "--cores", "2", *configure(folder), commands=preloaded)
    return folder


def test_what_a_job_serves_is_what_a_pipeline_serves_itself(finished):
    assert records(finished, "beside") == records(finished, "alone")
    assert all(
        record["status"] == "ok" for label in PIPELINES for record in records(finished, label)
    )


def test_the_server_ends_and_leaves_nothing_behind(finished):
    left = {path.name for path in (finished / SERVER).iterdir()}
    assert left == {"needs", "clients"}
    assert "stopping" in (finished / f"logs/{NAME}/servers/words/ivf.log").read_text()


def test_a_server_for_other_machines_is_reached_by_its_certificate_and_token(
    root, tmp_path, preloaded
):
    pytest.importorskip("trustme", reason="needs trustme")
    folder = served_workflow.write(root, tmp_path)
    experiment = configure(folder, served_workflow.secured(folder, socket.gethostname()))
    run(folder, *targets("beside"), "--cores", "2", *experiment, commands=preloaded)
    assert all(record["status"] == "ok" for record in records(folder, "beside"))


def test_another_pipeline_starts_the_server_again_and_no_other_pipeline(finished, preloaded):
    before = written(finished)
    pipelines = {**PIPELINES, "once": {**RETRO, "schedule": "retrieve_once", **JOB}}
    options = ("--cores", "2", *configure(finished, pipelines))
    run(finished, *targets(*pipelines), *options, commands=preloaded)
    assert records(finished, "once")
    assert before.items() < written(finished).items()
    again = run(finished, *targets(*pipelines), *options, commands=preloaded)
    assert "Nothing to be done" in again


def written(folder):
    """When each served pipeline was written."""
    paths = (folder / f"results/{NAME}/served").glob("*.jsonl")
    return {path.stem: path.stat().st_mtime_ns for path in paths}


def test_a_pipeline_that_fails_does_not_keep_the_server(finished, preloaded):
    pipelines = {
        **PIPELINES,
        "long": {**RETRO, "tokens": 90000, "task": "generate", **JOB},
        "more": {**RETRO, "interval": 32, **JOB},
    }
    pipelines["more"]["schedule"] = "retro_plus"
    arguments = (*targets("long", "more"), "--cores", "2", *configure(finished, pipelines))
    done = snakemake(finished, *arguments, commands=preloaded)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(
        "^served_pipeline failed: logs/.*long.log: ragauge: error: ", done.stderr, re.M
    )
    assert (finished / f"results/{NAME}/served/more.jsonl").is_file()
    assert not (finished / SERVER / "address").exists()


def test_too_few_cores_are_refused_before_anything_waits(finished, preloaded):
    pipelines = {**PIPELINES, "other": {**RETRO, "neighbours": 1, **JOB}}
    arguments = (*targets("other"), "--cores", "1", *configure(finished, pipelines))
    done = snakemake(finished, *arguments, commands=preloaded)
    assert done.returncode == 1
    assert "need at least 2 cores" in done.stderr
