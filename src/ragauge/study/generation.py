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
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from ragauge.datasets.study import StudyQuestions
from ragauge.errors import UserError
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
SENTENCE_WORDS = range(6, 61)
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
    """An answer where it stands: a stretch of a passage; and the question written about it."""

    passage: Passage
    sentence: str  # around it
    start: int  # first character in the passage's text
    stop: int  # after the last one
    question: str = ""

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

    @property
    def study_question(self) -> StudyQuestion:
        return StudyQuestion(self.question, (self.answer,), self.passage.document)

    def to_json(self) -> dict[str, Any]:
        """Make a line of a file of questions, with the passage and the answer's place in it."""
        return {
            "question": self.question,
            "answers": [self.answer],
            "gold": self.passage.document,
            "passage": self.passage.text,
            "start": self.start,
            "stop": self.stop,
        }


@dataclass
class Generated:
    """The written questions that are used, and the reasons against the others."""

    wanted: int
    questions: list[Spot] = field(default_factory=list)
    attempts: int = 0
    rejected: Counter[str] = field(default_factory=Counter)  # a reason of REASONS -> questions
    ending: str = ""  # why no more was tried

    def account(self) -> dict[str, Any]:
        return {
            "wanted": self.wanted,
            "kept": len(self.questions),
            "attempts": self.attempts,
            "left_out": {reason: self.rejected[reason] for reason in REASONS},
        }

    def __str__(self) -> str:
        rejected = ", ".join(
            f"{self.rejected[why]} {text}" for why, text in REASONS.items() if self.rejected[why]
        )
        few = (
            f", fewer than the {self.wanted} requested" if len(self.questions) < self.wanted else ""
        )
        tried = f"{len(self.questions)} questions from {self.attempts} attempts{self.ending}{few}"
        return f"{tried}; rejected: {rejected or 'none'}"


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
    tried. No more than `max_attempts` spots are tried. By the monotonic clock, no batch begins after
    `until` if there are enough questions, and none at all after `at_last`. Raises UserError: no
    question can be used, or a model gives no reply.
    """
    generated = Generated(wanted)
    questions = generated.questions
    checks = _Checks(passages, reader)
    spots = drawn(passages, seed)
    with bar("writing questions", "question", wanted) as progress:
        while len(questions) < wanted:
            if generated.attempts == max_attempts:
                generated.ending = " (the maximum)"
                break
            is_enough = len(questions) >= min(wanted, MIN_QUESTIONS)
            if time.monotonic() > (until if is_enough else at_last):
                generated.ending = ", until time was up"
                break
            batch = list(islice(spots, min(BATCH, max_attempts - generated.attempts)))
            if not batch:
                generated.ending = ", all that the passages give"
                break
            generated.attempts += len(batch)
            reasons = checks.reasons(_written(batch, writer))
            generated.rejected.update(filter(None, reasons.values()))
            questions += [spot for spot, reason in reasons.items() if not reason]
            progress.n = min(len(questions), wanted)
            progress.set_postfix_str(f"{generated.attempts} attempts of at most {max_attempts}")
    del questions[wanted:]
    if not questions:
        raise UserError(
            f"--generate-questions: {generated}; give a file with --questions, or another --writer"
        )
    return generated


def _written(batch: Sequence[Spot], writer: Chat) -> list[Spot]:
    """Have a question written for each spot, empty where there is no reply; where a model allows
    it, the question begins as the answer's kind wants it.
    """
    written: dict[Spot, Spot] = {}
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
        cue = f"{sft.CUE} {word}".rstrip()
        replies = writer.replies(requests, sft.QUESTION_TOKENS, cue, sft.ALONE)
        opened = word if writer.opens else ""
        for spot, reply in zip(group, replies, strict=True):
            text = f"{opened} {reply.strip()}" if reply is not None else ""
            written[spot] = replace(spot, question=sft.first_question(text))
    return [written[spot] for spot in batch]


class _Checks:
    """Checks whether questions measure retrieval."""

    def __init__(self, passages: Sequence[Passage], reader: Chat) -> None:
        texts = [f"{passage.document} {passage.text}" for passage in passages]
        self.index = CorpusBM25(texts)
        self.reader = reader
        self.texts = [comparable(text) for text in texts]
        # not to be copied
        self.questions = {comparable(example.rpartition("Question: ")[2]) for example in EXAMPLES}

    def reasons(self, written: Sequence[Spot]) -> dict[Spot, str]:
        """Say why each question is rejected, with a reason of REASONS; "" where it is used.

        A question to which the reader gives no reply is rejected: nothing says whether documents
        are needed.
        """
        reasons = {spot: self._by_texts(spot) for spot in written}
        asked = {spot: query_text(spot.question) for spot, why in reasons.items() if not why}
        known = self._are_answered(asked)
        shown = {}
        for spot, query in asked.items():
            reasons[spot] = "without_documents" if known[spot] else "not_answered"
            if known[spot] is False:
                document = document_text(spot.passage.document, spot.passage.text)
                shown[spot] = f"{StudyQuestions.preamble}\n\n{document}\n{query}"
        for spot, is_answered in self._are_answered(shown).items():
            reasons[spot] = "" if is_answered else "not_answered"
        return reasons

    def _by_texts(self, spot: Spot) -> str:
        """Reject a question that is malformed or repeated, or whose answer further passages hold. A
        passage that holds the whole sentence around the answer is the same one: a neighbour that
        overlaps, a copy.
        """
        question, answer, sentence = map(comparable, (spot.question, spot.answer, spot.sentence))
        if (
            answer in question
            or spot.is_number != bool(_ASKS_NUMBER.search(question))
            or sft.problem(spot.question, spot.sentence, spot.passage.document)
        ):
            return "malformed"
        if question in self.questions:
            return "duplicate"
        self.questions.add(question)
        [scores] = self.index.scores([spot.question])
        near = (-scores).argsort(kind="stable")[:NEIGHBOURS]
        others = [self.texts[i] for i in near if sentence not in self.texts[i]]
        return "several_passages" if any(answer in other for other in others) else ""

    def _are_answered(self, requests: Mapping[Spot, str]) -> dict[Spot, bool | None]:
        """Whether the reader's reply to each request holds the answer; None: there is no reply."""
        replies = self.reader.replies(list(requests.values()), ANSWER_TOKENS) if requests else []
        answered: dict[Spot, bool | None] = {}
        for spot, reply in zip(requests, replies, strict=True):
            record = {"prediction": reply, "answers": [spot.answer]}
            answered[spot] = None if reply is None else bool(score("contains_answer", record))
        return answered


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
    spots: list[Spot] = []
    for pattern in (_SPOT, _LONG_WORD):
        for start, stop in sentences.split(text) if not spots else ():
            sentence = text[start:stop].strip()
            if not sft.is_prose(sentence) or len(sentence.split()) not in SENTENCE_WORDS:
                continue
            begin = text.index(sentence, start)
            spots += [
                Spot(passage, sentence, *match.span())
                for match in pattern.finditer(text, begin, stop)
                if match.start() > begin or match[0][0].isdigit()
            ]
    answers = [(spot, comparable(spot.answer).split()) for spot in spots]
    return [
        spot
        for spot, words in answers
        if len(" ".join(words)) > 1 and not title.issuperset(words) and len(words) <= ANSWER_WORDS
    ]
