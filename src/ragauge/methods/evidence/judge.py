"""A language model judges whether evidence supports an answer and is faithful (CFIC, Table 7), or
answers are right.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from pydantic import BaseModel

from ragauge.errors import UserError, in_one_line
from ragauge.io.records import Record
from ragauge.methods.evidence.chat import Chat

QUESTION = """Question: {question}
Reference answer: {answer}

Evidence:
{evidence}

Does the evidence support the reference answer to the question? Reply with one of these and nothing else:
fully supported (the evidence states the answer)
partially supported (the evidence states a part of it, or is about it without stating it)
not supported (neither)"""

FAITHFUL = """Document:
{document}

Evidence:
{evidence}

Is the evidence faithful to the document: does the document say everything that it says? Reply with one word alone: \
faithful or unfaithful"""

ANSWERED = """Question: {question}

Passages:
{passages}

Answer: {answer}

Going by the passages, is this answer to the question correct? Reply with one word alone: correct or incorrect"""

REPLY_TOKENS = 16
LABELS = {
    "": "supported",
    "fully": "supported",
    "partially": "partially_supported",
    "partly": "partially_supported",
    "not fully": "partially_supported",
    "not": "not_supported",
    "un": "not_supported",
}
OPPOSITES = {"correct": "incorrect", "faithful": "unfaithful"}
_CORRECTNESS = re.compile(r"\b(?:(not) (?:\w+ ){0,2}|(in))?correct\b|\b(wrong)\b")
_FAITHFULNESS = re.compile(r"\b(?:(not) (?:\w+ ){0,2}|(un))?faithful\b")
_VERDICT = re.compile(
    r"\b(?:(not fully|fully|partially|partly|not(?: \w+){0,2}) |(un))?supported\b"
)


@dataclass(frozen=True)
class Inquiry:
    """A request to a judge, and how its reply is read."""

    key: str  # of the question
    request: str
    read: Callable[[str], str | None]  # a reply -> its label; None where it has none
    settled: tuple[str, str] | None = None  # label and reason where no judge is needed
    aspect: Literal["faithfulness"] | None = None  # None: support, or correctness of an answer


class Judgement(BaseModel, frozen=True):
    """The outcome of one question; if there is no label, the reason says why."""

    key: str
    judge: str
    request_sha256: str  # of the judge's name and the request: the same again needs no asking
    aspect: Literal["faithfulness"] | None = None  # as of `Inquiry`
    # of `LABELS`; of faithfulness "faithful", "unfaithful"; of answers "correct", "incorrect"
    label: str | None = None
    reason: str | None = None

    def line(self) -> bytes:
        return self.model_dump_json(exclude_none=True).encode() + b"\n"


def drawn(records: Sequence[Record], limit: int | None) -> list[Record]:
    """Draw some records by a hash of their keys, in their order: the same questions for every
    method; None: all.
    """
    chosen = sorted(records, key=lambda record: hashlib.sha256(record.key.encode()).digest())[
        :limit
    ]
    keys = {record.key for record in chosen}
    return [record for record in records if record.key in keys]


def about_evidence(
    key: str, question: str, answers: Sequence[str], evidence: Sequence[str]
) -> Inquiry:
    """Ask whether evidence supports an answer or its aliases; no evidence supports nothing."""
    request = QUESTION.format(
        question=question, answer=" / ".join(answers), evidence="\n".join(evidence)
    )
    settled = None if evidence else ("not_supported", "no evidence was found; not asked")
    return Inquiry(key, request, verdict, settled)


def about_faithfulness(key: str, documents: Sequence[str], evidence: Sequence[str]) -> Inquiry:
    """Ask whether evidence says only what the documents say; there must be some evidence."""
    request = FAITHFUL.format(document="\n\n".join(documents), evidence="\n".join(evidence))
    return Inquiry(key, request, faithfulness, aspect="faithfulness")


def about_answer(key: str, question: str, passages: Sequence[str], answer: str) -> Inquiry:
    """Ask whether an answer is correct, going by the passages; no answer is incorrect."""
    request = ANSWERED.format(
        question=question, passages="\n".join(passages), answer=answer.strip()
    )
    settled = None if answer.strip() else ("incorrect", "there is no answer; not asked")
    return Inquiry(key, request, correctness, settled)


def judge(
    chat: Chat, inquiry: Inquiry, earlier: Judgement | None = None, failed: bool = False
) -> Judgement:
    """Judge one question; a judge that fails, or replies without a label, gives a judgement without
    one. An earlier judgement stands if it answers the same request; where the question itself
    failed there is nothing to judge.
    """
    digest = hashlib.sha256(f"{chat.name}\0{inquiry.request}".encode()).hexdigest()
    if earlier and earlier.label and earlier.request_sha256 == digest:
        return earlier
    judgement = partial(
        Judgement, key=inquiry.key, aspect=inquiry.aspect, judge=chat.name, request_sha256=digest
    )
    if failed:
        return judgement(reason="the question itself failed")
    if inquiry.settled:
        return judgement(label=inquiry.settled[0], reason=inquiry.settled[1])
    try:
        [reply] = chat.replies([inquiry.request], REPLY_TOKENS)
    except UserError as error:
        return judgement(reason=in_one_line(error))
    label = inquiry.read(reply or "")
    return judgement(
        label=label, reason=None if label else f"no judgement in the reply {(reply or '')[:80]!r}"
    )


def correctness(
    reply: str, pattern: re.Pattern[str] = _CORRECTNESS, label: str = "correct"
) -> str | None:
    """Read `correct` or `incorrect`, or another such pair, from a reply; None if it has neither, or
    both.
    """
    matches = pattern.findall(_plain(reply))
    labels = {OPPOSITES[label] if any(negated) else label for negated in matches}
    return labels.pop() if len(labels) == 1 else None


faithfulness = partial(correctness, pattern=_FAITHFULNESS, label="faithful")
"""Read `faithful` or `unfaithful` from a reply; None if it has neither, or both."""


def verdict(reply: str) -> str | None:
    """Read the label of evidence from a reply; None if it has none, several, or another ("not
    directly supported").
    """
    labels = {
        LABELS.get(before or un) for before, un in _VERDICT.findall(_plain(reply.replace("-", " ")))
    }
    return labels.pop() if len(labels) == 1 else None


def _plain(reply: str) -> str:
    return " ".join(
        reply.lower()
        .replace("\u2019", "'")
        .replace("n't", " not")
        .replace("cannot", "can not")
        .split()
    )
