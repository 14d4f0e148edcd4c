"""The workflow plans on any machine, and a wrong configuration stops it in one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ragauge import registry
from ragauge.experiment.schema import load
from workflow_folder import copy_workflow, needs_snakemake, snakemake

pytestmark = needs_snakemake


@pytest.fixture(scope="module")
def checkout(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workflow's files in a folder of their own, where nothing has been run."""
    return copy_workflow(root, tmp_path_factory.mktemp("checkout"))


def planned(output: str) -> dict[str, int]:
    table = output.partition("\ntotal ")[0].rpartition("job  ")[2]
    return {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}


@pytest.mark.parametrize("name", ["config.yaml", "configs/smoke.yaml", "configs/paper.yaml", "configs/gpu.yaml"])
def test_an_experiment_plans_every_job_once(checkout: Path, name: str) -> None:
    done = snakemake(checkout, "-n", "--configfile", name)
    assert done.returncode == 0, done.stderr
    jobs = planned(done.stdout + done.stderr)
    experiment = load(checkout / name)
    assert jobs["answers"] == len(list(experiment.answers()))
    assert jobs["data"] == len(experiment.datasets)
    assert jobs["latency"] == len(list(experiment.timed()))
    assert jobs.get("pipeline", 0) == len(experiment.pipelines)
    assert jobs.get("staleness", 0) == len(experiment.staleness)
    assert all(jobs[item] == 1 for item in registry.names("item"))


def test_a_judge_that_is_named_judges_before_its_table_is_made(checkout: Path) -> None:
    judge = "judge={methods: [cfic, free_extraction], model: smollm2-135m-instruct}"
    done = snakemake(checkout, "-n", "-p", "--configfile", "configs/smoke.yaml", "--config", judge)
    assert done.returncode == 0, done.stderr
    output = done.stdout + done.stderr
    jobs = load(checkout / "configs/smoke.yaml").answers()
    assert planned(output)["judgements"] == sum(job.variant in ("cfic", "free_extraction") for job in jobs)
    assert "--model smollm2-135m-instruct --dtype float32 --device cpu" in output


def test_decoders_are_exported_once_for_all_pipelines_that_run_their_onnx(checkout: Path) -> None:
    onnx = "schedule: random, engine: onnx"
    models = "models={smollm2-135m-instruct: {dtype: float32}}"
    trained = f"trained: {{{onnx}, retrofit_minutes: 1.0}}"
    pipelines = f"pipelines={{one: {{{onnx}}}, two: {{{onnx}, interval: 32}}, {trained}, torch: {{schedule: random}}}}"
    done = snakemake(checkout, "-n", "-p", "--configfile", "configs/smoke.yaml", "--config", models, pipelines)
    assert done.returncode == 0, done.stderr
    output = done.stdout + done.stderr
    jobs = planned(output)
    assert jobs["export"] == 2
    assert jobs["retrofit"] == 1
    exported = re.findall(r"--onnx results/smoke/onnx/(\S+)", output)
    assert sorted(exported) == [
        f"smollm2-135m-instruct/{name}" for name in ("untrained", "untrained", "wikipedia/ivf/1.0")
    ]


def test_retro_is_exported_once_for_a_database(checkout: Path) -> None:
    onnx = "schedule: random, engine: onnx, form: retro, task: generate"
    pipelines = f"pipelines={{one: {{{onnx}}}, two: {{{onnx}, interval: 32}}}}"
    models = "models={smollm2-135m-instruct: {dtype: float32}}"
    done = snakemake(checkout, "-n", "-p", "--configfile", "configs/smoke.yaml", "--config", models, pipelines)
    assert done.returncode == 0, done.stderr
    output = done.stdout + done.stderr
    jobs = planned(output)
    assert jobs["export_retro"] == 1
    assert "export" not in jobs
    assert "ragauge export --form retro --seed 0 --database results/smoke/databases/wikipedia" in output
    assert re.findall(r"--onnx results/smoke/onnx/(\S+)", output) == ["retro/wikipedia/random"] * 2


def test_a_key_is_changed_on_the_command_line(checkout: Path) -> None:
    change = ["--config", "generation={max_new_tokens: 9}", "datasets={wiki_single: {limit: 3}}"]
    done = snakemake(checkout, "-n", *change)
    assert done.returncode == 0, done.stderr


def test_every_item_is_a_rule_named_after_it(checkout: Path) -> None:
    done = snakemake(checkout, "--list-rules")
    assert done.returncode == 0, done.stderr
    assert set(registry.names("item")) <= set((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("sede=1", "config.yaml: sede: unknown key 'sede'; did you mean 'seed'?"),
        ("methods={x: {method: naiv}}", "config.yaml: methods.x.method: unknown method 'naiv'; did you mean 'naive'?"),
        ("methods={naive: {no_such: 1}}", "config.yaml: methods.naive: unknown option of naive 'no_such'"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_exit_2(checkout: Path, key: str, message: str) -> None:
    done = snakemake(checkout, "-n", "--config", key)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if message in line]
    assert "Traceback" not in done.stderr


def test_lint_finds_nothing(checkout: Path) -> None:
    done = snakemake(checkout, "--lint")
    assert done.returncode == 0, done.stdout + done.stderr
