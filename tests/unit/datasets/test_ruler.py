"""RULER's tasks as sets of documents: equal lengths, no shortcut, answers where they are said to be."""

import random
import re
from collections import Counter
from typing import get_args

import pytest

from json_lines import write_lines
from ragauge.assets import resolver
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.datasets.base import loader
from ragauge.datasets.ruler import Ruler
from ragauge.errors import UserError
from ragauge.options import option_types
from ragauge.results import shortcuts

TASKS = get_args(option_types(Ruler)["task"])
NEEDLES = [task for task in TASKS if task.startswith("needle")]


def made(task, limit=300, **options):
    return loader.load("ruler", task=task, limit=limit, **options)


@pytest.fixture
def passages(tmp_path):
    """Questions among passages of random words of 30 to 60 words, gold anywhere, the answer once."""
    draw = random.Random(5)
    rows = []
    for number in range(60):
        gold = draw.randrange(8)
        texts = [
            " ".join("".join(draw.choices("abcdefgh", k=5)) for _ in range(draw.randint(30, 60)))
            for _ in range(8)
        ]
        texts[gold] += f" zq{number}z"
        documents = [
            {"title": f"T{number}", "text": text, "is_gold": i == gold}
            for i, text in enumerate(texts)
        ]
        row = {"id": f"q{number}", "question": "which?", "answers": [f"zq{number}z"]}
        rows.append({**row, "documents": documents})
    return write_lines(tmp_path / "passages.jsonl", rows)


@pytest.mark.parametrize(("tokens", "documents"), [(1024, 7), (4096, 20)])
@pytest.mark.parametrize("task", TASKS)
def test_no_rule_but_pairs_of_words_finds_the_gold_documents(task, tokens, documents):
    """A needle is found by its key: two words of the question that follow one another."""
    found = shortcuts.summary(shortcuts.features(made(task, tokens=tokens, documents=documents)), 0)
    if task == "common_words":  # all documents are gold
        assert shortcuts.CHANCE not in found
        return
    chance = found[shortcuts.CHANCE].value
    *single, pairs = shortcuts.RULES
    for rule in single:  # every place is gold about as often, everything else is a tie
        assert found[rule].value == pytest.approx(chance, abs=0.02), rule
    assert shortcuts.above_chance(found) == [pairs] * task.startswith("needle")
    assert found["answer_elsewhere"].value < 0.02 or task == "variable_tracking"


@pytest.mark.parametrize("model", ["smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct"])
@pytest.mark.parametrize("task", TASKS)
def test_documents_are_equally_long_in_tokens(task, model):
    try:
        tokenizer = load_tokenizer(resolver.resolve(model))
    except UserError as error:
        pytest.skip(f"needs the tokenizer of {model}: {error}")
    for tokens, documents in ((1024, 5), (9000, 30)):
        for example in made(task, 3, tokens=tokens, documents=documents):
            lengths = {
                len(tokenizer(f"[Document] {d.text}\n", add_special_tokens=False)["input_ids"])
                for d in example.documents
            }
            assert len(lengths) == 1
            assert 0.85 * tokens < lengths.pop() * documents < 1.05 * tokens


@pytest.mark.parametrize("task", NEEDLES)
def test_the_answers_are_the_numbers_that_the_text_gives_for_the_keys(task):
    """Read by a plain search, over texts of all documents."""
    for example in made(task, 40, tokens=2048, documents=9):
        listed = re.search(r"for (.*) mentioned", example.question)[1]
        keys = listed.replace("and ", "").split(", ")
        whole = " ".join(d.text for d in example.documents)
        found = [
            value
            for key in keys
            for value in re.findall(rf"numbers for {key} is: (\d{{7}})\.", whole)
        ]
        assert sorted(found) == sorted(example.answers)
        assert len(found) == {"needle_multivalue": 4, "needle_multiquery": 4}.get(task, 1)
        holding = [
            i
            for i, d in enumerate(example.documents)
            if any(re.search(rf"\b{a}\b", d.text) for a in example.answers)
        ]
        assert set(example.gold) <= set(holding)
        others = whole.count("special magic numbers for") - len(found)
        assert others == (8 if task == "needle_multikey" else 0)


def test_the_variables_are_those_that_a_walk_over_the_assignments_finds():
    for example in made("variable_tracking", 40, tokens=2048, documents=12):
        value = re.search(r"value (\d{5}) ", example.question)[1]
        whole = " ".join(d.text for d in example.documents)
        links = re.findall(r"VAR (\w+) = VAR (\w+)\.", whole)
        reached = set(re.findall(rf"VAR (\w+) = {value}\.", whole))
        for _ in links:
            reached |= {name for name, source in links if source in reached}
        assert reached == set(example.answers)
        assert len(example.gold) == len(example.answers) == 5


def test_common_words_are_the_ten_most_common_ones():
    for example in made("common_words", 20):
        counts = Counter(word for d in example.documents for word in d.text.split())
        assert {word for word, _ in counts.most_common(10)} == set(example.answers)
        assert len(example.gold) == 20


def test_needles_are_the_same_at_every_length_and_depend_on_the_seed():
    short, long = (
        made("needle_single", 5, tokens=t, documents=d) for t, d in ((512, 4), (9000, 50))
    )
    assert [e.question for e in short] == [e.question for e in long]
    assert [e.answers for e in short] == [e.answers for e in long]
    assert short != made("needle_single", 5, tokens=512, documents=4, seed=1)
    assert short == made("needle_single", 9, tokens=512, documents=4)[:5]


def test_every_place_has_equally_many_gold_documents():
    places = Counter(place for e in made("needle_multivalue", 60, documents=20) for place in e.gold)
    assert set(places.values()) == {12}
    assert len(places) == 20


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task": "needle"}, r"ruler\.task: .*needle_single.*got 'needle'"),
        ({"task": "needle_multiquery", "documents": 3}, "has 4 to 117; got 3"),
        (
            {"tokens": 512, "documents": 20},
            r"ruler\.documents: .* of 512 tokens has 1 to 14; got 20",
        ),
        ({"tokens": 0}, r"ruler\.tokens: .*got 0"),
    ],
)
def test_what_cannot_be_made_is_refused_with_the_choices(options, said):
    with pytest.raises(UserError, match=said):
        loader.make("ruler", **options)


def test_tasks_have_the_official_answer_lengths_and_instructions():
    lengths = {task: loader.make("ruler", task=task).max_new_tokens for task in TASKS}
    assert lengths == {
        **dict.fromkeys(NEEDLES, 128),
        "variable_tracking": 30,
        "common_words": 120,
    }
    assert len({loader.make("ruler", task=task).instruction for task in TASKS}) == 4


# ---- questions over passages


def test_questions_stand_among_documents_of_as_many_words(passages):
    examples = loader.load("ruler_qa", data=passages, tokens=4096, documents=20)
    assert len(examples) == 60
    for example in examples:
        assert {len(d.text.split()) for d in example.documents} == {136}
        assert len(example.documents) == 20
        holding = [
            i for i, d in enumerate(example.documents) if example.answers[0] in d.text.split()
        ]
        assert holding == list(example.gold)
    places = Counter(example.gold[0] for example in examples)
    assert set(places.values()) == {3}
    middles = [
        d.text.split().index(e.answers[0]) for e in examples for d in [e.documents[e.gold[0]]]
    ]
    assert min(middles) < 50
    assert max(middles) > 110


def test_a_gold_passage_longer_than_a_document_is_left_out(passages):
    asked = loader.load("ruler_qa", data=passages, tokens=512, documents=8)  # 42 words each
    assert 0 < len(asked) < 60
    with pytest.raises(UserError, match=r"ruler_qa\.documents: no gold passage fits the 8 words"):
        loader.load("ruler_qa", data=passages, tokens=512, documents=40)


def test_more_tokens_than_the_passages_have_are_refused(passages):
    with pytest.raises(UserError, match=r"ruler_qa\.tokens: .* too few passages .*; got 100000"):
        loader.load("ruler_qa", data=passages, tokens=100_000, documents=20)


def test_no_rule_that_reads_nothing_finds_the_gold_passages_of_our_own_questions():
    try:
        examples = loader.load("ruler_qa", tokens=4096, documents=20)
    except UserError as error:
        pytest.skip(f"needs the Wikipedia sample: {error}")
    found = shortcuts.summary(shortcuts.features(examples), 0)
    assert not {*shortcuts.BLIND, "gold_has_most_title_words"} & {*shortcuts.above_chance(found)}
    assert len(examples) > 150


# ---- the metrics
