"""Our own questions: gold passages hold the answer, distractors do not, no sentence of the sample
is stored.
"""

import json
import re

import pytest

from ragauge.assets import resolver
from ragauge.datasets._wiki import (
    DOCUMENTS,
    QUESTIONS,
    SAMPLE,
    build_records,
    distractors,
    gold_passages,
    read_questions,
    records,
)
from ragauge.datasets.base import loader
from ragauge.datasets.base.wikipedia import read_passages
from ragauge.errors import UserError
from ragauge.metrics.base import normalise
from ragauge.results import shortcuts

# a run of so many words that a question and its article share would be a copied sentence
COPIED_WORDS = 8
FILES = [QUESTIONS / f"{name}.jsonl" for name in ("wiki_single", "wiki_multi")]
SINGLE, MULTI = map(read_questions, FILES)


@pytest.fixture(scope="module")
def corpus():
    try:
        sample = resolver.resolve(SAMPLE)
    except UserError as error:
        pytest.skip(f"needs the Wikipedia sample: {error}")
    return read_passages(sample)


def test_there_are_enough_questions_and_no_two_alike():
    assert len(SINGLE) >= 120
    assert len(MULTI) >= 40
    both = [*SINGLE, *MULTI]
    assert len({q.id for q in both}) == len({normalise(q.question) for q in both}) == len(both)


def test_no_markup_is_left(corpus):
    marked = [
        p.title for p in corpus if re.search(r"\{\{|\}\}|\{\||<ref|</|\|thumb|__[A-Z]+__", p.text)
    ]
    assert not marked


def test_gold_passages_exist_and_the_last_alone_holds_the_answer(corpus):
    for question in (*SINGLE, *MULTI):
        gold = gold_passages(question, corpus)
        assert len(set(gold)) == len(question.gold) == (2 if question.bridge else 1), question
        *others, last = (normalise(corpus[i].text) for i in gold)
        answers = [normalise(answer) for answer in question.answers]
        assert any(answer in last for answer in answers), question
        assert not any(answer in other for answer in answers for other in others), question
        assert all(
            any(normalise(bridge) in other for bridge in question.bridge) for other in others
        ), question


def test_no_question_gives_itself_away():
    for question in (*SINGLE, *MULTI):
        asked = normalise(question.question)
        assert not any(
            normalise(answer) in asked for answer in (*question.answers, *question.bridge)
        ), question


@pytest.mark.parametrize("questions", [SINGLE, MULTI], ids=["single", "multi"])
def test_no_sentence_of_the_sample_is_stored(corpus, questions):
    articles = {}
    for passage in corpus:
        articles[passage.article] = (
            articles.get(passage.article, "") + " ".join(words(passage.text)) + " "
        )
    for question in questions:
        for place in question.gold:
            stored = (question.question, place.near, *question.answers, *question.bridge)
            assert not any(copied(text, articles[place.article]) for text in stored), question


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_examples_have_twenty_documents_and_no_distractor_with_an_answer(corpus, path, monkeypatch):
    # which takes seconds
    monkeypatch.setattr("ragauge.datasets.base.wikipedia.read_passages", lambda _: corpus)
    for record in records(path, resolver.resolve(SAMPLE)):
        texts = [document["text"] for document in record["documents"]]
        assert len(set(texts)) == DOCUMENTS
        answers = [normalise(answer) for answer in record["answers"]]
        others = [normalise(d["text"]) for d in record["documents"] if not d["is_gold"]]
        assert not any(answer in text for answer in answers for text in others), record["id"]


def test_distractors_are_those_of_their_passages(corpus):
    with pytest.raises(
        UserError, match=r"distractors\.json: was chosen for other questions or passages"
    ):
        distractors(FILES[0], SINGLE, corpus[:-1])


def test_records_are_made_again_for_other_distractors(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(resolver, "resolve", lambda name: path)
    path = tmp_path / "q.jsonl"
    stored = tmp_path / "q.distractors.json"
    path.write_text("{}")
    made = []
    for text in ("[1]", "[2]", "[2]"):
        stored.write_text(text)
        made.append(build_records("q", path, path, lambda sample: [json.loads(stored.read_text())]))
    assert [json.loads(one.read_text()) for one in made] == [[1], [2], [2]]
    assert made[1] == made[2]


@pytest.mark.parametrize("name", ["wiki_single", "wiki_multi"])
def test_documents_are_shuffled_by_the_seed(name):
    documents = [{"title": "T", "text": f"text {n}", "is_gold": n < 2} for n in range(DOCUMENTS)]
    record = {"id": "a", "question": "what", "answers": ["text"], "documents": documents}
    first, again, other = (loader.make(name, seed=seed).parse(record, "f:1") for seed in (0, 0, 1))
    assert first == again != other
    for example in (first, other):
        assert {example.documents[i].text for i in example.gold} == {"text 0", "text 1"}


@pytest.mark.usefixtures("corpus")
@pytest.mark.parametrize("name", ["wiki_single", "wiki_multi"])
def test_no_rule_that_reads_nothing_finds_the_gold_passages(name):
    found = shortcuts.summary(shortcuts.features(loader.load(name)), seed=0)
    assert found["gold_is_shortest"].n == len(loader.load(name))
    assert not set(shortcuts.BLIND) & set(shortcuts.above_chance(found))


def words(text):
    return re.findall(r"\w+", text.lower())


def copied(text, article):
    found = words(text)
    return any(
        " ".join(found[i : i + COPIED_WORDS]) in article
        for i in range(len(found) - COPIED_WORDS + 1)
    )
