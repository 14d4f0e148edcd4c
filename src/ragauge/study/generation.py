"""Questions that a model writes about answers in the passages, where a study has none.

As CFIC's training data are made (`methods/evidence/sft.py`), but that the span is a short answer,
which can be scored: a name or a number of a passage drawn at random. A question is used only if the
reader of the study answers it with the passage and not without, and no other passage that retrieval
would find holds the answer.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ragauge.datasets.study import StudyQuestions
from ragauge.errors import UserError
from ragauge.io.jsonl import JsonObject
from ragauge.io.progress import bar
from ragauge.methods.evidence import sentences, sft
from ragauge.methods.evidence.chat import Chat
from ragauge.methods.prompts.templates import document_text, query_text
from ragauge.methods.rankers.bm25 import CorpusBM25
from ragauge.metrics.base import comparable, score
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion

ATTEMPTS = 25  # for each requested question, at most
MIN_QUESTIONS = 10  # questions: with fewer, a report recommends nothing
BATCH = 8  # spots whose questions are written side by side
ROUNDS = 4  # spots of one passage at most, one in each round over all passages
NEIGHBOURS = 10  # first passages by BM25 among which no other one may hold the answer
ANSWER_TOKENS = 32  # of a reader's reply
ANSWER_WORDS = 6  # of a spot at most
SENTENCE_WORDS = (6, 60)
EXAMPLES = (  # those that ask for a number, then those that ask for a name
    """Text: The lighthouse of Corvo was built in 1862 by the engineer Ana Lima.
Answer: 1862
Question: In which year was the lighthouse of Corvo built?""",
    """Text: After every 400 hours the pump P7 must be filled with new oil by hand.
Answer: 400 hours
Question: After how many hours does the pump P7 need new oil?""",
    """Text: The first book of Iva Horn, a botanist from Graz, is about moss.
Answer: Iva Horn
Question: Who wrote a book about moss?""",
    """Text: The river Tarn rises near Mont Lozere and carries little water in summer.
Answer: Mont Lozere
Question: Where does the river Tarn rise?""",
)
REQUEST = """Write a short question that the answer fits.

{examples}

Text: {title}: {text}
Answer: {answer}"""

REASONS = {  # why a question is rejected, in the order in which it is checked
    "malformed": "malformed",
    "duplicate": "repeated",
    "several_passages": "another passage holds the answer",
    "without_documents": "answered without documents",
    "not_answered": "not answered from its own passage",
}

_NAME = r"[A-ZÀ-ÖØ-Þ][\w'’-]*(?:[ ](?:(?:of|the|and|de|la|von|van)[ ])?[A-ZÀ-ÖØ-Þ][\w'’-]*)*"
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
)
_UNIT = r"%|percent|years?|million|billion|km|kg|cm|mm|hours?|minutes?|days?|people"
_NUMBER = rf"\d[\d.,]*\d(?:[ ]?(?:{_UNIT})\b)?"
_DATE = rf"\d{{1,2}}[ ]{_MONTH}(?:[ ]\d{{4}})?|{_MONTH}[ ]\d{{1,2}},[ ]\d{{4}}|{_MONTH}[ ]\d{{4}}"
_SPOT = re.compile(rf"{_DATE}|(?!{_MONTH}\b){_NAME}|{_NUMBER}")
_WHEN = re.compile(rf"{_MONTH}|^1\d{{3}}$|^20\d{{2}}$")
_ASKS_NUMBER = re.compile(
    r"\b(when|year|date|day|many|much|long|old|far|high|large|number|percent|percentage)\b"
)
_LONG_WORD = re.compile(r"[^\W\d_]{7,}")


@dataclass(frozen=True)
class Spot:
    """An answer where it stands: a stretch of a passage."""

    passage: Passage
    sentence: str  # around it
    start: int  # first character in the passage's text
    stop: int  # after the last one

    @property
    def answer(self) -> str:
        return self.passage.text[self.start : self.stop]

    @property
    def is_number(self) -> bool:
        """Whether it is a number, a date or a quantity rather than a name."""
        return any(map(str.isdigit, self.answer))

    @property
    def question_word(self) -> str:
        """The beginning of a question after it; empty for a name, of which nobody knows what it
        names.
        """
        return ("When" if _WHEN.search(self.answer) else "How many") if self.is_number else ""


@dataclass(frozen=True)
class Written:
    """A question, and where its answer stands."""

    text: str
    spot: Spot

    @property
    def question(self) -> StudyQuestion:
        return StudyQuestion(self.text, (self.spot.answer,), self.spot.passage.document)

    def to_json(self) -> JsonObject:
        """Make a line of a file of questions, with the passage and the answer's place in it."""
        return {
            "question": self.text,
            "answers": [self.spot.answer],
            "gold": self.spot.passage.document,
            "passage": self.spot.passage.text,
            "start": self.spot.start,
            "stop": self.spot.stop,
        }


@dataclass
class Generated:
    """The written questions that are used, and the reasons against the others."""

    wanted: int
    max_attempts: int
    questions: list[Written] = field(default_factory=list)
    attempts: int = 0
    rejected: Counter[str] = field(default_factory=Counter)  # a reason of REASONS -> questions
    malformed: Counter[str] = field(default_factory=Counter)  # what was wrong with them
    ended_by: str = "passages"  # or attempts, questions, time

    def account(self) -> JsonObject:
        return {
            "wanted": self.wanted,
            "kept": len(self.questions),
            "attempts": self.attempts,
            "most_attempts": self.max_attempts,
            "ended_by": self.ended_by,
            "left_out": {reason: self.rejected[reason] for reason in REASONS},
            "malformed": dict(self.malformed.most_common()),
        }

    def __str__(self) -> str:
        ends = {
            "attempts": " (the maximum)",
            "passages": ", all that the passages give",
            "time": ", until time was up",
        }
        tried = f"{self.attempts} attempts{ends.get(self.ended_by, '')}"
        rejected = ", ".join(
            f"{self.rejected[why]} {text}" for why, text in REASONS.items() if self.rejected[why]
        )
        few = (
            f", fewer than the {self.wanted} requested" if len(self.questions) < self.wanted else ""
        )
        return f"{len(self.questions)} questions from {tried}{few}; rejected: {rejected or 'none'}"


def generate(
    wanted: int,
    passages: Sequence[Passage],
    writer: Chat,
    reader: Chat,
    *,
    max_attempts: int,
    seed: int = 0,
    until: float = float("inf"),
    at_last: float = float("inf"),
) -> Generated:
    """Have questions written about the passages, at most `wanted`; the seed fixes which spots are
    tried. No more than `max_attempts` spots are tried. By the monotonic clock, no batch begins
    after `until` if there are enough questions, and none at all after `at_last`.

    Raises:
        UserError: no question can be used, or a model gives no reply.
    """
    generated = Generated(wanted, max_attempts)
    checks = _Checks([f"{passage.document} {passage.text}" for passage in passages], reader)
    spots = drawn(passages, seed)
    with bar("writing questions", "question", wanted) as progress:
        while True:
            batch = list(islice(spots, min(BATCH, max_attempts - generated.attempts)))
            if not batch:
                break
            if time.monotonic() > (
                until if len(generated.questions) >= min(wanted, MIN_QUESTIONS) else at_last
            ):
                generated.ended_by = "time"
                break
            before = len(generated.questions)
            _write(batch, writer, checks, generated)
            progress.update(min(len(generated.questions), wanted) - before)
            progress.set_postfix_str(f"{generated.attempts} attempts of at most {max_attempts}")
            if len(generated.questions) >= wanted:
                generated.ended_by = "questions"
                break
            if generated.attempts >= max_attempts:
                generated.ended_by = "attempts"
    del generated.questions[wanted:]
    if not generated.questions:
        raise UserError(
            f"--generate-questions: {generated}; give a file with --questions, or another --writer"
        )
    return generated


def _write(batch: Sequence[Spot], writer: Chat, checks: _Checks, generated: Generated) -> None:
    generated.attempts += len(batch)
    sound = []
    for spot, reply in zip(batch, _replies(batch, writer), strict=True):
        written = Written(sft.first_question(reply or ""), spot)
        problem = "no reply" if reply is None else _problem(written)
        if problem:
            generated.malformed[problem] += 1
        reason = "malformed" if problem else checks.by_texts(written)
        if reason:
            generated.rejected[reason] += 1
        else:
            sound.append(written)
    reasons = checks.by_reader(sound)
    generated.rejected.update(reasons.values())
    generated.questions += [written for written in sound if written not in reasons]


def _replies(batch: Sequence[Spot], writer: Chat) -> list[str | None]:
    """The writer's reply for each spot; where a model allows it, the question begins as the
    answer's kind wants it.
    """
    replies = {}
    for word in dict.fromkeys(spot.question_word for spot in batch):
        group = [spot for spot in batch if spot.question_word == word]
        requests = []
        for spot in group:  # the examples of the answer's kind stand last, nearest to it
            examples = EXAMPLES[2:] + EXAMPLES[:2] if spot.is_number else EXAMPLES
            request = REQUEST.format(
                examples="\n\n".join(examples),
                title=spot.passage.document,
                text=spot.passage.text,
                answer=spot.answer,
            )
            requests.append(request)
        answers = writer.replies(
            requests, sft.QUESTION_TOKENS, f"{sft.CUE} {word}".rstrip(), sft.ALONE
        )
        opened = word if writer.opens else ""
        for spot, text in zip(group, answers, strict=True):
            replies[spot] = None if text is None else f"{opened} {text.strip()}"
    return [replies[spot] for spot in batch]


def _problem(written: Written) -> str | None:
    spot = written.spot
    question = comparable(written.text)
    if comparable(spot.answer) in question:
        return "holds its answer"
    if spot.is_number != bool(_ASKS_NUMBER.search(question)):
        return "asks for another kind of answer"
    return sft.problem(written.text, spot.sentence, spot.passage.document)


class _Checks:
    """Checks whether well-formed questions measure retrieval."""

    def __init__(self, texts: Sequence[str], reader: Chat) -> None:
        self.index = CorpusBM25(texts)
        self.reader = reader
        self.texts = [comparable(text) for text in texts]
        # not to be copied
        self.questions = {comparable(example.rpartition("Question: ")[2]) for example in EXAMPLES}

    def by_texts(self, written: Written) -> str | None:
        """Reject a question that is repeated, or whose answer further passages hold; None if
        neither. A passage that holds the whole sentence around the answer is the same one: a
        neighbour that overlaps, a copy.
        """
        question = comparable(written.text)
        if question in self.questions:
            return "duplicate"
        self.questions.add(question)
        answer, sentence = (
            comparable(text) for text in (written.spot.answer, written.spot.sentence)
        )
        [scores] = self.index.scores([written.text])
        near = (-scores).argsort(kind="stable")[:NEIGHBOURS]
        others = [self.texts[i] for i in near if sentence not in self.texts[i]]
        return "several_passages" if any(answer in other for other in others) else None

    def by_reader(self, written: Sequence[Written]) -> dict[Written, str]:
        """Reject, with the reason, questions that the reader answers without documents, or not with
        the passage. One to which it gives no reply is rejected: nothing says whether documents are
        needed.
        """
        without = self._answers({question: query_text(question.text) for question in written})
        requests = {}
        for question in written:
            if without[question] is False:
                passage = question.spot.passage
                document = document_text(passage.document, passage.text)
                query = query_text(question.text)
                requests[question] = f"{StudyQuestions.preamble}\n\n{document}\n{query}"
        answered = self._answers(requests)
        return {
            question: "without_documents" if without[question] else "not_answered"
            for question in written
            if not answered.get(question)
        }

    def _answers(self, requests: Mapping[Written, str]) -> dict[Written, bool | None]:
        """Whether the reader's reply to the request holds the question's answer; None: there is no
        reply.
        """
        replies = self.reader.replies(list(requests.values()), ANSWER_TOKENS) if requests else []
        answers = {}
        for question, reply in zip(requests, replies, strict=True):
            record = {"prediction": reply, "answers": [question.spot.answer]}
            answers[question] = None if reply is None else bool(score("contains_answer", record))
        return answers


def drawn(passages: Sequence[Passage], seed: int) -> Iterator[Spot]:
    """Draw spots of passages in random order, one of each, then further ones; none of
    near-duplicates.
    """
    order = [passage for passage in passages if not passage.near_duplicate]
    random.Random(seed).shuffle(order)
    for number in range(ROUNDS):
        for passage in order:
            spots = _spots(passage)
            random.Random(f"{seed}/{passage.document}/{passage.text}").shuffle(spots)
            yield from spots[number : number + 1]


def _spots(passage: Passage) -> list[Spot]:
    """The names and numbers in a passage's sentences of prose; where there are none, long words.
    None that begins a sentence with a capital, as any word does, and none whose words the title
    has: a question may name it.
    """
    text = passage.text
    title = set(comparable(passage.document).split())
    lengths = range(SENTENCE_WORDS[0], SENTENCE_WORDS[1] + 1)
    parts = [(text[start:stop], stop) for start, stop in sentences.split(text)]
    prose = [part for part in parts if sft.is_prose(part[0]) and len(part[0].split()) in lengths]
    spots: list[Spot] = []
    for pattern in (_SPOT, _LONG_WORD):
        for sentence, stop in prose if not spots else ():
            begins = stop - len(sentence.lstrip())
            matches = [
                m
                for m in pattern.finditer(text, begins, stop)
                if m.start() > begins or m[0][0].isdigit()
            ]
            spots += [Spot(passage, sentence.strip(), *match.span()) for match in matches]
    answers = [(spot, comparable(spot.answer).split()) for spot in spots]
    return [
        spot
        for spot, words in answers
        if len(" ".join(words)) > 1 and not title.issuperset(words) and len(words) <= ANSWER_WORDS
    ]
