"""Jobs of a run that answer for each other: one load of the model, and every file from its own job alone."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from preloaded import Preloaded
from ragauge.cli import main
from ragauge.errors import UserError
from ragauge.evaluation import runner
from ragauge.experiment import due
from ragauge.experiment.due import DueAnswers
from ragauge.io import records
from ragauge.io.records import BusyError, Writer, meta_path
from tiny_checkpoint import write_checkpoint, write_questions

METHODS = {
    "naive": {},
    "bm25_k1": {"method": "bm25", "top_k": 1},
    "superposition_k1": {"method": "superposition", "top_k": 1},
}
CLOCKS = {"offline_s", "online_s", "first_token_s", "trace"}


class Folder:
    """An experiment of three variants, whose jobs are called as the workflow calls them."""

    def __init__(self, path: Path, questions: int = 2) -> None:
        self.path, self.config, self.due = path, path / "config.yaml", path / "due.json"
        self.data = write_questions(path / "nq.jsonl", questions)
        experiment = {
            "run": "r",
            "models": {"tiny": {"source": f"path:{write_checkpoint(path / 'model')}"}},
            "datasets": {"nq_open": {"data": str(self.data)}},
            "methods": METHODS,
            "generation": {"max_new_tokens": 4},
        }
        self.config.write_text(yaml.safe_dump(experiment))

    def out(self, variant: str, folder: str = "answers") -> Path:
        return self.path / folder / f"{variant}.jsonl"

    def partial(self, variant: str) -> Path:
        return self.out(variant).with_name(f"{variant}.jsonl.partial")

    def write_due(self, *variants: str, **changes: Any) -> None:
        jobs = [DueAnswers("nq_open", "tiny", name, None, str(self.out(name)), (str(self.data),)) for name in variants]
        due.write(self.due, [job._replace(**changes) for job in jobs])

    def command(self, variant: str, folder: str = "answers", *more: str) -> list[str]:
        labels = ["--dataset", "nq_open", "--model", "tiny", "--method", variant]
        out = ["--out", str(self.out(variant, folder))]
        return ["run", "--config", str(self.config), *labels, "--threads", "1", "--overwrite", *out, *more]

    def start(self, commands: Preloaded) -> subprocess.Popen[bytes]:
        """The job of `naive`, which answers for the others that are due, in a process of its own."""
        command = [str(commands.folder / "ragauge"), *self.command("naive", "answers", "--ahead", str(self.due))]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(command, cwd=self.path, env=commands.environment(), **quiet)

    def job(self, variant: str) -> int:
        return main(self.command(variant, "answers", "--ahead", str(self.due), "--minutes", "60"))

    def answers(self, variant: str, folder: str = "answers") -> list[dict[str, Any]]:
        return [record.model_dump(exclude=CLOCKS) for record in records.read(self.out(variant, folder))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    made = Folder(tmp_path_factory.mktemp("run"))
    for variant in METHODS:
        assert main(made.command(variant, "alone")) == 0
    return made


@pytest.fixture(autouse=True)
def nothing_answered(folder: Folder) -> None:
    for path in (folder.path / "answers").glob("*"):
        path.unlink()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models that are loaded."""
    found, load = [], runner.engines.load
    monkeypatch.setattr(runner.engines, "load", lambda *given, **more: found.append(given) or load(*given, **more))
    return found


def test_one_job_answers_for_all_and_each_writes_its_own_file(folder: Folder, loads: list[Any]) -> None:
    folder.write_due(*METHODS)
    assert folder.job("naive") == 0
    assert folder.out("naive").is_file()
    assert not folder.partial("naive").exists()
    for variant in ("bm25_k1", "superposition_k1"):
        assert not folder.out(variant).exists()
        left = json.loads(folder.partial(variant).read_text().splitlines()[0])["meta"]
        assert folder.job(variant) == 0
        meta = json.loads(meta_path(folder.out(variant)).read_text())
        assert meta | left == meta  # of the process that answered
        assert not folder.partial(variant).exists()
    assert len(loads) == 1
    assert all(folder.answers(variant) == folder.answers(variant, "alone") for variant in METHODS)


def test_only_due_jobs_of_the_same_questions_and_model_with_their_inputs_there(folder: Folder) -> None:
    folder.write_due("naive", "bm25_k1")
    assert folder.job("naive") == 0
    assert folder.partial("bm25_k1").exists()
    assert not folder.partial("superposition_k1").exists()
    folder.partial("bm25_k1").unlink()
    for change in ({"model": "other"}, {"dataset": "other"}, {"inputs": ("missing",)}):
        folder.write_due("bm25_k1", **change)
        assert folder.job("naive") == 0
        assert not folder.partial("bm25_k1").exists()


def test_nothing_is_begun_for_others_when_time_is_up(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.write_due(*METHODS)
    clock = time.monotonic
    started, calls = clock(), []
    monkeypatch.setattr(time, "monotonic", lambda: started if not calls else clock() + 1800)
    monkeypatch.setattr(runner, "ask", lambda *given, ask=runner.ask: calls.append(1) or ask(*given))
    assert folder.job("naive") == 0
    assert len(calls) == 2
    assert not folder.partial("bm25_k1").exists()


def test_a_job_finds_its_file_finished_as_it_was(folder: Folder) -> None:
    folder.write_due(*METHODS)
    assert folder.job("bm25_k1") == 0
    before = folder.out("bm25_k1").stat().st_mtime_ns
    assert folder.job("naive") == 0
    assert not folder.partial("bm25_k1").exists()  # it was finished: nothing is left for its job
    assert folder.out("bm25_k1").stat().st_mtime_ns == before


def test_the_mistake_of_another_job_is_left_to_it(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(engine: Any, method: Any, *given: Any, ask: Any = runner.ask) -> Any:
        if type(method).__name__ == "BM25":
            raise ZeroDivisionError("a defect")
        return ask(engine, method, *given)

    monkeypatch.setattr(runner, "ask", ask)
    folder.write_due(*METHODS)
    assert folder.job("naive") == 0
    assert "bm25_k1.jsonl: left to its own job: a defect" in caplog.text
    assert folder.partial("superposition_k1").exists()
    with pytest.raises(ZeroDivisionError):
        folder.job("bm25_k1")


def test_a_job_killed_while_it_answers_for_another_has_lost_nothing(tmp_path: Path, preloaded: Preloaded) -> None:
    many = Folder(tmp_path, questions=30)
    many.write_due("naive", "bm25_k1")
    process = many.start(preloaded)
    partial, deadline = many.partial("bm25_k1"), time.monotonic() + 120
    while not (partial.exists() and partial.read_bytes().count(b"\n") > 3):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    [answering] = preloaded.working(many.path)
    answering.kill()
    process.wait()
    kept = {
        name: many.partial(name).read_bytes().rpartition(b"\n")[0].split(b"\n")[1:] for name in ("naive", "bm25_k1")
    }
    assert len(kept["naive"]) == 30
    for variant, lines in kept.items():
        assert many.job(variant) == 0
        assert many.out(variant).read_bytes().splitlines()[: len(lines)] == lines


def test_a_job_waits_for_one_of_its_run_alone_and_helps_meanwhile(folder: Folder, preloaded: Preloaded) -> None:
    folder.write_due("naive", "bm25_k1")
    workflow, _ = due.read(folder.due)
    naive = folder.out("naive")
    naive.parent.mkdir(exist_ok=True)
    refused = pytest.raises(UserError, match="another process is writing")
    with Writer(naive, {}, [], workflow="another run"), refused as found, Writer(naive, {}, [], workflow=workflow):
        pass
    assert not isinstance(found.value, BusyError)
    assert folder.job("naive") == 0
    naive.unlink()
    folder.partial("bm25_k1").unlink()
    with Writer(naive, {}, [], workflow=workflow):
        process = folder.start(preloaded)
        deadline = time.monotonic() + 120
        while not folder.partial("bm25_k1").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.3)
        assert process.poll() is None
    assert process.wait(120) == 0
    assert folder.answers("naive") == folder.answers("naive", "alone")


@pytest.mark.parametrize("content", [b"", b"{", b"null", b'{"workflow": "w", "answers": [["nq"]]}'])
def test_a_damaged_file_of_what_is_due_says_nothing_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "due.json"
    path.write_bytes(content)
    assert due.read(path) == ("", [])
