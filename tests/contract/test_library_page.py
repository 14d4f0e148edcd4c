"""The page of the library is true: its examples run, on the packaged model where it is on this
machine.
"""

import doctest
import re

import matplotlib
import pytest

import ragauge
from ragauge.assets import resolver
from ragauge.testing import write_checkpoint, write_questions

MODEL = "smollm2-135m-instruct"
# examples whose output is what this very model answers
OF_THE_MODEL = ("answer.prediction", "[document.title")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture
def source(tmp_path):
    """The packaged model, or a folder with a tiny one in its place."""
    if resolver.describe(MODEL)["path"]:
        yield MODEL
    else:
        yield str(write_checkpoint(tmp_path / "in_its_place"))


def test_the_examples_say_what_the_page_says(root, source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_questions(tmp_path / "nq-open.jsonl", count=5)
    text = (
        (root / "docs/library.md").read_text(encoding="utf-8").replace(f'"{MODEL}"', repr(source))
    )
    # What is printed of an evaluation says nothing of the answers, and many are slow.
    tiny = str(write_checkpoint(tmp_path / "tiny"))
    assert text.count(">>> methods =") == 1
    text = text.replace(
        ">>> methods =", f">>> model = ragauge.load_model({tiny!r})\n>>> methods ="
    ).replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, "library.md", "docs/library.md", 0)
    if source != MODEL:
        for example in test.examples:
            if example.source.startswith(OF_THE_MODEL):
                example.want = "...\n"
    failures = []
    with matplotlib.rc_context():
        run = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=failures.append)
    assert run.attempted > 10
    assert run.failed == 0, "".join(failures)


def test_the_page_names_all_there_is(root):
    page = (root / "docs/library.md").read_text(encoding="utf-8")
    # what the functions give
    for name in set(ragauge.__all__) - {"Dataset", "Method", "Model", "Question"}:
        assert re.search(rf"\b{name}\b", page), name
    for name in vars(ragauge.Results):
        assert name.startswith("_") or f"{name}(" in page or name == "close", name
