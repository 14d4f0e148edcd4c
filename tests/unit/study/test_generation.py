"""Questions that a model writes: what is asked about, what is left out and why, and a run that was
stopped.
"""

import pytest

from json_lines import write_lines
from ragauge.errors import UserError
from ragauge.study import generation
from ragauge.study.generation import generate
from ragauge.study.passages import Passage
from ragauge.study.questions import read_questions
from scripted_chat import ScriptedChat as Scripted

KIND = ("malformed", "asks for another kind of answer")
PLACES = ["Assam", "Kerala", "Nilgiri", "Sikkim", "Munnar", "Darjeeling", "Kangra", "Tripura"]


def corpus():
    return [
        Passage(
            f"leaf {i}",
            f"The finest leaf number {i}{i} of the whole region comes from {place} in early spring.",
        )
        for i, place in enumerate(PLACES)
    ]


def answer(request):
    return request.rpartition("Answer: ")[2]


def asks(request):
    """A question about the title, of the answer's kind, that does not hold the answer."""
    title = request.rpartition("Text: ")[2].partition(":")[0]
    begins = "How many a number has" if answer(request).isdigit() else "From which region comes"
    return f"{begins} the finest {title} in spring?"


def reads(request):
    """The names and numbers of a shown document; nothing without one."""
    return request.partition("[Document]")[2].partition("Question:")[0] or "I do not know."


def made(writer, reader, wanted=3, max_attempts=30, **more):
    return generate(wanted, corpus(), writer, reader, max_attempts=max_attempts, **more)  # type: ignore[arg-type]


def test_questions_are_about_answers_that_stand_in_their_passages_and_make_a_file(
    tmp_path,
):
    found = made(Scripted(asks), Scripted(reads))
    assert len(found.questions) == 3
    assert found.ended_by == "questions"
    for written in found.questions:
        line = written.to_json()
        assert (
            line["passage"][line["start"] : line["stop"]]
            == line["answers"][0]
            == written.question.answers[0]
        )
        assert written.question.gold == written.spot.passage.document
        assert line["answers"][0] not in line["question"]
    path = write_lines(tmp_path / "generated.jsonl", (w.to_json() for w in found.questions))
    assert read_questions(path) == [w.question for w in found.questions]


def test_the_seed_fixes_what_is_asked_about():
    spots = [[s.answer for s in generation.drawn(corpus(), seed)] for seed in (0, 0, 1)]
    assert spots[0] == spots[1] != spots[2]
    assert sorted(spots[0]) == sorted(spots[2])


def test_a_question_begins_as_the_kind_of_its_answer_wants_where_a_model_allows_it():
    texts = {"19 May 1921": "When", "1921": "When", "77 people": "How many", "Ada Byron": ""}
    for answer_, begin in texts.items():
        passages = [
            Passage(
                "t", f"the finest leaf of the whole region is that of {answer_} in early spring."
            )
        ]
        goes_on = "is the best plant of this region picked?"
        whole = f"{begin} {goes_on}".strip()
        opened = Scripted(lambda _, said=goes_on: said, opens=True)
        for writer in (opened, Scripted(lambda _, said=whole: said)):
            [written] = generate(1, passages, writer, Scripted(reads), max_attempts=1).questions
            assert (written.spot.answer, written.text) == (answer_, whole)
        assert opened.cues[-1] == f"Question: {begin}".strip()


def test_near_duplicates_are_not_asked_about():
    passages = [Passage("a", corpus()[0].text), Passage("b", corpus()[1].text, near_duplicate=True)]
    assert {spot.passage.document for spot in generation.drawn(passages, 0)} == {"a"}


@pytest.mark.parametrize(
    ("says_", "reads_", "reason", "detail"),
    [
        (lambda r: None, reads, "malformed", "no reply"),
        (lambda r: asks(r)[:-1], reads, "malformed", "no question mark"),
        (
            lambda r: asks(r).replace("in spring", "in the passage"),
            reads,
            "malformed",
            "speaks of the text",
        ),
        (lambda r: f"{answer(r)}: {asks(r)}", reads, "malformed", "holds its answer"),
        (lambda r: asks(r + "x" if answer(r).isdigit() else r + "\nAnswer: 7"), reads, *KIND),
        (lambda r: asks("Text: leaf: \nAnswer: " + answer(r)), reads, "duplicate", ""),
        (
            asks,
            lambda r: "It is " + ", ".join(PLACES) + " 00 11 22 33 44 55 66 77",
            "without_documents",
            "",
        ),
        (asks, lambda r: "I do not know.", "not_answered", ""),
        (asks, lambda r: reads(r) if "Document" in r else None, "not_answered", ""),
    ],
)
def test_what_is_left_out_is_counted_with_its_reason(
    says_,
    reads_,
    reason,
    detail,
):
    """Of eight passages; the question of the first is a good one, as a run that keeps none ends
    with an error.
    """
    writer = Scripted(lambda request: asks(request) if "leaf 0" in request else says_(request))
    reader = Scripted(lambda request: reads(request) if "leaf 0" in request else reads_(request))
    found = made(writer, reader, wanted=50, max_attempts=8)
    assert found.rejected[reason] >= 5
    assert sum(found.rejected.values()) + len(found.questions) == found.attempts == 8
    assert found.questions
    assert not detail or set(found.malformed) == {detail}


def test_an_answer_in_another_passage_is_left_out_but_not_one_in_a_copy():
    own = "The finest leaf of the whole region comes from Assam in early spring."
    passages = [Passage("leaf", own), Passage("copy", f"A longer text. {own}", near_duplicate=True)]
    [written] = generate(1, passages, Scripted(asks), Scripted(reads), max_attempts=1).questions
    assert written.spot.answer == "Assam"
    other = Passage(
        "rain",
        "Rain falls in Assam, and the finest leaf of the region is wet.",
        near_duplicate=True,
    )
    with pytest.raises(UserError, match="rejected: 1 another passage holds the answer"):
        generate(1, [*passages, other], Scripted(asks), Scripted(reads), max_attempts=1)


def test_fewer_than_asked_for_are_said_and_none_is_an_error():
    found = made(Scripted(asks), Scripted(reads), wanted=50, max_attempts=8)
    assert found.ended_by == "attempts"
    assert " questions from 8 attempts (the maximum), fewer than the 50" in str(found)
    with pytest.raises(
        UserError, match=r"--generate-questions: 0 questions from 16 attempts.*16 malformed"
    ) as error:
        made(Scripted(lambda r: "No."), Scripted(reads))
    assert "\n" not in str(error.value)


def test_no_batch_is_begun_when_time_is_up():
    writer = Scripted(asks)
    with pytest.raises(UserError, match="until time was up"):
        made(writer, Scripted(reads), until=0.0, at_last=0.0)
    assert not writer.requests
    found = made(writer, Scripted(reads), wanted=12, until=0.0)
    assert found.ended_by in ("time", "questions")
    assert (
        generation.MIN_QUESTIONS
        <= len(found.questions)
        < generation.MIN_QUESTIONS + generation.BATCH
    )
    fewer = made(Scripted(asks), Scripted(reads), wanted=4, until=0.0)
    assert (len(fewer.questions), fewer.attempts) == (4, generation.BATCH)
