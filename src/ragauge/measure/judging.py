"""Judges the records of a method, each judgement on the disk before the next request."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from ragauge.datasets.base.examples import read_examples
from ragauge.errors import UserError
from ragauge.io.files import locked, os_errors_as_user_errors, replace_atomically
from ragauge.io.progress import bar
from ragauge.io.records import Record
from ragauge.methods.evidence import judge as judging
from ragauge.methods.evidence.chat import Chat
from ragauge.methods.evidence.judge import Inquiry, Judgement

Judgements = dict[tuple[str, str | None], Judgement]  # by key and aspect


def judge_records(
    chat: Chat, records: Sequence[Record], subject: str, examples: Path | None, out: Path
) -> list[Judgement]:
    """Judge records in their order; judgements that the file has already are not requested again.

    Args:
        subject: evidence, faithfulness or answers.
        examples: the questions with their passages, for faithfulness and answers.
    """
    questions = read_examples(examples) if examples else ()
    passages = {question.key: [d.text for d in question.documents] for question in questions}
    judgements: Judgements = {}
    with os_errors_as_user_errors(out), locked(out):
        known = _read(out)
        for record in bar("judging", "question", iterable=records):
            for inquiry in _inquiries(record, subject, passages):
                identity = inquiry.key, inquiry.aspect
                judgement = judging.judge(
                    chat, inquiry, known.get(identity), failed=record.status == "failed"
                )
                judgements[identity] = judgement
                if judgement is not known.get(identity):
                    replace_atomically(out, _lines(known | judgements))
        replace_atomically(out, _lines(judgements))
    return list(judgements.values())


def _inquiries(
    record: Record, subject: str, passages: Mapping[str, Sequence[str]]
) -> Iterable[Inquiry]:
    key = record.key
    texts = passages.get(key, [])
    if subject == "answers":
        yield judging.about_answer(key, record.question, texts, record.prediction)
        return
    evidence = [piece.text for piece in record.evidence or ()]
    yield judging.about_evidence(key, record.question, record.answers, evidence)
    if texts and evidence:
        yield judging.about_faithfulness(key, texts, evidence)


def _lines(judgements: Judgements) -> bytes:
    return b"".join(judgement.line() for judgement in judgements.values())


def _read(out: Path) -> Judgements:
    """Read the judgements of a file. Raises UserError if the file holds something else."""
    judgements: Judgements = {}
    for number, line in enumerate(out.read_bytes().splitlines() if out.is_file() else (), start=1):
        try:
            judgement = Judgement.model_validate_json(line)
        except ValidationError:
            raise UserError(f"{out}:{number}: holds no judgements; choose another --out") from None
        judgements[judgement.key, judgement.aspect] = judgement
    return judgements
