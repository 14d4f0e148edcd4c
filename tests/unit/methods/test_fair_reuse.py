"""What keeps comparisons of reuse fair, and what is refused before anything runs."""

import pytest

from ragauge.datasets.base import loader
from ragauge.engines.spans import Span
from ragauge.errors import UserError
from ragauge.methods import compressors
from ragauge.methods.base import making
from ragauge.methods.base.compression import Press
from ragauge.methods.base.method import plain_row
from ragauge.methods.compressors.base import Context
from ragauge.testing import write_questions
from tiny_models import LLAMA, tiny_lm, tiny_prompt


def keys(path, fold):
    return [example.key for example in loader.load("nq_open", data=path, fold=fold)]


def test_options_are_chosen_on_other_questions_than_the_tests(tmp_path):
    path = write_questions(tmp_path / "questions.jsonl", 60)
    tuning, test, everything = (keys(path, fold) for fold in ("tuning", "test", "all"))
    assert not {*tuning} & {*test}
    assert {*tuning, *test} == {*everything}
    assert 0.1 < len(tuning) / 60 < 0.35
    assert [key for key in everything if key in tuning] == tuning  # in the order of the file


def test_a_compressor_leaves_a_token_of_the_shortest_document():
    lm = tiny_lm(LLAMA)
    ids = tiny_prompt([2]).documents[0]
    cache = lm.new_cache(len(ids))
    lm.extend(cache, [plain_row(ids)], stage="documents")
    knorm = compressors.find("knorm")
    press = Press(lm, lambda: knorm(0), 0.99)
    assert press.compress(Context(lm, cache, Span(0, 2), ids, offline=True), knorm(0)).length == 1


def test_documents_beyond_the_context_are_one_line():
    lm = tiny_lm(LLAMA)
    prompt = tiny_prompt([LLAMA.max_context + 1, 5])
    for name in ("naive_reuse", "epic", "cache_blend", "prophet_kv", "prompt_cache"):
        with pytest.raises(UserError, match="the model's context is") as caught:
            making.make(name).prepare(lm, prompt)
        assert "\n" not in str(caught.value)
