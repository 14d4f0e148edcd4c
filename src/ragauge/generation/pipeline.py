"""Runs one way of generating with retrieval over sequences of held-out text, and keeps a record of each.

`perplexity` reads the given text; `generate` continues its first 64 tokens greedily, once untimed and then `trials`
times. Both read through the same windows by the same calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from ragauge.cost.machine import competing_load
from ragauge.cost.trace import Trace
from ragauge.engines.memory import MEMORY_ERRORS, unified_memory_errors
from ragauge.generation.evaluation import EvaluationStretch
from ragauge.generation.generation import generate
from ragauge.generation.performance import GenerationModel
from ragauge.generation.reader import NeighbourModel, Reader
from ragauge.generation.readers import NeighbourReader, reader_of
from ragauge.generation.schedules import Schedule, SequenceInputs
from ragauge.generation.scoring import token_nll
from ragauge.generation.settings import PipelineSettings, check_dtype
from ragauge.generation.sources import NeighbourSource, Passages
from ragauge.generation.windows import CHUNK, NEIGHBOUR
from ragauge.io.progress import bar
from ragauge.io.record_writer import MAX_CRASHES, RecordWriter, crash_reason
from ragauge.io.records import SequenceRecord

PROMPT = CHUNK  # tokens of a sequence that are continued
UNRECORDED = {
    "model",
    "database",
    "index",
    "evaluation",
    "limit",
    "retrieval_cores",
    "tls_ca",
    "token_file",
    "server_threads",
    "server_cert",
    "server_key",
    "cores",
    "retrofit_minutes",
    "weights",
    "adapters",
}


@dataclass(frozen=True)
class PipelineJob:
    """Everything that a pipeline's records depend on besides their sequences."""

    settings: PipelineSettings
    model: str  # name or source
    seed: int = 0  # of random neighbours
    dtype: str = "float32"
    device: str = "cpu"
    model_sha256: str | None = None
    adapters_sha256: str | None = None  # of what was trained to read neighbours
    database_sha256: str | None = None
    evaluation_sha256: str | None = None  # of the evaluation set; None: the database's held-out text
    index: str | None = None  # hashes of the index that is asked, or of its parts
    code: str | None = None  # digest of the modules that generate

    def __post_init__(self) -> None:
        check_dtype(self.settings, self.dtype, self.device)

    @cached_property
    def schedule(self) -> Schedule:
        """When the database is asked."""
        return self.settings.kind(self.settings, self.seed)

    @cached_property
    def form(self) -> NeighbourReader:
        """How neighbours are read."""
        return reader_of(**self.settings.model_dump())

    def fingerprint(self) -> dict[str, Any]:
        """Everything that the records depend on: the settings without labels and cores; files by their hashes."""
        made = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "settings"}
        unrecorded = (
            UNRECORDED if self.settings.task == "generate" else {*UNRECORDED, "server"}
        )  # it changes times alone
        return self.settings.model_dump(exclude=unrecorded) | made


@dataclass
class Pipeline:
    """A decoder beside its retriever."""

    lm: NeighbourModel
    job: PipelineJob
    searcher: Any = None  # a `retrieval.Searcher`, where the schedule asks
    passages: Passages | None = None  # the database's, where neighbours are random
    network_s: float = 0.0  # of a message to the searcher and back without a search
    generation: GenerationModel | None = field(default=None, init=False)  # fitted once, where searches are to be hidden

    def record(self, text: EvaluationStretch) -> SequenceRecord:
        """One sequence's record; one that outgrows the memory fails with its reason.

        Raises:
            UserError: the retriever failed. The run ends; begun anew, it goes on with this sequence.
        """
        base: dict[str, Any] = {"key": text.key, "document": text.document, "tokens": len(text.ids)}
        try:
            run = self._score if self.job.settings.task == "perplexity" else self._generate
            with unified_memory_errors():
                return SequenceRecord(**base, status="ok", **run(text))
        except MEMORY_ERRORS as error:
            return SequenceRecord(**base, status="failed", reason=" ".join(str(error).split()) or type(error).__name__)

    def _score(self, text: EvaluationStretch) -> dict[str, Any]:
        def read(reader: Reader, source: NeighbourSource) -> Any:
            return token_nll(reader, text.ids, source, self.job.schedule.windows)

        nll, source, trace, seconds = self._run(text, read)
        scored = nll[CHUNK - 1 :]  # what is predicted before the first retrieval is the same for all schedules
        return {
            "nll": float(scored.double().mean()),
            "scored": len(scored),
            "trials_s": [seconds],
            "trace": [call.to_json() for call in trace],
            **_found(source),
        }

    def _generate(self, text: EvaluationStretch) -> dict[str, Any]:
        self.warm_up(text)
        with competing_load() as load:
            trials = [self.generate(text) for _ in range(self.job.settings.trials)]
        ids, source, trace, _ = sorted(trials, key=lambda trial: trial[3])[len(trials) // 2]
        return {
            "prompt_tokens": PROMPT,
            "generated": ids,
            "trials_s": [seconds for *_, seconds in trials],
            "load_share": load.share,
            "network_s": self.network_s if self.job.settings.asks else None,
            "trace": [call.to_json() for call in trace],
            **_found(source),
        }

    def generate(self, text: EvaluationStretch) -> tuple[list[int], NeighbourSource, Trace, float]:
        """(new tokens, where neighbours came from, trace, seconds) of continuing a text's first 64 tokens."""

        def write(reader: Reader, source: NeighbourSource) -> list[int]:
            return generate(reader, text.ids[:PROMPT], self.job.settings.tokens, source, self.job.schedule.windows)

        return self._run(text, write)

    def warm_up(self, text: EvaluationStretch) -> None:
        """Generate once untimed; the performance model is fitted to the first such trace, searches at nprobe 1."""
        if self.job.settings.chooses_nprobe and self.generation is None:
            self.generation = GenerationModel.of(self.generate(text)[2], self.job.form.in_cache)
        elif self.job.settings.trials > 1:
            self.generate(text)

    def _run(
        self, text: EvaluationStretch, use: Callable[[Reader, NeighbourSource], Any]
    ) -> tuple[Any, NeighbourSource, Trace, float]:
        """(what `use` returns, the source, the trace, seconds) of one pass over a sequence with a cache of its own."""
        schedule = self.job.schedule
        room = schedule.settings.neighbours * NEIGHBOUR if schedule.reads_neighbours else 0
        reader = self.lm.open(self.job.settings.tokens, room)
        source = schedule.source(
            SequenceInputs(
                reader.note,
                text.key,
                text.document,
                self.searcher,
                self.passages,
                self.lm.tokenizer,
                self._budget_s,
                reader.ahead,
            )
        )
        try:
            with self.lm.tracing() as trace:
                self.lm.synchronize()
                started = time.perf_counter()
                result = use(reader, source)
                self.lm.synchronize()
                seconds = time.perf_counter() - started
        finally:
            source.close()
        return result, source, list(trace), seconds

    def _budget_s(self, length: int) -> float:
        """Seconds of a search beside the window after `length` tokens; the least there is until a model is fitted."""
        if self.generation is None:
            return 1e-3
        windows, k = self.job.schedule.windows, self.job.settings.neighbours
        return self.generation.budget_s(length, windows, k, self.network_s)


def run(
    make: Callable[[], Pipeline],
    texts: list[EvaluationStretch],
    job: PipelineJob,
    out: Path,
    *,
    overwrite: bool = False,
    about: dict[str, Any] | None = None,
) -> Path:
    """Keep a record of every sequence that `out` does not hold yet; a killed run goes on where it was.

    Args:
        make: loads the decoder and reaches the retriever; called only where something is to do.
        about: what is written beside the records (variant, provenance).

    Raises:
        UserError: the model or the retriever cannot be had; `out` holds another run's records or cannot be written.
    """
    keys = [text.key for text in texts]
    with RecordWriter(out, job.fingerprint(), keys, overwrite, SequenceRecord) as writer:
        todo = [text for text in texts if text.key not in writer.done]
        pipeline = make() if todo else None
        for text in bar(job.settings.schedule, "sequence", len(texts), len(texts) - len(todo), iterable=todo):
            assert pipeline is not None
            writer.append(_record(pipeline, text, writer))
        model = pipeline.generation if pipeline else None
        network_s = pipeline.network_s if pipeline and job.settings.asks else None
        measured = {"performance_model": asdict(model) if model else None, "network_s": network_s}
        writer.finish({**(about or {}), **measured})
    return out


def _record(pipeline: Pipeline, text: EvaluationStretch, writer: RecordWriter) -> SequenceRecord:
    """Return a sequence's record; a failed one if processes died at it."""
    if (crashes := writer.crashes.get(text.key, 0)) >= MAX_CRASHES:
        reason = crash_reason(crashes)
        return SequenceRecord(
            key=text.key, document=text.document, tokens=len(text.ids), status="failed", reason=reason
        )
    writer.start(text.key)
    return pipeline.record(text)


def _found(source: NeighbourSource) -> dict[str, Any]:
    """Which chunks were found, and by how much searching."""
    found = getattr(source, "asked", [])
    return {"neighbours": [[int(i) for i in one.ids] for one in found], "nprobe": [int(one.nprobe) for one in found]}
