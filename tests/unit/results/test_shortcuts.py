"""Shortcuts of data sets, against counts by hand and a plain loop over random questions."""

import random
import re
from itertools import pairwise
from statistics import mean

import pytest

from item_tables import line, shown, table
from ragauge.datasets.base.dataset import Document, Example, Stretch
from ragauge.report.figures import writing
from ragauge.results import shortcuts
from ragauge.results.runs import Runs
from synthetic_run import MODEL, write_questions, write_variant

WORDS = ["red", "blue", "green", "black", "white", "stone", "river", "house", "tree", "road"]


def text(draw, words):
    return " ".join(draw.choices(WORDS, k=words))


def example(draw, number):
    count = draw.randint(2, 8)
    return Example(
        f"q{number}",
        f"Which {text(draw, 3)}?",
        tuple(Document(text(draw, 2), text(draw, draw.randint(1, 6))) for _ in range(count)),
        (draw.choice(WORDS),),
        tuple(sorted(draw.sample(range(count), draw.randint(1, count - 1)))),
    )


def choice(scores, gold):
    """The share of gold among the documents of the highest score."""
    best = [i for i, score in enumerate(scores) if score == max(scores)]
    return mean(i in gold for i in best)


def by_hand(one):
    words = [f"{d.title} {d.text}".split() for d in one.documents]
    sizes = list(map(len, words))
    asked = re.findall(r"\w+", one.question.lower())
    places = range(len(words))
    return {
        "gold_at_random": choice([0 for _ in places], one.gold),
        "gold_is_shortest": choice([-n for n in sizes], one.gold),
        "gold_is_longest": choice(sizes, one.gold),
        "gold_is_first": float(0 in one.gold),
        "gold_is_last": float(len(words) - 1 in one.gold),
        "gold_has_most_title_words": choice(
            [sum(w in d.title.split() for w in set(asked)) for d in one.documents], one.gold
        ),
        "gold_has_most_words": choice([sum(w in d for w in set(asked)) for d in words], one.gold),
        "gold_has_most_word_pairs": choice(
            [sum(f" {a} {b} " in f" {' '.join(d)} " for a, b in {*pairwise(asked)}) for d in words],
            one.gold,
        ),
        "answer_elsewhere": any(
            one.answers[0] in d.text.split()
            for i, d in enumerate(one.documents)
            if i not in one.gold
        ),
        "length_of_gold": mean(sizes[i] for i in one.gold),
        "length_of_others": mean(n for i, n in enumerate(sizes) if i not in one.gold),
    }


def test_rules_find_what_a_plain_loop_finds():
    draw = random.Random(1)
    asked = [example(draw, number) for number in range(60)]
    for one, found in zip(asked, shortcuts.features(asked), strict=True):
        expected = by_hand(one)
        assert {name: found[name] for name in expected} == pytest.approx(expected), one


def test_questions_with_the_same_words_or_gold_documents_are_counted():
    common = Document("River", "It is long.")
    others = [Document("", f"other {number}") for number in range(4)]
    questions = [
        ("How long is the river in the north of Spain?", common),
        ("how long is the river in the north of Spain", others[0]),
        ("Who built the house?", common),
        ("Who built it?", others[1]),
    ]
    asked = [
        Example(str(i), question, (gold, others[3]), ("long",), (0,))
        for i, (question, gold) in enumerate(questions)
    ]
    found = shortcuts.features(asked)
    assert [one["near_duplicate"] for one in found] == [True, True, False, False]
    assert [one["shared_gold"] for one in found] == [True, False, True, False]


def test_one_long_text_has_a_place_of_gold_and_no_rules():
    text = "a b c d " * 10  # 80 characters
    stretches = [Stretch(0, start, start + 8) for start in (0, 36, 72, 36)]
    asked = [
        Example(str(i), f"{i}?", (Document("T", text + str(i)),), ("a",), (0,), (s,))
        for i, s in enumerate(stretches)
    ]
    found = shortcuts.features(asked)
    assert [one["place_of_gold"] for one in found] == pytest.approx(
        [4 / 81, 40 / 81, 76 / 81, 40 / 81]
    )
    assert "gold_at_random" not in found[0]
    assert all(one["shared_gold"] for one in found), "the same words in each stretch"


@pytest.fixture
def run(tmp_path):
    """Gold is the shortest document of 15 of 20 questions, and a ranker is right there alone."""
    gold = [i % 9 for i in range(20)]
    lengths = []
    for i, place in enumerate(gold):
        row = [10 + n for n in range(9)]
        row[place] = 5 if i < 15 else 30
        lengths.append(row)
    write_questions(tmp_path, "nq_open", lengths, gold)
    right = [i < 15 for i in range(20)]
    write_variant(tmp_path, "ranked", "shortest", right, params={"top_k": 1}, documents=9)
    write_variant(tmp_path, "naive", "naive", [i % 2 == 0 for i in range(20)], documents=9)
    return tmp_path


@pytest.mark.parametrize("item", ["superposition_table_1", "frontier", "dataset_shortcuts"])
def test_a_rule_above_chance_is_named_below_every_table_of_the_data_set(run, item):
    write_questions(run, "musique", [[5] * 9] * 20)
    write_variant(run, "naive", "naive", [True] * 20, dataset="musique", documents=9)
    small = writing.small_print(item, Runs(run), table(item, run))
    assert small.count("Shortcuts of nq_open: gold is shortest 75% (at random 11%).") == 1
    if item != "superposition_table_1":  # which has no MuSiQue
        assert "Shortcuts of musique: gold is first 100% (at random 11%)." in small


def test_tables_of_rankers_split_questions_by_the_best_rule(run):
    rows = table("superposition_table_1", run)
    expected = {"ranked": (1, 0), "naive": (8 / 15, 2 / 5)}
    for variant, parts in expected.items():
        names = ("accuracy_where_gold_is_shortest", "accuracy_elsewhere")
        lines = [line(rows, variant=variant, quantity=name) for name in names]
        assert [one["measured"] for one in lines] == pytest.approx(parts)
        assert [one["n"] for one in lines] == [15, 5]


def test_the_order_of_a_studys_retrieval_is_no_shortcut(tmp_path):
    write_questions(tmp_path, "study", [[5] * 9] * 20)
    write_variant(tmp_path, "naive", "naive", [True] * 20, dataset="study", documents=9)
    small = writing.small_print("frontier", Runs(tmp_path), table("frontier", tmp_path))
    assert "Measured" in small
    assert "Shortcuts" not in small


def test_the_item_has_each_data_sets_rules(run):
    rows = table("dataset_shortcuts", run)
    shortest = line(rows, dataset="nq_open", quantity="gold_is_shortest")
    assert (shortest["measured"], shortest["n"]) == (0.75, 20)
    assert 0.4 < shortest["low"] < 0.75 < shortest["high"] < 1
    assert line(rows, quantity="gold_at_random")["measured"] == pytest.approx(1 / 9)
    assert "gold is shortest" in shown("dataset_shortcuts", rows)


def test_questions_beyond_the_limit_do_not_count(run):
    config = {"run": "r", "models": {MODEL: {}}, "datasets": {"nq_open": {"limit": 15}}}
    rows = table("dataset_shortcuts", run, config)
    shortest = line(rows, dataset="nq_open", quantity="gold_is_shortest")
    assert (shortest["measured"], shortest["n"]) == (1, 15)
