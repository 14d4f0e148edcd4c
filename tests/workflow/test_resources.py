"""What the rules ask of a cluster, and that a profile's answer to where reaches every job."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import workflow_folder
from preloaded import Preloaded
from workflow_folder import Planned

Plan = Callable[..., Planned]
LOCAL = ("all", "shards_cut")  # they run beside Snakemake itself, on no cluster
SMOKE = ("--configfile", "configs/ci/smoke.yaml")
JUDGE = "judge={methods: [cfic], model: smollm2-135m-instruct, device: cuda}"
TRAINING = "training={cfic: {device: cuda}}"
RETROFIT = "pipelines={trained: {schedule: retro, task: generate, retrofit_minutes: 1.0}}"


@workflow_folder.needs_snakemake
def test_every_job_says_its_memory_and_minutes(plan: Plan) -> None:
    jobs = [(rule, asked) for rule, asked in plan(*SMOKE).resources if rule not in LOCAL]
    assert len(jobs) > 50
    assert all(int(asked["mem_mb"]) >= 1000 and int(asked["runtime"]) >= 10 for _, asked in jobs)


@workflow_folder.needs_snakemake
def test_jobs_of_models_ask_for_gpus_and_timed_ones_for_a_node(plan: Plan) -> None:
    models = "models={smollm2-135m-instruct: {device: cuda}, smollm2-cfic: {device: cuda}}"
    jobs = plan(*SMOKE, "--config", models, JUDGE, TRAINING, RETROFIT).resources
    on_gpus = {rule for rule, asked in jobs if asked.get("gpu", "0") != "0"}
    measured = {"latency", "load", "machine", "pipeline", "retrofit", "stream"}
    assert on_gpus == {"answers", "judgements", "sft_train"} | measured
    alone = {rule for rule, asked in jobs if asked.get("slurm_extra") == "--exclusive"}
    assert alone == {"index_training"} | measured


@workflow_folder.needs_snakemake
def test_what_a_profile_fills_in_reaches_the_jobs(root: Path, tmp_path: Path, preloaded: Preloaded) -> None:
    pytest.importorskip("snakemake_executor_plugin_slurm", reason="needs the extra 'cluster'")
    folder = workflow_folder.copy_workflow(root, tmp_path)
    profile = folder / "profiles" / "slurm" / "config.yaml"
    text = profile.read_text(encoding="utf-8")
    filled = text.replace("# slurm_partition: main ", "slurm_partition: long ").replace(
        "# slurm_account", "slurm_account"
    )
    assert filled.count("\n  slurm_") == 2
    profile.write_text(filled, encoding="utf-8")
    arguments = ["-n", "--profile", "profiles/slurm", "--configfile", "configs/ci/smoke.yaml"]
    done = workflow_folder.snakemake(folder, *arguments, commands=preloaded)
    assert done.returncode == 0, done.stderr
    planned = re.findall(r"^ +resources: .*$", done.stdout + done.stderr, re.MULTILINE)
    assert planned
    assert all("slurm_partition=long" in line and "slurm_account=project" in line for line in planned)
