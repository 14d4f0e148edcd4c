"""Rankers give the scores and the documents that Superposition Prompting's released code gave."""

import json
from itertools import islice

import numpy as np
import pytest

from ragauge.datasets.nq_open import NQOpen
from ragauge.io.jsonl import read_jsonl
from ragauge.methods.base.making import make
from ragauge.methods.base.ranked import RankedState
from ragauge.methods.prompts import Prompt
from ragauge.methods.rankers import dense

RECORDS = 6  # of NQ-Open's file, in their order


@pytest.fixture(scope="module")
def examples(shared_data, released_folder):
    """Questions and documents as the prompt shows them, beside what the released code gave."""
    file = shared_data / "nq_open/nq-open-20_total_documents_gold_at_0.jsonl.gz"
    released = json.loads((released_folder / "rankers.json").read_bytes())
    assert [one["record"] for one in released] == list(range(RECORDS))
    dataset = NQOpen(shuffle=False)
    records = islice(read_jsonl(file), RECORDS)
    parsed = [dataset.parse(record, str(number)) for number, record in records]
    shown = [
        tuple(f"[Document](Title: {d.title}) {d.text}" for d in one.documents) for one in parsed
    ]
    return list(zip((one.question for one in parsed), shown, released, strict=True))


@pytest.mark.parametrize(
    ("method", "options", "key"),
    [("bm25", {"split": "white_space"}, "bm25"), ("tfidf", {}, "tf_idf")],
)
def test_words_are_weighed_as_released(examples, method, options, key):
    ranker = make(method, query="prompt", **options)
    for question, documents, released in examples:
        prompt = Prompt([], [], [], [], [], question, documents)
        scores = ranker.rank(None, RankedState(None), prompt)
        assert list(scores) == pytest.approx(released[key], abs=1e-9)
        assert sorted(range(len(scores)), key=lambda i: -scores[i])[:4] == released[f"{key}_kept"]


def test_embeddings_are_compared_as_released(examples, released_folder):
    """With the line ends of the released prompt, which Contriever's own tokenizer drops."""
    encoder = dense.Encoder(released_folder / "tiny_encoder")
    for question, documents, released in examples:
        [query] = encoder.encode([f"\nQuestion: {question}?\n"], query=True)
        scores = encoder.encode([f"{text}\n" for text in documents]) @ query
        np.testing.assert_allclose(scores, released["contriever"], atol=1e-4)
        assert (
            sorted(range(len(scores)), key=lambda i: -scores[i])[:4]
            == (released["contriever_kept"])
        )
