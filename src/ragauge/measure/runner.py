"""Runs one method variant on one data set's questions, and resumes a run that was killed."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from ragauge.config.code import answer_code
from ragauge.cost.machine import processor, provenance
from ragauge.datasets.base.dataset import Example
from ragauge.engines.backends.openai import ServedEngine
from ragauge.engines.protocol import Engine, EngineLostError
from ragauge.errors import UserError
from ragauge.io.progress import bar
from ragauge.io.record_writer import MAX_CRASHES, RecordWriter, crash_reason
from ragauge.io.records import Record, partial_path, recorded_fingerprint
from ragauge.io.specifications import AnswerSpecification
from ragauge.measure.answering import question_fields
from ragauge.measure.concurrency import BatchSize, answers
from ragauge.measure.engines import Engines, shape_of
from ragauge.methods.base.method import Method


@dataclass(frozen=True)
class Job:
    """A method variant and the questions that it answers."""

    specification: AnswerSpecification
    method: Method
    examples: Sequence[Example]
    variant: str  # its label
    out: Path  # the file of records


def run(job: Job, loaded: Engines, *, overwrite: bool = False, retry_failed: bool = False) -> None:
    """Answer every example that the job's file does not hold yet; a killed run resumes where it
    stopped.

    A question that cannot be answered is recorded as failed with the reason, and the run continues.
    Nothing is loaded if all questions are answered. `overwrite` replaces the records of another
    run; `retry_failed` asks failed questions again. Of a sequential method, whose records depend on
    the questions before, all run again if one is missing.

    Raises:
        UserError: the model cannot be loaded or run the method; the file holds records of another
            run or is not writable.
    """
    specification = job.specification
    out = job.out
    total = len(job.examples)
    method = job.method.for_run()
    if retry_failed and not (out.exists() or partial_path(out).exists()):
        raise UserError(f"--retry-failed: {out}: no such file of records")
    machine = "" if specification.engine.served else processor(specification.engine.device)
    keys = [e.key for e in job.examples]
    code = answer_code(job.method, specification.engine.name)
    settings = {**specification.model_dump(), "code": code}
    if specification.engine.served:
        server = cast(ServedEngine, loaded.of(specification)).identity()
        # what a server that does not respond says is as records have it
        recorded = recorded_fingerprint(out).get("server")
        is_silent = "model" not in server and isinstance(recorded, dict)
        settings["server"] = dict(recorded or {}, **server) if is_silent else server
    with RecordWriter(out, settings, keys, overwrite, machine=machine) as writer:
        if retry_failed:
            writer.forget_failed()
        done = len(writer.done)
        if method.sequential() and 0 < done < total:
            answers_depend = (
                f"records of {specification.method} depend on the questions before them"
            )
            writer.start_over(
                f"{done} of {total} questions are answered, but {answers_depend}; all run again"
            )
        todo = [e for e in job.examples if e.key not in writer.done]
        if todo:
            engine = loaded.ready(specification, method)
            records = _todo_answers(writer, engine, method, todo, specification, loaded.batch)
            try:
                title = f"{specification.dataset} {job.variant}"
                for record in bar(title, "question", total, len(writer.done), iterable=records):
                    writer.append(record)
            except EngineLostError as error:
                raise UserError(
                    f"{error}; {len(writer.done)} of {total} questions are answered"
                    "; run it again for the others"
                ) from None
        shape = shape_of(specification)  # of the configuration: weights may not be loaded
        writer.finish(
            {
                "variant": job.variant,
                "specification": specification.model_dump(),
                "provenance": provenance(),
                "threads": loaded.threads,
                "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "shape": asdict(shape) if shape else None,
            }
        )


def _todo_answers(
    writer: RecordWriter,
    engine: Engine,
    method: Method,
    examples: Sequence[Example],
    specification: AnswerSpecification,
    batch: BatchSize,
) -> Iterator[Record]:
    """Yield records of unanswered questions; one at which a process died fails, or comes last,
    alone, where the order does not matter.
    """
    unsuspected = list[Example]()
    suspected = list[Example]()
    for example in examples:
        crashes = writer.crashes.get(example.key, 0)
        if crashes >= MAX_CRASHES:
            yield Record(
                **question_fields(example),
                status="failed",
                reason=crash_reason(crashes),
                prompt_sha256="",
            )
        else:
            (suspected if crashes and not method.sequential() else unsuspected).append(example)
    if unsuspected:
        yield from answers(engine, method, unsuspected, specification, batch, writer.start)
    yield from answers(engine, method, suspected, specification, 1, writer.start)
