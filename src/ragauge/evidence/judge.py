"""Whether evidence supports an answer (CFIC, Table 7), or whether an answer is correct, judged by a language model."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragauge.engines.protocol import Limits, Row, SpanEngine
from ragauge.errors import UserError
from ragauge.evidence.endpoint import Endpoint, EndpointError
from ragauge.evidence.request import token_ids
from ragauge.prompts import unit_steps
from ragauge.prompts.templates import wrapper

if TYPE_CHECKING:
    from ragauge.io.records import Record

QUESTION = """Question: {question}
Reference answer: {answer}

Evidence:
{evidence}

Does the evidence support the reference answer to the question? Reply with one of these and nothing else:
fully supported (the evidence states the answer)
partially supported (the evidence states a part of it, or is about it without stating it)
not supported (neither)"""

ANSWERED = """Question: {question}

Passages:
{passages}

Answer: {answer}

Going by the passages, is this answer to the question correct? Reply with one word alone: correct or incorrect"""

REPLY_TOKENS = 16
FAILURES_IN_A_ROW = 3
LABELS = {
    "": "supported",
    "fully": "supported",
    "partially": "partially_supported",
    "partly": "partially_supported",
    "not fully": "partially_supported",
    "not": "not_supported",
    "un": "not_supported",
}
_CORRECTNESS = re.compile(r"\b(?:(not)\s+|(in))?correct\b|\b(wrong)\b")
_VERDICT = re.compile(r"\b(?:(not fully|fully|partially|partly|not)\s+|(un))?supported\b")


class Judge(ABC):
    """A language model that replies to one question at a time; `name` is what tables call it."""

    name: str

    @abstractmethod
    def reply(self, question: str) -> str:
        """The reply. Raises UserError if there is none: the endpoint is down, the evidence beyond the context."""


class EndpointJudge(Judge):
    """A model behind an OpenAI-compatible endpoint; after repeated failures it is not asked again."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint, self.name = endpoint, endpoint.model
        self.failed = 0  # in a row

    def reply(self, question: str) -> str:
        if self.failed >= FAILURES_IN_A_ROW:
            raise EndpointError(f"not asked: {self.endpoint.url} had failed {self.failed} times in a row")
        self.failed += 1
        text = self.endpoint.complete([{"role": "user", "content": question}], max_tokens=REPLY_TOKENS)
        self.failed = 0
        return text


class LocalJudge(Judge):
    """A decoder on this machine, under its template of prompts."""

    def __init__(self, name: str, engine: SpanEngine, template: str) -> None:
        self.name, self.engine, self.template = name, engine, template

    def reply(self, question: str) -> str:
        opening, task = wrapper(self.template, self.engine.tokenizer)
        ids = token_ids(self.engine.tokenizer, opening + question + task)
        cache = self.engine.new_cache(len(ids) + REPLY_TOKENS)
        row = Row(ids, unit_steps(0, len(ids)))
        logits = self.engine.extend(cache, [row], stage="judge", last_logits=True).last_logits
        assert logits is not None
        written = self.engine.generate(cache, logits[0], len(ids), Limits(REPLY_TOKENS))
        return str(self.engine.tokenizer.decode(written, skip_special_tokens=True))


@dataclass(frozen=True)
class Judgement:
    """The outcome of one question; if there is no label, the reason says why."""

    key: str
    judge: str
    asked_sha256: str  # of the judge's name and the question put to it: the same again needs no asking
    label: str | None = None  # "supported", "partially_supported", "not_supported"; of answers "correct", "incorrect"
    reason: str | None = None


def drawn(records: Sequence[Record], limit: int | None) -> list[Record]:
    """So many records in their order, drawn by a hash of their keys: the same questions for every method; None: all."""
    chosen = sorted(records, key=lambda record: hashlib.sha256(record.key.encode()).digest())[:limit]
    kept = {record.key for record in chosen}
    return [record for record in records if record.key in kept]


def judge_one(judge: Judge, key: str, question: str, answers: Sequence[str], evidence: Sequence[str]) -> Judgement:
    """A judge's label for one question's evidence; a judge that fails or says no such thing is a judgement without.

    No evidence supports nothing: the judge is not asked.
    """
    asked = asking(question, answers, evidence)
    base = {"key": key, "judge": judge.name, "asked_sha256": digest(judge, asked)}
    if not evidence:
        return Judgement(**base, label="not_supported", reason="no evidence was found; not asked")
    return _replied(judge, base, asked, verdict)


def judge_answer(judge: Judge, key: str, question: str, passages: Sequence[str], answer: str) -> Judgement:
    """A judge's label, `correct` or `incorrect`, for an answer by the passages; as `judge_one` where it fails.

    No answer is not correct: the judge is not asked.
    """
    asked = asking_of(question, passages, answer)
    base = {"key": key, "judge": judge.name, "asked_sha256": digest(judge, asked)}
    if not answer.strip():
        return Judgement(**base, label="incorrect", reason="there is no answer; not asked")
    return _replied(judge, base, asked, correctness)


def _replied(judge: Judge, base: dict[str, str], asked: str, read: Callable[[str], str | None]) -> Judgement:
    try:
        reply = judge.reply(asked)
    except UserError as error:
        return Judgement(**base, reason=" ".join(str(error).split()))
    label = read(reply)
    return Judgement(**base, label=label, reason=None if label else f"no judgement in the reply {reply[:80]!r}")


def asking_of(question: str, passages: Sequence[str], answer: str) -> str:
    """The question that a judge is asked of an answer, the passages a line each."""
    return ANSWERED.format(question=question, passages="\n".join(passages), answer=answer.strip())


def asking(question: str, answers: Sequence[str], evidence: Sequence[str]) -> str:
    """The question that a judge is asked: of the answer, its aliases and the evidence, a line a piece."""
    return QUESTION.format(question=question, answer=" / ".join(answers), evidence="\n".join(evidence))


def digest(judge: Judge, asked: str) -> str:
    """Hash of who is asked what."""
    return hashlib.sha256(f"{judge.name}\0{asked}".encode()).hexdigest()


def correctness(reply: str) -> str | None:
    """`correct` or `incorrect`, as a reply says; None if it says neither, or both."""
    found = _CORRECTNESS.findall(" ".join(reply.lower().split()))
    said = {"incorrect" if any(negated) else "correct" for negated in found}
    return said.pop() if len(said) == 1 else None


def verdict(reply: str) -> str | None:
    """The label in a reply; None if there is none, or more than one."""
    said = {LABELS[before or un] for before, un in _VERDICT.findall(" ".join(reply.lower().replace("-", " ").split()))}
    return said.pop() if len(said) == 1 else None
