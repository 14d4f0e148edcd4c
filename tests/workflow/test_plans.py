"""The workflow plans on any machine, and a wrong configuration stops it in one line."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from preloaded import Preloaded
from ragauge import registry
from ragauge.config.loading import load
from workflow_folder import Planned, needs_snakemake, snakemake

pytestmark = needs_snakemake


Plan = Callable[..., Planned]
SMOKE = ("--configfile", "configs/ci/smoke.yaml")


@pytest.mark.parametrize(
    "name", ["configs/full.yaml", "configs/ci/smoke.yaml", "configs/papers/paper.yaml", "configs/papers/gpu.yaml"]
)
def test_an_experiment_plans_every_job_once(plan: Plan, checkout: Path, name: str) -> None:
    jobs = plan("--configfile", name).counts
    experiment = load(checkout / name)
    assert jobs["answers"] == len(list(experiment.answers()))
    assert jobs["data"] == len(experiment.datasets)
    assert jobs["latency"] == len(list(experiment.measured("latency")))
    assert jobs.get("pipeline", 0) == len(experiment.pipelines)
    assert jobs.get("staleness", 0) == len(experiment.staleness)
    assert {name: jobs.get(name, 0) for name in registry.names("item")} == {
        name: int(name in experiment.item_names()) for name in registry.names("item")
    }


def test_the_papers_three_texts_are_predicted_from_one_database(plan: Plan) -> None:
    """Of C4, in the tokens of SmolLM2 and of RETRO; of the other two corpora sets of evaluation text alone are cut."""
    planned = plan("piperag_figure_6", "piperag_table_2", "--configfile", "configs/papers/paper.yaml")
    jobs, output = planned.counts, planned.output
    assert (jobs["database"], jobs["evaluation_set"], jobs["staleness"]) == (2, 4, 3)
    assert jobs["chunks"] == jobs["embeddings"] == jobs["near_duplicates"] == 2 * 256
    assert set(re.findall(r"--entry (\S+) --evaluation=(\S+) --threads", output)) == {
        (database, text) for database in ("c4", "c4_t5") for text in ("wikipedia", "realnews")
    }
    texts = set(re.findall(r"--entry (?:scored|timed)_(wikipedia|realnews|c4)_\S+ --database (\S+)", output))
    assert texts == {(text, "results/paper/databases/c4") for text in ("wikipedia", "realnews", "c4")}
    texts = set(re.findall(r"--entry own_(?:timed_)?(wikipedia|realnews|c4_t5)_\S+ --database (\S+)", output))
    assert texts == {(text, "results/paper/databases/c4_t5") for text in ("wikipedia", "realnews", "c4_t5")}
    assert jobs["export"] == 2, "RETRO's sizes and RETRO itself run in ONNX Runtime"
    assert "export --mode=retro --model=retro --database=results/paper/databases/c4_t5" in output


@pytest.mark.parametrize(
    ("item", "jobs"),
    [
        ("superposition_table_3", {"asset": 2, "data": 1, "answers": 2}),
        ("cfic_table_4", {"asset": 2, "data": 1, "answers": 11, "sft_data": 1, "sft_train": 1}),
        ("superposition_table_7", {"asset": 3, "data": 1, "machine": 1, "latency": 1, "answers": 3}),
    ],
)
def test_an_item_plans_what_it_reads_and_nothing_else(plan: Plan, item: str, jobs: dict[str, int]) -> None:
    assert plan(item, "--configfile", "configs/full.yaml").counts == jobs | {item: 1}


@pytest.mark.parametrize("paper", ["superposition", "cfic", "piperag"])
def test_a_paper_is_a_target(plan: Plan, paper: str) -> None:
    jobs = plan(paper, *SMOKE).counts
    items = {item for item in registry.names("item") if item.startswith(f"{paper}_")}
    assert items < jobs.keys()
    assert {item for item in registry.names("item") if item in jobs} == items
    assert jobs[paper] == 1


def test_a_training_has_the_gpus_that_the_run_may_take(plan: Plan) -> None:
    training = "training={cfic: {device: cuda, processes: 8}}"
    assert "--gpus 8 " in plan("cfic_table_4", *SMOKE, "--config", training).output
    assert "--gpus 1 " in plan("cfic_table_4", *SMOKE, "--resources", "gpu=1", "--config", training).output


def test_the_papers_indexes_are_served_by_jobs_with_room_for_them(plan: Plan) -> None:
    planned = plan("piperag", "--configfile", "configs/papers/paper.yaml", "configs/papers/servers.yaml")
    jobs = planned.counts
    assert (jobs["retrieval_server"], jobs["server_needs"], jobs["server_credentials"]) == (8, 8, 1)
    assert jobs["served_pipeline"] == jobs["gathered_pipeline"] > 900
    assert "index_recall" not in jobs, "a recall that fails costs no table"
    memory = [int(asked["mem_mb"]) for rule, asked in planned.resources if rule in ("retrieval_server", "staleness")]
    assert sum(mem_mb > 215_000 for mem_mb in memory) == 4 + 3
    assert not re.search(r"^rule pipeline:\n +input: .*/merged/", planned.output, re.MULTILINE)


def test_an_item_of_pipelines_plans_no_answers(plan: Plan) -> None:
    jobs = plan("piperag_figure_8", *SMOKE).counts
    assert jobs["pipeline"] > 0
    assert not {"answers", "latency", "sft_train", "staleness"} & jobs.keys()


def test_a_judge_that_is_named_judges_before_its_table_is_made(plan: Plan, checkout: Path) -> None:
    judge = "judge={methods: [cfic, free_extraction], model: smollm2-135m-instruct}"
    planned = plan(*SMOKE, "--config", judge)
    output = planned.output
    jobs = load(checkout / "configs/ci/smoke.yaml").answers()
    assert planned.counts["judgements"] == sum(job.variant in ("cfic", "free_extraction") for job in jobs)
    assert "--model=smollm2-135m-instruct --dtype=float32 --device=cpu" in output


def test_decoders_are_exported_once_for_all_pipelines_that_run_their_onnx(plan: Plan, checkout: Path) -> None:
    onnx = "schedule: random, engine: onnx"
    models = "models={smollm2-135m-instruct: {dtype: float32}}"
    trained = f"trained: {{{onnx}, retrofit_minutes: 1.0}}"
    pipelines = f"pipelines={{one: {{{onnx}}}, two: {{{onnx}, interval: 32}}, {trained}, torch: {{schedule: random}}}}"
    planned = plan(*SMOKE, "--config", models, pipelines)
    output = planned.output
    jobs = planned.counts
    assert jobs["export"] == 2
    assert jobs["retrofit"] == 1
    exported = re.findall(r"--onnx=results/smoke/onnx/(\S+)", output)
    names = ("untrained", "untrained", "wikipedia-ivf-1.0")
    assert sorted(exported) == [f"joint/smollm2-135m-instruct/{name}" for name in names]


def test_the_smoke_run_has_every_rule_but_those_that_its_head_names(plan: Plan, checkout: Path) -> None:
    rules = {
        name
        for path in (checkout / "workflow/rules").glob("*.smk")
        for name in re.findall(r"^(?:rule|use rule \w+ as) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    head = (checkout / "configs/ci/smoke.yaml").read_text(encoding="utf-8").partition("\nrun:")[0]
    assert rules - plan(*SMOKE).counts.keys() - {"asset"} == set(re.findall(r"`(\w+)`", head))


def test_a_key_is_changed_on_the_command_line(plan: Plan) -> None:
    change = "methods={superposition_left_aligned: {top_k: 2}}"
    planned = plan("superposition_table_3", "--configfile", "configs/full.yaml", "--config", change)
    assert planned.counts["answers"] == 2
    assert "--method superposition_k2 " in planned.output


def test_every_item_is_a_rule_named_and_described_after_it(checkout: Path, preloaded: Preloaded) -> None:
    done = snakemake(checkout, "--list-rules", commands=preloaded)
    assert done.returncode == 0, done.stderr
    listed = (done.stdout + done.stderr).splitlines()
    for item in registry.names("item"):
        about = registry.module("item", item).__doc__ or ""
        assert f"{item} ({about.splitlines()[0]})" in listed


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("sede=1", "config.yaml: sede: unknown key 'sede'; did you mean 'seed'?"),
        ("methods={x: {method: naiv}}", "config.yaml: methods.x.method: unknown method 'naiv'; did you mean 'naive'?"),
        ("methods={naive: {no_such: 1}}", "config.yaml: methods.naive: unknown option of naive 'no_such'"),
    ],
)
def test_a_wrong_configuration_is_one_line_and_exit_2(
    checkout: Path, preloaded: Preloaded, key: str, message: str
) -> None:
    done = snakemake(checkout, "-n", "--config", key, commands=preloaded)
    assert done.returncode == 2
    assert [line for line in done.stderr.splitlines() if message in line]
    assert "Traceback" not in done.stderr


def test_lint_finds_nothing(checkout: Path, preloaded: Preloaded) -> None:
    done = snakemake(checkout, "--lint", commands=preloaded)
    assert done.returncode == 0, done.stdout + done.stderr
