"""What the tutorial shows is what the commands print, as far as it does not depend on the machine."""

import re

import pytest

from ragauge.assets import resolver
from ragauge.cli import _main

MODEL = "smollm2-135m-instruct"


@pytest.fixture
def page(root):
    return (root / "docs/tutorial.md").read_text(encoding="utf-8")


@pytest.fixture
def example(tmp_path, monkeypatch):
    """A folder in which the tutorial's `ragauge init example --example` was run."""
    monkeypatch.chdir(tmp_path)
    assert _main.main(["init", "example", "--example", "--quiet"]) == 0
    return tmp_path


def shown(page, heading):
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def test_the_questions_are_those_of_the_example(page, example):
    [block] = shown(page, "2. Documents and questions")
    name, *lines, more = block.splitlines()
    assert (name, more) == ("# example/questions.csv", "...")
    asked = (example / "example/questions.csv").read_text(encoding="utf-8").splitlines()
    assert asked[: len(lines)] == lines
    folder = example / "example/documents"
    assert f"a folder with {len(list(folder.iterdir()))} short texts" in page
    assert f"and {len(asked) - 1} questions" in page


def test_the_study_finds_what_is_shown(page, example, capsys):
    if not resolver.describe(MODEL)["fetched"]:
        pytest.skip(
            f"{MODEL}, whose tokens are counted, is not in the asset store; ragauge fetch {MODEL}"
        )
    given = ["--documents", "example/documents", "--questions", "example/questions.csv"]
    assert _main.main(["study", *given, "--model", MODEL, "--out", "study", "--no-run"]) == 0
    first, _ = shown(page, "3. Compare the methods")
    assert capsys.readouterr().out.splitlines()[:2] == first.splitlines()[:2]
