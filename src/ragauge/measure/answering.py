"""Asks one question, and makes the record of what came back."""

import time
from dataclasses import asdict
from typing import Any, cast

from ragauge.assets.control_tokens import plain_reader
from ragauge.cost.trace import Trace, elapsed, online, seconds
from ragauge.datasets.base.dataset import Example
from ragauge.engines.backends.openai import ServedEngine
from ragauge.engines.memory import MEMORY_ERRORS, unified_memory_errors
from ragauge.engines.protocol import (
    Capability,
    Engine,
    EngineLostError,
    Limits,
    SpanEngine,
)
from ragauge.errors import UserError, in_one_line, panics_as_user_errors
from ragauge.io.records import EvidenceRecord, Record, ServedResponse
from ragauge.io.specifications import AnswerSpecification
from ragauge.measure.prompting import limits, prompt_of
from ragauge.methods.base.method import Answer, Evidence, Method
from ragauge.methods.prompts import Prompt

FAILURES = (UserError, *MEMORY_ERRORS)  # of one question; anything else is a bug


def ask(
    engine: Engine,
    method: Method,
    example: Example,
    specification: AnswerSpecification,
    failures: tuple[type[Exception], ...] = FAILURES,
) -> Record:
    """Ask one question and return its record.

    Args:
        failures: the errors that leave the question without an answer; the record says why.
    """
    base = question_fields(example)
    ends = limits(specification)
    prompt: Prompt | None = None
    try:
        with unified_memory_errors(), panics_as_user_errors():
            prompt = prompt_of(example, specification, engine.tokenizer, engine.max_context)
            answer, trace, first_token_s = timed(engine, method, prompt, ends)
    except EngineLostError:
        raise
    except failures as error:
        return Record(
            **base,
            status="failed",
            reason=in_one_line(error),
            prompt_sha256=prompt.sha256 if prompt else "",
            tokens=_token_counts(prompt) if prompt else {},
            served=_served(engine) if prompt else None,
        )
    text = engine.tokenizer.decode(answer.ids, skip_special_tokens=True)
    prediction = text.lstrip() if ends.skip_blanks else text
    tokens = _token_counts(prompt)
    evidence = None
    if answer.evidence is not None:
        evidence = [_evidence(piece, example) for piece in answer.evidence]
        pieces = [piece.text for piece in answer.evidence]
        read = plain_reader(engine.tokenizer, pieces)
        tokens["evidence"] = sum(
            len(read(piece, add_special_tokens=False)["input_ids"]) for piece in pieces
        )
    tokens["generated"] = len(answer.ids)
    return Record(
        **base,
        status="ok",
        prompt_sha256=prompt.sha256,
        exact_tokens=prompt.exact_tokens,
        control_tokens=prompt.control_tokens,
        tokens=tokens,
        kept=list(answer.kept),
        saliency=list(answer.saliency),
        evidence=evidence,
        request=answer.request,
        truncated=prompt.truncated if answer.truncated is None else answer.truncated,
        text=text,
        cut=engine.cut,
        prediction=prediction.split("\n")[0] if ends.stop else prediction,
        trace=[call.to_json() for call in trace],
        cache_bytes=engine.peak_cache_bytes,
        offline_s=seconds(c for c in trace if c.offline),
        online_s=seconds(online(trace)),
        first_token_s=first_token_s,
        served=_served(engine),
    )


def _served(engine: Engine) -> ServedResponse | None:
    """Return a server's report of the last request; None if it did not respond, or there is none."""
    return cast(ServedEngine, engine).exchange if Capability.SERVER in engine.capabilities else None


def question_fields(example: Example) -> dict[str, Any]:
    return {
        "key": example.key,
        "question": example.question,
        "answers": list(example.answers),
        "wordless_answers": example.wordless_answers,
        "gold": list(example.gold),
        "gold_stretches": [asdict(stretch) for stretch in example.gold_stretches],
        "documents": len(example.documents),
    }


def _token_counts(prompt: Prompt) -> dict[str, Any]:
    return {**prompt.token_counts(), "truncated": prompt.truncated}


def _evidence(piece: Evidence, example: Example) -> EvidenceRecord:
    """The record of a piece of evidence, compared with its document, which records do not hold."""
    if piece.document is None:
        return EvidenceRecord(**asdict(piece), verbatim=False)
    stands = example.documents[piece.document].text[piece.start : piece.stop]
    return EvidenceRecord(**asdict(piece), verbatim=stands == piece.text)


def timed(
    engine: Engine, method: Method, prompt: Prompt, limits: Limits
) -> tuple[Answer, Trace, float]:
    """(answer, trace, online seconds until the first token)."""
    spans = cast(SpanEngine, engine)  # as far as the method requires
    with engine.tracing() as trace:
        state = method.prepare(spans, prompt)
        started = time.perf_counter()
        prepared = len(trace)
        answer = method.answer(spans, state, prompt, limits)
    # offline work done lazily: users do not wait for it
    late = elapsed(c for c in trace[prepared:] if c.offline)
    assert engine.first_token_at is not None
    return answer, list(trace), engine.first_token_at - started - late
