"""Sentences: they are the document, character by character and token by token."""

import sys
import time
from itertools import pairwise

import pytest

import tiny_models
from house_article import long_lm
from ragauge.errors import MissingExtraError
from ragauge.methods.base import making
from ragauge.methods.evidence.sentences import boundaries_of, split, tokenize
from ragauge.methods.prompts import Source
from tables import rows

HEADED = [
    "History\n\n",
    "It began early. ",
    "It ended late.\n\n",
    "1. One item\n",
    "2. Another, e.g. this\n\n",
    "Notes",
]


def texts(document):
    return [document[start:stop] for start, stop in split(document)]


@pytest.mark.parametrize(
    "sentences",
    [
        ["One sentence without an end"],
        ["  \n\n First. ", "Second.\n"],
        [
            "Dr. Smith met J. R. Brown Jr. of Acme Inc. at 3 p.m. on Jan. 5th. ",
            "He left, e.g. by car (cf. Fig. 3). ",
            "End.",
        ],
        ['"Is it?" she asked. ', "He said so."],
        ["The U.S. Army has 3.5 tons. ", "Ünal “lives”. ", "Ok"],
        HEADED,
    ],
)
def test_sentences_of(sentences):
    assert texts("".join(sentences)) == sentences


def test_a_mark_without_its_other_half_does_not_join_a_document():
    sentences = [f"The fish number {i} was known well. " for i in range(40)]
    cut = ['They called it "the fish. ', "And so on. "]  # opened, and never closed
    first = "The word ra‘ad is old. "
    marked = [
        first,
        *sentences[:20],
        *cut,
        *sentences,
        "It is the fishermen’s. ",
        "(So they said.)",
    ]
    assert texts("".join(marked)) == marked
    quoted = [first, *sentences, '"It is. ', "It was.” ", "The fishermen’s."]
    assert texts("".join(quoted)) == quoted


def test_real_documents_are_their_sentences(shared_data):
    from ragauge.io.jsonl import read_jsonl

    contexts = [
        record["context"]
        for name in ("hotpotqa", "narrativeqa", "qasper", "multifieldqa_en")
        for _, record in read_jsonl(shared_data / "longbench" / f"{name}.jsonl.gz")
    ]
    started = time.process_time()
    for context in contexts:
        spans = split(context)
        assert spans[0][0] == 0
        assert spans[-1][1] == len(context)
        assert all(a[1] == b[0] for a, b in pairwise(spans))
        assert all(context[start:stop].strip() for start, stop in spans)
    seconds = time.process_time() - started
    # a second for 100,000 characters at the very most
    assert seconds < sum(map(len, contexts)) / 100_000


def test_token_spans_are_side_by_side_and_end_with_words():
    document = "".join(HEADED) + "\n\n"
    ids, sentences = tokenize([Source(0, "", document)], tiny_models.byte_tokenizer())
    assert ids == tiny_models.byte_tokenizer()(document, add_special_tokens=False)["input_ids"]
    assert [(s.start, s.stop) for s in sentences] == split(document)
    assert [s.first for s in sentences] == [0, *(s.last for s in sentences[:-1])]
    assert sentences[-1].last == len(ids)
    for s in sentences:  # one token a byte
        assert document[s.first : s.end] == document[s.start : s.stop].rstrip()


@pytest.mark.parametrize(
    ("text", "offsets", "expected"),
    rows("""
# a token over a boundary is the later sentence's
It was. He left., [[0, 7], [7, 10], [10, 16]], [[0, 8, 0, 1], [8, 16, 1, 3]]
# joined to the next
Yes. No. He left., [[0, 8], [8, 17]], [[0, 9, 0, 1], [9, 17, 1, 2]]
# at the end to the one before
One is. Two., [[0, 7], [7, 8]], [[0, 12, 0, 2]]
"""),
)
def test_a_token_is_of_one_sentence_and_no_sentence_without_a_token(text, offsets, expected):
    """Under a tokenizer whose tokens have these spans, and to which any other text is one token."""
    spans = {text: offsets}

    def tokenizer(one, **_):
        return {"input_ids": [*spans.get(one, [1])], "offset_mapping": spans.get(one)}

    _, sentences = tokenize([Source(0, "", text)], tokenizer)
    assert [[s.start, s.stop, s.first, s.last] for s in sentences] == expected


def test_sources_keep_their_sentences_apart_and_their_titles_out():
    sources = [
        Source(0, "A title.", "One is. Two"),
        Source(1, "", "Three"),
        Source(2, "B", "Four."),
    ]
    tokenizer = tiny_models.byte_tokenizer()
    ids, sentences = tokenize(sources, tokenizer)
    found = [
        (s.source, sources[s.source].text[s.start : s.stop], tokenizer.decode(ids[s.first : s.end]))
        for s in sentences
    ]
    assert found == [
        (0, "One is. ", "One is."),
        (0, "Two", "Two"),
        (1, "Three", "Three"),
        (2, "Four.", "Four."),
    ]
    assert tokenizer.decode(ids) == "A title.\nOne is. Two\n\nThree\n\nB\nFour."


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (" \n ", []),
        ("Dr. Smith left on Jan. 5th. He drove.", ["Dr. Smith left on Jan. 5th. ", "He drove."]),
        # no end at a blank line
        ("A head\n\nIt ran. (No.) It hid.", ["A head\n\nIt ran. ", "(No.) ", "It hid."]),
        ("He came, e.g. by car.", ["He came, e.g. ", "by car."]),  # as NLTK's English model has it
    ],
)
def test_punkt_splits_as_nltk_does(document, expected):
    pytest.importorskip("punkt", reason="the extra punkt is not installed")
    assert [document[start:stop] for start, stop in split(document, "punkt")] == expected
    _, sentences = tokenize([Source(0, "", document)], tiny_models.byte_tokenizer(), "punkt")
    assert [document[s.start : s.stop] for s in sentences] == expected


def test_a_missing_splitter_is_one_line_with_its_extra(monkeypatch):
    boundaries_of.cache_clear()
    monkeypatch.setitem(sys.modules, "punkt", None)
    for name, options in (("cfic", {}), ("free_extraction", {}), ("chunks", {"ranker": "bm25"})):
        with pytest.raises(
            MissingExtraError, match=r"needs the package .*: pip install 'ragauge\[punkt\]'"
        ) as caught:
            making.make(name, sentences="punkt", **options).refusal(long_lm())
        assert "\n" not in str(caught.value)
    assert split("One. Two.") == [(0, 5), (5, 9)]
