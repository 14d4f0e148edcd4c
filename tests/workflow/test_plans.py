"""The workflow plans on any machine, and a wrong configuration stops it in one line."""

import os
import re

import pytest

from ragauge import registry
from ragauge.config.loading import load
from ragauge.config.plan.part import manifest
from ragauge.testing import write_checkpoint, write_questions
from workflow_folder import Planned, configure, copy_workflow, needs_snakemake, run, snakemake

pytestmark = needs_snakemake


FULL = ("--configfile", "configs/full.yaml")
SMOKE = ("--configfile", "configs/ci/smoke.yaml")
PAPER = ("--configfile", "configs/papers/paper.yaml", "configs/papers/servers.yaml")


def _pipelines(jobs, config):
    """Count the pipelines of planned jobs."""
    names = (rule.removeprefix("interleaved_") for rule in jobs if rule.startswith("interleaved_"))
    in_turns = sum(len(config.interleaved(name)) for name in names)
    return in_turns + jobs.get("pipeline", 0) + jobs.get("served_pipeline", 0)


@pytest.mark.parametrize("experiment", [FULL, SMOKE, PAPER], ids=["full", "smoke", "paper"])
def test_an_experiment_plans_every_job_once(plan, checkout, experiment):
    jobs = plan(*experiment).counts
    config = load(checkout / experiment[1])
    assert jobs["answers"] == len(list(config.answers()))
    assert jobs["data"] == len(config.datasets)
    assert jobs["latency"] == len(list(config.measured("latency")))
    assert _pipelines(jobs, config) == len(config.pipelines)
    assert jobs.get("staleness", 0) == len(config.staleness)
    assert {name: jobs.get(name, 0) for name in registry.names("item")} == {
        name: int(name in config.item_names()) for name in registry.names("item")
    }


def test_the_papers_three_texts_are_predicted_from_one_database(plan):
    """Of C4, in the tokens of SmolLM2 and of RETRO; of the other two corpora sets of evaluation
    text alone are cut.
    """
    planned = plan(*PAPER)
    jobs = planned.counts
    output = planned.output
    assert (jobs["database"], jobs["evaluation_set"], jobs["staleness"]) == (2, 4, 3)
    assert jobs["chunks"] == jobs["embeddings"] == jobs["near_duplicates"] == 2 * 256
    assert set(re.findall(r"--entry (\S+) --evaluation=(\S+) --threads", output)) == {
        (database, text) for database in ("c4", "c4_t5") for text in ("wikipedia", "realnews")
    }
    for kinds, own in (("(?:scored|timed)", "c4"), ("own(?:_timed)?", "c4_t5")):
        entry = rf"--entry {kinds}_(wikipedia|realnews|{own})_\S+ --database (\S+)"
        texts = {
            (text, f"results/paper/databases/{own}") for text in ("wikipedia", "realnews", own)
        }
        assert set(re.findall(entry, output)) == texts
    assert jobs["export"] == 2, "RETRO's sizes and RETRO itself run in ONNX Runtime"
    assert "export --mode=retro --model=retro --database=results/paper/databases/c4_t5" in output


def test_a_paper_is_a_target(plan):
    jobs = plan("piperag", *SMOKE).counts
    assert {item for item in registry.names("item") if item in jobs} == {
        item for item in registry.names("item") if item.startswith("piperag_")
    }
    assert jobs["piperag"] == 1
    assert jobs["pipeline"] > 0
    assert "index_recall" not in jobs, "a recall that fails costs no table"


def test_the_smoke_run_has_every_rule_but_those_that_its_head_names(plan, checkout):
    rules = {
        name
        for path in (checkout / "workflow/rules").glob("*.smk")
        for name in re.findall(
            r"^(?:rule|use rule \w+ as) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    head = (checkout / "configs/ci/smoke.yaml").read_text(encoding="utf-8").partition("\nrun:")[0]
    assert rules - plan(*SMOKE).counts.keys() - {"asset"} == set(re.findall(r"`(\w+)`", head))


def test_a_key_is_changed_on_the_command_line(plan):
    change = "methods={superposition_left_aligned: {top_k: 2}}"
    planned = plan("superposition_table_3", *FULL, "--config", change)
    assert planned.counts == {"asset": 2, "data": 1, "answers": 2, "superposition_table_3": 1}
    assert "--method superposition_k2 " in planned.output


def test_the_comparisons_of_the_next_run_are_planned(checkout, shared_data, plan):
    link = checkout.parent / "shared"  # where the configuration says that the data are
    if not link.exists():
        link.symlink_to(shared_data.parent)
    name = "configs/reference/like_with_like.yaml"
    jobs = plan("--configfile", name).counts
    config = load(checkout / name)
    assert jobs["answers"] == len(list(config.answers()))
    assert (jobs["latency"], jobs["stream"], jobs["sft_train"]) == (1, 1, 1)
    assert _pipelines(jobs, config) == len(config.pipelines)
    assert jobs["interleaved_timed_none"] == jobs["dataset_shortcuts"] == 1


def test_files_in_place_of_others_are_noticed_though_they_are_older(
    root, tmp_path, preloaded, monkeypatch
):
    """As `cp -p` and unpacked archives leave them."""
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    (tmp_path / "run").mkdir()
    folder = copy_workflow(root, tmp_path / "run")
    write_checkpoint(folder / "model")
    write_questions(folder / "few.jsonl", count=2)
    settings = configure(folder, {"naive": {}}).name
    asset = manifest(f"path:{folder}/model")
    made = (asset, "results/tiny/data/nq_open.jsonl", "--configfile", settings, "--cores", "1")

    def planned():
        return Planned(run(folder, *made, "-n", commands=preloaded)).counts

    run(folder, *made, commands=preloaded)
    assert planned() == {}
    write_questions(folder / "few.jsonl", count=1)
    weights = folder / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    for file in (folder / "few.jsonl", weights):
        os.utime(file, (1.5e9, 1.5e9))
    assert planned() == {"data": 1, "asset": 1}
    run(folder, *made, commands=preloaded)
    assert planned() == {}


def test_a_wrong_configuration_is_one_line_and_exit_2(checkout, preloaded):
    done = snakemake(checkout, "-n", "--config", "methods={x: {method: naiv}}", commands=preloaded)
    assert done.returncode == 2
    message = "config.yaml: methods.x.method: "
    assert [line for line in done.stderr.splitlines() if message in line]
    assert "Traceback" not in done.stderr


def test_lint_finds_nothing(checkout, preloaded):
    run(checkout, "--lint", commands=preloaded)
