"""Chunks of whole sentences, and the evidence that the best of them give."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny_models
from ragauge.methods.evidence import chunks
from ragauge.methods.evidence.sentences import tokenize
from ragauge.methods.prompts import Source

TOKENIZER = tiny_models.byte_tokenizer()
WORD = st.sampled_from(
    ["one", "Two.", "three!", "4", "\n", "\n\n", " \n \n", "\t", "e.g.", "Five?"]
)
TEXT = st.lists(WORD, max_size=30).map(" ".join)


def sentences_of(*texts):
    sources = [Source(i, "", text) for i, text in enumerate(texts)]
    return sources, tokenize(sources, TOKENIZER)[1]


def said(cut, sources, sentences):
    return [chunks.text_of(chunk, sources, sentences) for chunk in cut]


def test_windows_start_at_every_sentence_and_hold_whole_ones():
    sources, sentences = sentences_of("Ants run. Bees run. Cats run. Dogs run.", "Eels run.")
    cut = chunks.sliding_windows(sources, sentences, words=5)
    assert said(cut, sources, sentences) == [
        "Ants run. Bees run.",
        "Bees run. Cats run.",
        "Cats run. Dogs run.",
        "Eels run.",
    ]


def test_a_sentence_longer_than_a_window_stands_alone():
    sources, sentences = sentences_of("Ants run. Bees run run run run run. Cats run.")
    cut = chunks.sliding_windows(sources, sentences, words=4)
    assert said(cut, sources, sentences) == ["Ants run.", "Bees run run run run run.", "Cats run."]


@pytest.mark.parametrize(
    ("text", "rule", "expected"),
    [
        ("Ants run. Bees run.\nCats run.\n\nDogs run.\n \nEels run.", "blank_line",
         ["Ants run. Bees run.\nCats run.", "Dogs run.", "Eels run."]),
        ("Ants run. Bees run.\nCats run.\nDogs run.\n", "blank_line",
         ["Ants run. Bees run.", "Cats run.", "Dogs run."]),
        # blank lines around it are none inside it
        ("\n\n  Ants run. Bees run.\nCats run.\n\n", "blank_line",
         ["Ants run. Bees run.", "Cats run."]),
        ("Ants run run. Bees run run. Cats run.\n\nDogs run.", "blank_line",
         ["Ants run run. Bees run run.", "Cats run.", "Dogs run."]),
        ("One line", "blank_line", ["One line"]),
        ("Ants run. Bees run.\nCats run.\n\nDogs run.", None, ["Ants run. Bees run.", "Cats run.", "Dogs run."]),
    ],
)  # fmt: skip
def test_paragraphs_are_the_documents_own(text, rule, expected):
    """By default every line end parts them."""
    sources, sentences = sentences_of(text)
    cut = chunks.paragraphs(sources, sentences, 6, *([rule] if rule else []))
    assert said(cut, sources, sentences) == expected


@given(TEXT, TEXT, st.integers(1, 12))
def test_chunks_cover_every_sentence_within_a_document_and_the_words(first, second, words):
    sources, sentences = sentences_of(first, second)
    counts = chunks.word_counts(sources, sentences)
    windows = chunks.sliding_windows(sources, sentences, words)
    paragraphs = chunks.paragraphs(sources, sentences, words)
    assert [i for a, b in paragraphs for i in range(a, b + 1)] == list(range(len(sentences)))
    assert {i for a, b in windows for i in range(a, b + 1)} == set(range(len(sentences)))
    for a, b in [*windows, *paragraphs]:
        assert sentences[a].source == sentences[b].source
        assert a == b or sum(counts[a : b + 1]) <= words


def test_the_best_chunks_fill_the_volume_and_the_last_ends_with_a_sentence():
    _, sentences = sentences_of("Ants. Bees. Cats. Dogs.")  # six tokens each, the last one five
    ranked = [(2, 3), (0, 2)]
    assert chunks.within(ranked, sentences, 100) == [(2, 2), (3, 3), (0, 0), (1, 1)]
    assert chunks.within(ranked, sentences, 17) == [(2, 2), (3, 3), (0, 0)]
    assert chunks.within(ranked, sentences, 16) == [(2, 2), (3, 3)]
    assert chunks.within(ranked, sentences, 10) == [(2, 2)]
    assert chunks.within(ranked, sentences, 1) == [(2, 2)]  # never nothing
