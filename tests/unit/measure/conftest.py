"""Questions and a model that protocols measure."""

import pytest

from ragauge.testing import write_checkpoint, write_questions


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    """The options that name them."""
    folder = tmp_path_factory.mktemp("material")
    data = write_questions(folder / "questions.jsonl")
    model = write_checkpoint(folder / "model")
    return f"--dataset nq_open --data {data} --model {model} --threads 1".split()
