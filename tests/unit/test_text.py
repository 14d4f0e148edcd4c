"""Unicode forms: what is read is composed, and equal words are equal strings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragauge import text
from ragauge.metrics import base as metrics
from tables import rows


@pytest.mark.parametrize(
    ("one", "other"),
    rows(r"""
"It\u2019s \u201copen\u201d", "It's open"
"1874\u20131880", "1874-1880"
"well\u2011known", "well-known"
"\u6797\u79c0\u5170\u3002", "\u6797\u79c0\u5170"
"The  Caf\u00e9!", "cafe\u0301"
"1,200 rpm", "1200rpm"
"1\u202f234\u202f567", "1'234'567"
"1.234,5", "1,234.5"
"12,5 bar", "12.5 bar"
"\u22125", "-5"
".5", "0.5"
"1\u00bd", "1 1/2"
"10\u00b3", "10^3"
"20 \u2103", "20\u00ba C"
"\u0662\u0660\u0661\u0662", "2012"
"\uff15\uff05", "5 %"
"U.S.A.", "USA"
"Ph.D. in the U.S.", "PhD in US"
"$1,200.00", "$1200"
"Darwin\u2019s theory", "the Darwin theory"
"""),
)
def test_forms_of_the_same_words_are_one(one, other):
    assert text.words(one) == text.words(other)


@pytest.mark.parametrize(
    ("part", "whole"),
    rows(r"""
"no", "It is known."
"125 bar", "12.5 bar"
"5 bar", "12.5 bar"
"1.5 kg", "15 kg"
"2.1.0", "210"
"5 degrees", "-5 degrees"
"12", "In 2012"
"12", "1012 or 1/12"
"C", "C++ and C#"
"A", "A pump is a machine"
"5 km", "5 km/h"
"v2.4", "v2.6"
"3.1", "Python 3.10"
"10:30", "1030"
"10^3", "103"
# 2 bar in 12 bar
"\u4e8c\u5df4", "\u5341\u4e8c\u5df4"
"five", "\u00a0"
"?", "Anything?"
"""),
)
def test_another_value_is_another_word(part, whole):
    record = {"prediction": whole, "answers": [part]}
    assert metrics.score("contains_answer", record) == 0
    assert metrics.score("contains_answer", {**record, "prediction": f"x {part} y"}) == (
        part != "?"
    )


@given(st.integers(0, 10**12), st.integers(0, 999), st.booleans())
def test_a_number_is_one_word_however_it_is_written(number, decimals, is_negative):
    plain = f"{'-' * is_negative}{number}.{decimals:03d}"
    english = f"{'-' * is_negative}{number:,}.{decimals:03d}"
    blanks = english.replace(",", "\u202f").replace("-", "\u2212")
    assert text.words(f"at {english} bar") == text.words(f"at {blanks}bar") == ["at", plain, "bar"]
    if number >= 1000:
        european = english.replace(",", ";").replace(".", ",").replace(";", ".")
        assert text.words(european) == [plain]


@given(
    st.lists(
        st.sampled_from(
            ["no", "known", "5", "12.5", "-5", "c++", "c", "km/h", "十二", "한", "5%", "a+"]
        )
    )
)
def test_an_answer_is_found_where_its_words_follow_one_another(chosen):
    middle = chosen[1:3]
    written = [" ".join(part) for part in (chosen, middle, chosen[::-1])]
    found = [text.words(part) for part in written]

    def holds(words, part):
        starts = range(len(words) - len(part) + 1)
        return bool(part) and any(words[i : i + len(part)] == part for i in starts)

    for whole, words in zip(written, found, strict=True):
        record = {"prediction": whole, "answers": [written[1]]}
        assert metrics.score("contains_answer", record) == holds(words, found[1])


@given(st.text())
def test_words_of_any_text_are_folded_and_whole(written):
    for word in text.words(written):
        assert word == text.fold(word)
        assert word.split() == [word]


def test_a_search_matches_pairs_of_characters_and_parts_of_compounds():
    found = text.search_terms("\u6cf5\u7684\u538b\u529b, vitamin C via TCP/IP")
    pairs = ["\u6cf5\u7684", "\u7684\u538b", "\u538b\u529b"]
    assert sorted(found) == sorted([*pairs, "vitamin", "c", "via", "tcp/ip", "tcp", "ip"])
