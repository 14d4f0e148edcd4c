"""Unicode forms: what is read is composed, and equal words are equal strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge import text
from ragauge.metrics import base as metrics

READ = {
    "Das Cafe\u0301 Mu\u0308\u00dfig": "Das Caf\u00e9 M\u00fc\u00dfig",
    "The o\ufb03cer of the \ufb01rst \ufb02eet": "The officer of the first fleet",
    "Leucht\u00adturm\u200bw\u00e4rterin": "Leuchtturmw\u00e4rterin",
    "43\u00a0m, 5\u202f%": "43 m, 5 %",
    # other forms stay as they are written
    "x\u00b2 = \u00bd\uff0c\u5168": "x\u00b2 = \u00bd\uff0c\u5168",
    "\u0646\u200c\u0645": "\u0646\u200c\u0645",  # Persian needs its joiners
}


@pytest.mark.parametrize(("written", "read"), READ.items())
def test_texts_are_read_in_one_form(written, read):
    assert text.clean(written) == read


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *READ.items(),
        ("\uff11\uff12 \uff42\uff41\uff52", "12 bar"),
        ("STRASSE", "Stra\u00dfe"),
        # Hangul syllables, as macOS decomposes them
        ("\ud558\ub298", "\u1112\u1161\u1102\u1173\u11af"),
        ("\uff76\uff9e", "\u30ac"),
        ("Auf\u200clage", "Auflage"),
        ("\u0645\u200f", "\u0645"),
    ],
)
def test_equal_words_are_equal_strings(one, other):
    assert text.fold(one) == text.fold(other)


@given(st.text())
def test_folding_twice_changes_nothing(written):
    assert text.fold(text.fold(written)) == text.fold(written)
    assert text.clean(text.clean(written)) == text.clean(written)
    assert text.fold(text.clean(written)) == text.fold(written)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It\u2019s \u201copen\u201d", "Its open"),
        ("1874\u20131880", "1874-1880"),
        ("well\u2011known", "well-known"),
        ("\u6797\u79c0\u5170\u3002", "\u6797\u79c0\u5170"),
        ("The  Caf\u00e9!", "cafe\u0301"),
    ],
)
def test_a_study_compares_without_punctuation_of_any_script(one, other):
    assert metrics.comparable(one) == metrics.comparable(other)


@given(st.text(st.characters(max_codepoint=127)))
def test_a_study_compares_ascii_as_the_papers_do(written):
    assert metrics.comparable(written) == metrics.normalise(written)
