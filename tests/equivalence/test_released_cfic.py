"""CFIC searches and ends its evidence as the paper's released code did on a tiny random Llama."""

import json

import pytest

from ragauge.engines.loading import load_lm
from ragauge.engines.protocol import Limits
from ragauge.methods.base.making import make
from ragauge.methods.evidence import prefix, skip
from ragauge.methods.prompts import PromptStyle, build_prompt

RELEASED = {"search": "first_token", "sentences": "punkt"}
ALL = 1500  # tokens that the whole article does not have, so that only P(end of text) decides


@pytest.fixture(scope="module")
def lm(released_folder):
    return load_lm(str(released_folder / "tiny_cfic"), dtype="float32")


@pytest.fixture(scope="module", params=[0, 1], ids=["all_words", "40_words"])
def found(request, released_folder, lm):
    """(released values, prompt, method, what it prepared)."""
    pytest.importorskip("punkt", reason="the extra `punkt` is not installed")
    released = json.loads((released_folder / "cfic.json").read_bytes())[request.param]
    style = PromptStyle("Read this.\n{context}\n\nQuestion: {input}\nAnswer:", "llama2")
    prompt = build_prompt(released["question"], [("", released["article"])], style, lm.tokenizer)
    method = make("cfic", d=ALL, **RELEASED)
    return released, prompt, method, method.prepare(lm, prompt)


def test_the_request_is_the_released_one(lm, found):
    released, prompt, _, (reading, _) = found
    assert [*reading.read, *reading.request(lm, prompt)] == released["prompt_ids"]
    assert [sentence.start for sentence in reading.text.sentences] == released["starts"]


def test_prefixes_and_ends_are_the_released_ones(lm, found):
    released, prompt, method, (reading, trie) = found
    text = reading.text
    context = reading.ask(lm, prompt)
    prefixes = prefix.search(lm, context, trie, method.top_k, "first_token")
    assert [one.sentence for one in prefixes] == released["prefixes"]
    spans = []
    for one in prefixes:
        last = last_within(one.sentence, released)
        tokens = text.sentences[last].end - text.sentences[one.sentence].first - one.tokens
        spans += skip.decode(lm, context, text.ids, text.sentences, [one], tokens)
    assert [list(span) for span in spans] == released["spans"]
    assert [list(span) for span in skip.merge(spans, text.sentences)] == released["merged"]


def test_the_evidence_is_the_released_one(lm, found):
    released, prompt, method, state = found
    if released["max_words"] < len(released["article"].split()):  # words, where d counts tokens
        text = state[0].text
        evidence = text.evidence([tuple(span) for span in released["merged"]])
    else:
        evidence = method.answer(lm, state, prompt, Limits(max_new_tokens=1)).evidence
    assert [piece.text for piece in evidence] == released["texts"]


def last_within(sentence, released):
    """The last sentence before the release's limit in words, at least the sentence itself."""
    words = [len(text.split()) for text in released["sentences"]]
    last = sentence
    while last + 1 < len(words) and sum(words[sentence : last + 2]) <= released["max_words"]:
        last += 1
    return last
