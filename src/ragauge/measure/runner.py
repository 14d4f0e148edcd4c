"""Runs one method variant on one data set's questions and records each of them."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import torch

from ragauge import registry
from ragauge.assets import resolver
from ragauge.assets.catalog import Tokenization
from ragauge.assets.control_tokens import plain_reader
from ragauge.config.schema import Served
from ragauge.cost.machine import cpu_model, processor, provenance
from ragauge.cost.shape import Shape
from ragauge.cost.trace import Trace, elapsed, online, seconds
from ragauge.datasets.base.dataset import Example
from ragauge.engines import backend
from ragauge.engines.batching import BatchScheduler, max_batch_size
from ragauge.engines.checkpoint import read_shape
from ragauge.engines.kernels import choice
from ragauge.engines.lm import LM
from ragauge.engines.memory import MEMORY_ERRORS, unified_memory_errors
from ragauge.engines.protocol import (
    Capability,
    Engine,
    EngineLostError,
    Limits,
    RemoteEngine,
    SpanEngine,
)
from ragauge.engines.recorded import RecordedEngine
from ragauge.engines.store import DocumentStore
from ragauge.errors import UserError
from ragauge.io.digest import digest
from ragauge.io.progress import bar
from ragauge.io.record_writer import MAX_CRASHES, RecordWriter, crash_reason
from ragauge.io.records import EvidenceRecord, Record, ServedResponse, partial_path
from ragauge.io.specifications import AnswerSpecification
from ragauge.methods.base.making import modules
from ragauge.methods.base.method import Answer, Evidence, Method
from ragauge.methods.prompts import Prompt, Source, build_prompt
from ragauge.methods.prompts.templates import set_template_arguments, wrapper

Batch = int | Literal["auto"]
FAILURES = (UserError, *MEMORY_ERRORS)  # of one question; anything else is a bug


class Engines:
    """The engines of one process: a model is loaded for its first question, and once for all
    variants.
    """

    def __init__(
        self,
        threads: int | None = None,
        documents: DocumentFolder | None = None,
        batch: Batch = 1,
        served: Served | None = None,
    ) -> None:
        """`documents` is where keys and values computed offline are stored for other runs; answers
        do not change. Of a `batch`, auto is as many questions as memory allows and the processor
        gains from. `served` is how a model behind a server is reached, `threads` are those of a
        CPU; None: torch's own choice.
        """
        self.threads = threads
        self.documents = documents
        self.batch = batch
        self.served = {"served": served.engine_options} if served else {}
        self._loaded: dict[tuple[str, bool], Engine] = {}

    def ready(self, specification: AnswerSpecification, method: Method) -> Engine:
        """The engine that answers, with the one that finds evidence if the specification has a
        finder. Raises UserError: a model cannot be loaded, or cannot run the method.
        """
        engine = self.of(specification)
        # one that does not fit fails every question
        wrapper(specification.template, engine.tokenizer, repeats=True)
        if specification.finder and not method.finds:
            raise UserError(
                f"{specification.method}: does not search for evidence, so it cannot have a finder"
            )
        engine = self.pair(specification)
        if (served := specification.engine.served) and served.own_cache:
            cast(RemoteEngine, engine).nonce = partial(str, f"[{specification.digest[:8]}]\n")
        reason = method.refusal(engine)
        if reason:
            raise UserError(f"{specification.method} on {specification.model}: {reason}")
        return engine

    def pair(self, specification: AnswerSpecification) -> Engine:
        """The engine that answers, with the specification's finder or none."""
        engine = self.of(specification)
        if Capability.SPANS in engine.capabilities:
            searcher = None
            if finder := specification.finder:
                facts = specification.engine.model_copy(update={"max_context": finder.max_context})
                model = finder.model_dump(exclude={"max_context", "template"}) | {
                    "engine": facts,
                    "finder": None,
                }
                searcher = cast(
                    RecordedEngine, self.of(specification.model_copy(update=model), finds=True)
                )
            cast(RecordedEngine, engine).set_finder(searcher, finder.template if finder else None)
        elif specification.finder:
            raise UserError(
                f"{specification.engine.name}: an engine without key-value caches cannot have a finder"
            )
        return engine

    def of(self, specification: AnswerSpecification, finds: bool = False) -> Engine:
        """The engine of a model, loaded once. `finds`: it is the one that finds evidence, whose
        calls stand in another engine's trace. Raises UserError: the model cannot be loaded.
        """
        facts = {**specification.engine.model_dump(exclude={"name", "served"}), **self.served}
        key = (
            f"{specification.model} {specification.model_sha256} {specification.engine!r}",
            finds,
        )
        if key not in self._loaded:
            engine = backend.load(
                specification.model, specification.engine.name, threads=self.threads, **facts
            )
            if self.documents and Capability.SPANS in engine.capabilities:
                cast(RecordedEngine, engine).documents = self.documents.store(specification)
            self._loaded[key] = engine
        if (tokenizer := self._loaded[key].tokenizer) is not None:
            set_template_arguments(
                tokenizer, specification.template_arguments, specification.template_date
            )
        return self._loaded[key]


@dataclass(frozen=True)
class DocumentFolder:
    """A folder that keeps the keys and values of documents for later runs, up to a size."""

    path: Path
    max_bytes: int

    def store(self, specification: AnswerSpecification) -> DocumentStore:
        """The store for the decoder that answers. Call it once the number of threads is set."""
        weights = specification.model_sha256 or specification.model
        engine = specification.engine
        stored = f"{engine.dtype} {engine.weights} {engine.kv} {engine.max_context}"
        decoder = f"{weights} {engine.name} {stored} {engine.device} {digest('ragauge.engines')}"
        decoder += choice.active().digest(getattr(torch, engine.dtype or "float32"))
        # to the last bit, only there
        decoder += f" {cpu_model()} {torch.backends.cpu.get_cpu_capability()}"
        return DocumentStore(self.path, decoder, self.max_bytes)


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
    the questions before, all are asked again if one is missing.

    Raises UserError: the model cannot be loaded or run the method; the file holds records of
    another run or is not writable.
    """
    specification = job.specification
    out = job.out
    total = len(job.examples)
    # with nothing stored of other questions
    method = replace(job.method) if job.method.sequential() else job.method
    if retry_failed and not (out.exists() or partial_path(out).exists()):
        raise UserError(f"--retry-failed: {out}: no such file of records")
    machine = "" if specification.engine.served else processor(specification.engine.device)
    keys = [e.key for e in job.examples]
    with RecordWriter(out, fingerprint(specification), keys, overwrite, machine=machine) as writer:
        if retry_failed:
            writer.forget_failed()
        if method.sequential() and 0 < (done := len(writer.done)) < total:
            answers_depend = (
                f"records of {specification.method} depend on the questions before them"
            )
            writer.start_over(
                f"{done} of {total} questions are answered, but {answers_depend}; all are asked again"
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
                answered = f"{len(writer.done)} of {total} questions are answered"
                raise UserError(f"{error}; {answered}; run it again for the others") from None
        writer.finish(_meta(specification, job.variant, loaded.threads))


def _todo_answers(
    writer: RecordWriter,
    engine: Engine,
    method: Method,
    examples: Sequence[Example],
    specification: AnswerSpecification,
    batch: Batch,
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
                **_question_fields(example),
                status="failed",
                reason=crash_reason(crashes),
                prompt_sha256="",
            )
        else:
            (suspected if crashes and not method.sequential() else unsuspected).append(example)
    if unsuspected:
        yield from answers(engine, method, unsuspected, specification, batch, writer.start)
    yield from answers(engine, method, suspected, specification, 1, writer.start)


def fingerprint(specification: AnswerSpecification) -> dict[str, Any]:
    """Everything that the records depend on: the specification, and the code of the runner, method
    and engine.
    """
    engine = registry.module_name("engine", specification.engine.name)
    answering = modules(specification.method, specification.options)
    code = digest(__name__, *answering, engine, without={"ragauge.cost.machine"})
    return {**specification.model_dump(), "code": code}


def answers(
    engine: Engine,
    method: Method,
    examples: Sequence[Example],
    specification: AnswerSpecification,
    batch: Batch = 1,
    on_start: Callable[[str], None] = lambda key: None,
) -> Iterator[Record]:
    """The record of each example, in the order in which they are done.

    `batch` questions are answered together, where engine and method support it
    (`engines/batching.py`). A question for which memory is too short among others is answered again
    alone. `on_start` is called with a question's key before its answer; not for a served model,
    which takes no memory here.
    """
    if Capability.SERVER in engine.capabilities:
        yield from _answers_of_server(
            cast(RemoteEngine, engine), method, examples, specification, batch
        )
        return
    size = largest_batch(engine, examples, specification) if batch == "auto" else batch
    too_large: list[Example] = []

    def starting() -> Iterator[Example]:
        for example in examples:
            on_start(example.key)
            yield example

    def ask_one(example: Example, proxy: Engine) -> Record | None:
        try:
            record = ask(proxy, method, example, specification, failures=(UserError,))
        except MEMORY_ERRORS:
            too_large.append(example)
            return None
        return _without_times(record, scheduler.size)

    if size == 1 or not isinstance(engine, LM) or method.sequential():
        yield from (ask(engine, method, example, specification) for example in starting())
        return
    with BatchScheduler(engine, min(size, len(examples))) as scheduler:
        for task in scheduler.run(partial(ask_one, example) for example in starting()):
            if record := task.result():
                yield record
    yield from (ask(engine, method, example, specification) for example in too_large)


def _answers_of_server(
    engine: RemoteEngine,
    method: Method,
    examples: Sequence[Example],
    specification: AnswerSpecification,
    batch: Batch,
) -> Iterator[Record]:
    """The records of a served model, some of whose requests are under way together. Raises
    EngineLostError: the server is gone; what it answered until then was returned before.
    """
    several = engine.concurrency or (batch if isinstance(batch, int) else 1)
    if several == 1 or len(examples) == 1 or method.sequential():
        yield from (ask(engine, method, example, specification) for example in examples)
        return
    turn = threading.Lock()
    ended = threading.Event()
    lost = list[EngineLostError]()

    def ask_one(example: Example) -> Record | None:
        with turn:
            if ended.is_set():
                return None
            try:
                record = ask(engine.for_thread(turn, several), method, example, specification)
            except EngineLostError as error:
                lost.append(error)
                ended.set()
                return None
        return _without_times(record, several)

    with ThreadPoolExecutor(several) as pool:
        try:
            for task in as_completed([pool.submit(ask_one, example) for example in examples]):
                if record := task.result():
                    yield record
        finally:
            ended.set()  # an interrupted run asks nothing more
    if lost:
        raise lost[0]


def largest_batch(
    engine: Engine, examples: Sequence[Example], specification: AnswerSpecification
) -> int:
    """As many questions as fit in memory if all are as long as the longest."""
    if not isinstance(engine, LM):
        return 1
    longest = max(examples, key=lambda e: sum(len(d.title) + len(d.text) for d in e.documents))
    try:
        prompt = prompt_of(longest, specification, engine.tokenizer, engine.max_context)
    except FAILURES:
        return 1
    return max_batch_size(engine, prompt.total_tokens + limits(specification).max_new_tokens)


def _without_times(record: Record, batch: int) -> Record:
    """The record of a question that was answered together with others: its seconds are not its own."""
    return record.model_copy(
        update={"batch": batch, "offline_s": None, "online_s": None, "first_token_s": None}
    )


def ask(
    engine: Engine,
    method: Method,
    example: Example,
    specification: AnswerSpecification,
    failures: tuple[type[Exception], ...] = FAILURES,
) -> Record:
    """One question's record; it gives the reason if one of these failures left the question without
    an answer.
    """
    base = _question_fields(example)
    prompt: Prompt | None = None
    try:
        prompt = prompt_of(example, specification, engine.tokenizer, engine.max_context)
        with unified_memory_errors():
            answer, trace, first_token_s = timed(engine, method, prompt, limits(specification))
    except EngineLostError:
        raise
    except failures as error:
        return Record(
            **base,
            status="failed",
            reason=" ".join(str(error).split()) or type(error).__name__,
            prompt_sha256=prompt.sha256 if prompt else "",
            tokens=_token_counts(prompt) if prompt else {},
            served=_served(engine) if prompt else None,
        )
    text = engine.tokenizer.decode(answer.ids, skip_special_tokens=True)
    evidence = dict[str, int]()
    if answer.evidence is not None:
        reads = plain_reader(engine.tokenizer, [piece.text for piece in answer.evidence])
        pieces = (reads(piece.text, add_special_tokens=False) for piece in answer.evidence)
        evidence["evidence"] = sum(len(piece["input_ids"]) for piece in pieces)
    return Record(
        **base,
        status="ok",
        prompt_sha256=prompt.sha256,
        exact_tokens=prompt.exact_tokens,
        control_tokens=prompt.control_tokens,
        tokens={**_token_counts(prompt), **evidence, "generated": len(answer.ids)},
        kept=list(answer.kept),
        saliency=list(answer.saliency),
        evidence=None
        if answer.evidence is None
        else [_evidence(piece, example) for piece in answer.evidence],
        request=answer.request,
        truncated=prompt.truncated if answer.truncated is None else answer.truncated,
        text=text,
        cut=engine.cut,
        prediction=(text.lstrip() if limits(specification).skip_blanks else text).split("\n")[0],
        trace=[call.to_json() for call in trace],
        cache_bytes=engine.peak_cache_bytes,
        offline_s=seconds(c for c in trace if c.offline),
        online_s=seconds(online(trace)),
        first_token_s=first_token_s,
        served=_served(engine),
    )


def _served(engine: Engine) -> ServedResponse | None:
    """What a server reported of the last request; None if it did not respond, or the engine has
    none.
    """
    return cast(RemoteEngine, engine).exchange if Capability.SERVER in engine.capabilities else None


def _question_fields(example: Example) -> dict[str, Any]:
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


def limits(specification: AnswerSpecification) -> Limits:
    """The limits of a response. In a chat, which a model ends by a mark, line ends before its text
    end nothing: an instruct model that is unsure of its turn writes the marks of further turns
    first, each with a line end.
    """
    most = (
        Limits.max_new_tokens
        if specification.max_new_tokens is None
        else specification.max_new_tokens
    )
    return Limits(most, skip_blanks=specification.template == "chat")


def prompt_of(
    example: Example, specification: AnswerSpecification, tokenizer: Any, context: int | None = None
) -> Prompt:
    """The example's prompt under the specification's template and instruction. Prompts in
    LongBench's form are truncated to the model's `context`, in tokens, or to the data set's option
    `max_length` if that is less.
    """
    longest = [context - limits(specification).max_new_tokens] if context else []
    if specification.dataset_options.get("max_length"):
        longest.append(specification.dataset_options["max_length"])
    return build_prompt(
        example.question,
        [(d.title, d.text) for d in example.documents],
        instruction=specification.instruction,
        template=specification.template,
        tokenizer=tokenizer,
        gold=example.gold,
        gold_sources=[
            Source(s.document, "", example.documents[s.document].text[s.start : s.stop], s.start)
            for s in example.gold_stretches
        ],
        context=min(longest, default=None),
        tokenization=cast(Tokenization, specification.tokenization),
        blank_line=specification.dataset_options.get("blank_line", False),
    )


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


def _meta(specification: AnswerSpecification, variant: str, threads: int | None) -> dict[str, Any]:
    """The metadata of the records; the shape comes from the configuration, as weights may not have
    been loaded.
    """
    return {
        "variant": variant,
        "specification": specification.model_dump(),
        "provenance": provenance(),
        "threads": threads,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "shape": asdict(shape) if (shape := shape_of(specification)) else None,
    }


def shape_of(specification: AnswerSpecification) -> Shape | None:
    """The decoder's shape; None for an engine without caches on a family that this package does not
    have, and for a served model.
    """
    if specification.engine.served:
        return None
    try:
        return read_shape(Path(resolver.resolve(specification.model)))
    except UserError:
        if Capability.SPANS in backend.capabilities(specification.engine.name):
            raise
        return None
