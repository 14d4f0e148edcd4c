"""The workflow from end to end on a tiny model: all of it, nothing twice, and only what changed."""

import resource
from pathlib import Path

import pytest
import yaml

from ragauge.config.loading import load
from ragauge.report.page.problems import problems
from ragauge.results.runs import Runs
from ragauge.testing import write_checkpoint, write_questions
from workflow_folder import METHODS, configure, copy_workflow, needs_snakemake, records, run

pytestmark = [needs_snakemake, pytest.mark.slow]

REPEAT_S = 10  # CPU seconds that a run with nothing to do may take


@pytest.fixture(scope="module")
def folder(root, tmp_path_factory):
    """The workflow with a tiny model and three questions over four documents."""
    made = copy_workflow(root, tmp_path_factory.mktemp("run"))
    write_checkpoint(made / "model")
    write_questions(made / "few.jsonl", count=3)
    return made


@pytest.fixture(scope="module")
def finished(folder, preloaded):
    """The results folder after a run."""
    answer(folder, METHODS, preloaded)
    return folder / "results" / "tiny"


def answer(
    folder,
    methods,
    commands,
    *targets,
    name="tiny",
    **dataset,
):
    """Run method variants; where no target is named, everything with a latency protocol."""
    path = configure(folder, methods, name=name)
    experiment = yaml.safe_load(path.read_text())
    experiment["datasets"]["nq_open"] |= dataset
    if not targets:
        once = {"trials": 1, "warmup": 1, "new_tokens": 2}
        experiment["latency"] = {"methods": ["naive"], "dataset": "nq_open", **once}
    path.write_text(yaml.safe_dump(experiment))
    run(folder, *targets, "--cores", "2", "--configfile", path.name, commands=commands)


def changes(folder):
    """When each result and report was last written."""
    files = [
        path
        for top in ("results/tiny", "reports/tiny")
        for path in (folder / top).rglob("*")
        if path.is_file()
    ]
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in files}


def cpu_s():
    """CPU seconds of all ended children: unlike the clock's, the same on a busy machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_run_answers_every_question_and_renders_the_item(folder, finished):
    for variant in METHODS:
        answered = records(finished / "answers" / "nq_open" / "tiny" / f"{variant}.jsonl")
        assert [record["status"] for record in answered] == ["ok"] * 3
        assert all(record["text"] for record in answered)
    reports = folder / "reports" / "tiny"
    assert {path.suffix for path in reports.iterdir()} >= {".csv", ".svg", ".pdf", ".png"}
    table = (reports / "frontier.csv").read_text()
    assert (
        "tiny,nq_open,documents,superposition,superposition_k1,1,best EM subspan,quality," in table
    )


def test_a_second_run_has_nothing_to_do(folder, finished):
    before = changes(folder)
    started = cpu_s()
    answer(folder, METHODS, commands=None)  # the installed one, whose start-up counts
    assert cpu_s() - started < REPEAT_S
    assert changes(folder) == before


def test_the_page_of_a_run_with_a_latency_protocol_lacks_nothing(folder, finished, monkeypatch):
    monkeypatch.chdir(folder)  # where the configuration's paths begin
    runs = Runs(finished, load(finished / "config.yaml"))
    assert [timed.model for timed in runs.latencies] == ["tiny"]
    # on a busy machine
    lacks = [problem for problem in problems(runs) if not problem.why.startswith("refused: ")]
    assert not lacks


def test_forks_of_one_process_that_questions_are_dealt_to_make_the_same(
    folder, finished, preloaded, monkeypatch
):
    """The answers of two jobs are gathered in order."""
    monkeypatch.setenv("RAGAUGE_FORKS", "1")
    table = "reports/dealt/frontier.csv"
    answer(folder, METHODS, preloaded, table, name="dealt", jobs=2)
    assert (folder / ".snakemake" / "forks" / "ragauge").is_file()
    for variant in METHODS:
        answers = Path("answers", "nq_open", "tiny", f"{variant}.jsonl")
        assert records(folder / "results" / "dealt" / answers) == records(finished / answers)
    parts = sorted(
        (folder / "results" / "dealt" / "parts" / "nq_open" / "tiny" / "bm25_k1").glob("*.jsonl")
    )
    assert [len(records(part)) for part in parts] == [1, 2]
    assert "tiny,nq_open,documents,bm25" in (folder / table).read_text()


def test_an_edited_and_an_added_variant_are_asked_alone(folder, finished, preloaded):
    before = changes(folder)
    answer(folder, METHODS | {"bm25_k1": {"method": "bm25", "top_k": 2}, "oracle": {}}, preloaded)
    after = changes(folder)
    written = {path for path in after if after[path] != before.get(path)}
    answers = "results/tiny/answers/nq_open/tiny"
    former = {str(path.relative_to(folder)) for path in (folder / answers / "former").iterdir()}
    assert len(former) == 2
    answered = {
        f"{answers}/{name}.{kind}"
        for name in ("bm25_k1", "oracle")
        for kind in ("jsonl", "meta.json")
    }
    assert {path for path in written if path.startswith(answers)} == answered | former
    assert "reports/tiny/frontier.csv" in written
    assert not [path for path in written if "/data/" in path]
    assert [len(r["kept"]) for r in records(folder / answers / "bm25_k1.jsonl")] == [2, 2, 2]
