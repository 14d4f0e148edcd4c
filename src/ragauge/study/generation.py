"""Questions where there are none: a model writes them about answers that stand in passages.

As CFIC's training data are made (`evidence/sft.py`), but that the span is a short answer, which can be scored: a name
or a number of a passage drawn at random. What is written is kept only if the reader of the study answers it with the
passage and not without, and no other passage that retrieval would find holds the answer. All replies are kept in a
file, so that a run that was stopped asks nothing twice.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ragauge.datasets.study import StudyQuestions
from ragauge.errors import UserError
from ragauge.evidence import sentences, sft
from ragauge.evidence.chat import Chat
from ragauge.io.progress import bar
from ragauge.metrics import normalise, score
from ragauge.prompts.templates import document_text, query_text
from ragauge.study.passages import Passage
from ragauge.study.questions import StudyQuestion
from ragauge.study.retrieval import Bm25

ATTEMPTS = 25  # for each question that is asked for, at most
ENOUGH = 10  # questions: with fewer, a report recommends nothing
AT_ONCE = 8  # spots whose questions are written side by side
ROUNDS = 4  # spots of one passage at most, one in each round over all passages
NEIGHBOURS = 10  # first passages by BM25 among which no other one may hold the answer
ANSWER_TOKENS = 32  # of a reader's reply
ANSWER_WORDS = 6  # of a spot at most
SENTENCE_WORDS = (6, 60)
EXAMPLES = (  # ours; those that ask for a number, then those that ask for a name
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

# Why a question is left out, in the order in which it is looked for.
MALFORMED, DUPLICATE = "malformed", "duplicate"
SEVERAL, KNOWN, UNANSWERED = "several_passages", "without_documents", "not_answered"
REASONS = {
    MALFORMED: "malformed",
    DUPLICATE: "asked before",
    SEVERAL: "another passage holds the answer",
    KNOWN: "answered without documents",
    UNANSWERED: "not answered from its own passage",
}

_NAME = r"[A-ZÀ-ÖØ-Þ][\w'’-]*(?:[ ](?:(?:of|the|and|de|la|von|van)[ ])?[A-ZÀ-ÖØ-Þ][\w'’-]*)*"
_MONTH = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_NUMBER = r"\d[\d.,]*\d(?:[ ]?(?:%|percent|years?|million|billion|km|kg|cm|mm|hours?|minutes?|days?|people)\b)?"
_DATE = rf"\d{{1,2}}[ ]{_MONTH}(?:[ ]\d{{4}})?|{_MONTH}[ ]\d{{1,2}},[ ]\d{{4}}|{_MONTH}[ ]\d{{4}}"
_SPOT = re.compile(rf"{_DATE}|(?!{_MONTH}\b){_NAME}|{_NUMBER}")
_WHEN = re.compile(rf"{_MONTH}|^1\d{{3}}$|^20\d{{2}}$")
_ASKS_NUMBER = re.compile(r"\b(when|year|date|day|many|much|long|old|far|high|large|number|percent|percentage)\b")
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
    def begin(self) -> str:
        """How a question after it begins; nothing where a name is asked for, of which nobody knows what it names."""
        if not self.is_number:
            return ""
        return "When" if _WHEN.search(self.answer) else "How many"


@dataclass(frozen=True)
class Written:
    """A question that was kept, and where its answer stands."""

    question: str
    spot: Spot

    @property
    def asked(self) -> StudyQuestion:
        return StudyQuestion(self.question, (self.spot.answer,), self.spot.passage.document)

    def to_json(self) -> dict[str, Any]:
        """As a file of questions has it, with the passage and the answer's place in it."""
        place = {"passage": self.spot.passage.text, "start": self.spot.start, "stop": self.spot.stop}
        return {"question": self.question, "answers": [self.spot.answer], "gold": self.spot.passage.document, **place}


@dataclass
class Generated:
    """Questions, and what became of the others."""

    wanted: int
    most: int  # attempts
    kept: list[Written] = field(default_factory=list)
    attempts: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # a reason of REASONS -> questions
    malformed: Counter[str] = field(default_factory=Counter)  # how they were malformed
    ended_by: str = "passages"  # or attempts, questions, time

    def account(self, **more: Any) -> dict[str, Any]:
        """For the study's file."""
        return {
            "wanted": self.wanted,
            "kept": len(self.kept),
            "attempts": self.attempts,
            "most_attempts": self.most,
            "ended_by": self.ended_by,
            "left_out": {reason: self.left_out[reason] for reason in REASONS},
            "malformed": dict(self.malformed.most_common()),
            **more,
        }


class Remembered(Chat):
    """A model whose replies are kept in a file: the same request is made once, over all runs."""

    def __init__(self, chat: Chat, path: Path) -> None:
        self.chat, self.path, self.name, self.opens = chat, path, chat.name, chat.opens
        self._known = dict(_lines(path))

    def replies(self, requests: Sequence[str], most: int, cue: str = "", otherwise: str = "") -> list[str | None]:
        keys = [_digest([self.name, request, most, cue, otherwise]) for request in requests]
        new = {key: request for key, request in zip(keys, requests, strict=True) if key not in self._known}
        if new:
            got = dict(zip(new, self.chat.replies(list(new.values()), most, cue, otherwise), strict=True))
            with self.path.open("ab") as file:
                for key, reply in got.items():
                    file.write(b"\n" + json.dumps([key, reply]).encode())  # after a line that a kill may have cut off
            self._known |= got
        return [self._known[key] for key in keys]


def _lines(path: Path) -> Iterator[tuple[str, str | None]]:
    """The replies of a file; torn lines are passed over."""
    for line in path.read_bytes().split(b"\n") if path.is_file() else ():
        try:
            key, reply = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            continue
        if isinstance(reply, str | None):
            yield str(key), reply


def _digest(asked: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:32]


def generate(
    wanted: int,
    passages: Sequence[Passage],
    writer: Chat,
    reader: Chat,
    *,
    most: int,
    seed: int = 0,
    until: float = float("inf"),
    at_last: float = float("inf"),
) -> Generated:
    """So many questions about the passages, or as many as there come out; the seed fixes which spots are tried.

    Args:
        most: attempts.
        until: of the monotonic clock: no batch is begun after it, if enough questions were kept.
        at_last: none at all is begun after it.

    Raises:
        UserError: none was kept, or a model gives no reply.
    """
    found = Generated(wanted, most)
    judge = _Filter([f"{passage.document} {passage.text}" for passage in passages], reader)
    spots = drawn(passages, seed)
    with bar("writing questions", "question", wanted) as shown:
        while batch := list(islice(spots, min(AT_ONCE, most - found.attempts))):
            if time.monotonic() > (until if len(found.kept) >= min(wanted, ENOUGH) else at_last):
                found.ended_by = "time"
                break
            before = len(found.kept)
            _take(batch, writer, judge, found)
            shown.update(min(len(found.kept), wanted) - min(before, wanted))
            shown.set_postfix_str(f"{found.attempts} attempts of at most {most}")
            if len(found.kept) >= wanted:
                break
    found.ended_by = "questions" if len(found.kept) >= wanted else found.ended_by
    if found.ended_by == "passages" and found.attempts >= most:
        found.ended_by = "attempts"
    del found.kept[wanted:]
    if not found.kept:
        raise UserError(f"--generate-questions: {described(found)}; give a file with --questions, or another --writer")
    return found


def described(found: Generated) -> str:
    """What came out, in a line."""
    ends = {
        "attempts": " (as many as allowed)",
        "passages": ", all that the passages give",
        "time": ", by then time was up",
    }
    tried = f"{found.attempts} attempts{ends.get(found.ended_by, '')}"
    left = ", ".join(f"{found.left_out[reason]} {text}" for reason, text in REASONS.items() if found.left_out[reason])
    few = f", fewer than the {found.wanted} asked for" if len(found.kept) < found.wanted else ""
    return f"{len(found.kept)} questions of {tried}{few}; left out: {left or 'none'}"


def _take(batch: Sequence[Spot], writer: Chat, judge: _Filter, found: Generated) -> None:
    """Have a question written about each spot, and keep the good ones."""
    replies = _written(batch, writer)
    found.attempts += len(batch)
    able = []
    for spot, reply in zip(batch, replies, strict=True):
        written = Written(sft.first_question(reply or ""), spot)
        if detail := "no reply" if reply is None else _malformed(written):
            found.malformed[detail] += 1
            found.left_out[MALFORMED] += 1
        elif reason := judge.found_in_texts(written):
            found.left_out[reason] += 1
        else:
            able.append(written)
    for written, why in zip(able, judge.read(able), strict=True):
        if why:
            found.left_out[why] += 1
        else:
            found.kept.append(written)


def _written(batch: Sequence[Spot], writer: Chat) -> list[str | None]:
    """What the writer says for each spot; where it can be, the question is begun as the answer's kind wants it."""
    said: dict[Spot, str | None] = {}
    for begin in dict.fromkeys(spot.begin for spot in batch):
        group = [spot for spot in batch if spot.begin == begin]
        cue = f"{sft.CUE} {begin}".rstrip()
        replies = writer.replies(list(map(_request, group)), sft.QUESTION_TOKENS, cue, sft.ALONE)
        opened = begin if writer.opens else ""
        said |= {s: None if r is None else f"{opened} {r.strip()}" for s, r in zip(group, replies, strict=True)}
    return [said[spot] for spot in batch]


def _request(spot: Spot) -> str:
    """What the writer is asked; the examples of the answer's kind stand last, nearest to it."""
    numbers, names = EXAMPLES[:2], EXAMPLES[2:]
    ordered = names + numbers if spot.is_number else numbers + names
    passage = spot.passage
    shown = {"title": passage.document, "text": passage.text, "answer": spot.answer}
    return REQUEST.format(examples="\n\n".join(ordered), **shown)


def _malformed(written: Written) -> str | None:
    """What is wrong with the question itself; None if nothing."""
    spot = written.spot
    question = normalise(written.question)
    if normalise(spot.answer) in question:
        return "holds its answer"
    if spot.is_number != bool(_ASKS_NUMBER.search(question)):
        return "asks for another kind of answer"
    return sft.problem(written.question, spot.sentence, spot.passage.document)


class _Filter:
    """Which of the well-formed questions measure retrieval."""

    def __init__(self, texts: Sequence[str], reader: Chat) -> None:
        self.index, self.reader = Bm25(texts), reader
        self.texts = [normalise(text) for text in texts]
        self.asked = {normalise(example.rpartition("Question: ")[2]) for example in EXAMPLES}  # which may be copied

    def found_in_texts(self, written: Written) -> str | None:
        """Whether it was asked before, or has its answer in further passages; None if neither.

        A passage that holds the whole sentence around the answer is the same one: a neighbour that overlaps, a copy.
        """
        question = normalise(written.question)
        if question in self.asked:
            return DUPLICATE
        self.asked.add(question)
        answer, sentence = (normalise(text) for text in (written.spot.answer, written.spot.sentence))
        [near] = self.index.best([written.question], NEIGHBOURS)
        others = [self.texts[i] for i in near if sentence not in self.texts[i]]
        return SEVERAL if any(re.search(rf"\b{re.escape(answer)}\b", text) for text in others) else None

    def read(self, written: Sequence[Written]) -> list[str | None]:
        """Why the reader's answers rule a question out: it knows the answer, or does not find it; None if neither."""
        alone = self._right(written, [query_text(w.question) for w in written])
        open_ones = [w for w, right in zip(written, alone, strict=True) if not right]
        texts = [document_text(w.spot.passage.document, w.spot.passage.text) for w in open_ones]
        shown = [
            f"{StudyQuestions.preamble}\n\n{text}\n{query_text(w.question)}"
            for text, w in zip(texts, open_ones, strict=True)
        ]
        with_it = dict(zip((w.question for w in open_ones), self._right(open_ones, shown), strict=True))
        reasons = zip(written, alone, strict=True)
        return [KNOWN if right else None if with_it[w.question] else UNANSWERED for w, right in reasons]

    def _right(self, written: Sequence[Written], requests: Sequence[str]) -> list[bool]:
        """Whether the reader's reply to each request holds the answer."""
        replies = self.reader.replies(requests, ANSWER_TOKENS) if requests else []
        pairs = zip(written, replies, strict=True)
        return [bool(score("best_subspan_em", {"prediction": r or "", "answers": [w.spot.answer]})) for w, r in pairs]


# --- where answers stand ---


def drawn(passages: Sequence[Passage], seed: int) -> Iterator[Spot]:
    """Spots of passages in random order, one of each, then further ones; none of near-duplicates."""
    order = [passage for passage in passages if not passage.near_duplicate]
    random.Random(seed).shuffle(order)
    for number in range(ROUNDS):
        for passage in order:
            found = _spots(passage)
            random.Random(f"{seed}/{passage.document}/{passage.text}").shuffle(found)
            yield from found[number : number + 1]


def _spots(passage: Passage) -> list[Spot]:
    """The names and numbers of a passage's sentences of prose; where there are none, a long word of each."""
    text = passage.text
    prose = [(a, b) for a, b in sentences.split(text) if _is_prose(text[a:b])]
    found = [Spot(passage, text[a:b].strip(), *ends) for a, b in prose for ends in _stretches(text, a, b, _SPOT)]
    if not found:
        found = [
            Spot(passage, text[a:b].strip(), *ends) for a, b in prose for ends in _stretches(text, a, b, _LONG_WORD)
        ]
    title = normalise(passage.document)
    return [spot for spot in found if _is_answer(normalise(spot.answer), title)]


def _is_prose(sentence: str) -> bool:
    least, most = SENTENCE_WORDS
    return sentence.rstrip(" \n\"')”").endswith((".", "!", "?")) and least <= len(sentence.split()) <= most


def _stretches(text: str, start: int, stop: int, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Where the pattern matches in a sentence; not its first word, which begins with a capital whatever it is."""
    begins = start + len(text[start:stop]) - len(text[start:stop].lstrip())
    for match in pattern.finditer(text, begins, stop):
        if match.start() > begins or match[0][0].isdigit():
            yield match.span()


def _is_answer(answer: str, title: str) -> bool:
    """Whether something is left to ask where the question names the title."""
    words = answer.split()
    return len(answer) > 1 and not {*words} <= {*title.split()} and len(words) <= ANSWER_WORDS
