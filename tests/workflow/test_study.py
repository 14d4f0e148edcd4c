"""A study that its budget ended, and the commands that it prints and shows: from another shell they
finish it.
"""

import html
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from endpoints import served, streams
from ragauge.assets import resolver
from ragauge.cli import study
from ragauge.cli._main import main
from ragauge.study import writing
from ragauge.study.deadline import Deadline
from ragauge.study.settings import StudySettings
from study_files import study_arguments
from workflow_folder import needs_snakemake

pytestmark = needs_snakemake
QUESTIONS = ["Where is tea grown?", "What grows in Kenya?", "Is it hot?", "Where is Assam?"]
METHODS = ("closed_book", "naive", "top_k1", "top_k2")


@pytest.fixture
def few(tmp_path, monkeypatch):
    """A study of four questions and methods, of which the run ends after the references."""
    monkeypatch.setattr(writing, "METHODS", {name: writing.METHODS[name] for name in METHODS})
    options = [option for option in study_arguments(tmp_path / "sources") if option != "--no-run"]
    lines = "".join(f"{question},Assam\n" for question in QUESTIONS)
    (tmp_path / "sources" / "q.csv").write_text(f"question,answers\n{lines}")

    def ended(self, command, log, reserve_s=0.0):
        at = command.index("--prioritize")
        references = [*command[:at], *command[at + 1 :]]
        subprocess.run(references, check=True, capture_output=True)

    monkeypatch.setattr(Deadline, "run", ended)
    return [*options, "--out", str(tmp_path / "s")]


def elsewhere(command):
    """A command in another shell, which knows neither this folder nor this environment."""
    python = {name: os.environ[name] for name in os.environ if name.startswith("PYTHON")}
    environment = {"PATH": "/usr/bin:/bin", "HOME": os.environ["HOME"], **python}
    store = {name: os.environ[name] for name in os.environ if name.startswith("RAGAUGE")}
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd="/",
        env=environment | store,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def answers(folder):
    [model] = (folder / "results" / "s" / "answers" / "questions").iterdir()
    return {path.stem for path in model.glob("*.jsonl")}


def group(folder):
    page = (folder / "reports" / "s" / "index.html").read_text(encoding="utf-8")
    [payload] = re.findall(r'id="payload">(.*?)</script>', page)
    [found] = json.loads(payload)["groups"]
    return found, page


def finish(folder, printed):
    """Paste the command that was printed into another shell."""
    assert answers(folder) == set(writing.REFERENCES)
    found, _ = group(folder)
    assert f"{len(QUESTIONS)} questions" in found["provisional"]
    assert "PROVISIONAL" in printed.out
    [again] = re.findall(r"run it again with: (.*)", printed.out)
    assert f"finish it with: {again}" in printed.err
    said = elsewhere(again)
    assert answers(folder) == set(METHODS)
    assert re.findall(r"^PROVISIONAL, (?:nothing is )?recommended: ", said, re.MULTILINE)
    found, _ = group(folder)
    assert {row["name"] for row in found["variants"]} == set(METHODS)
    assert (folder / "reports" / "s" / "provenance.json").is_file()


def test_the_printed_command_finishes_a_study(few, tmp_path, capsys):
    assert main([*few, "--budget", "20m"]) == 0
    _, page = group(tmp_path / "s")
    [hint] = re.findall(r"<code>(\S+ -m snakemake.*?) FILE</code>", page)
    planned = elsewhere(f"{html.unescape(hint)} reports/s/provenance.json -n")
    assert re.search(r"^answers +\d+$", planned, re.MULTILINE)
    finish(tmp_path / "s", capsys.readouterr())


def test_the_printed_command_names_the_server(few, tmp_path, capsys, monkeypatch):
    with served([streams("Assam")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert (
            main([*few, "--model", "openai:m", "--tokenizer", f"path:{tmp_path}/sources/model"])
            == 0
        )
        finish(tmp_path / "s", capsys.readouterr())


def test_the_printed_command_starts_the_server():
    """Waiting for a whole study is left to the test before: this server has many threads."""
    pytest.importorskip("xllamacpp")
    model = "smollm2-135m-instruct"
    if not resolver.describe(model)["fetched"]:
        pytest.skip(f"{model} is not in the asset store; ragauge fetch {model}")
    settings = StudySettings(Path("d"), f"openai:{model}", Path("s"))
    begin = study.surroundings("llama.cpp", settings)
    printed = elsewhere(shlex.join([*begin, "printenv", "OPENAI_BASE_URL"]))
    assert "http://127.0.0.1:" in printed
