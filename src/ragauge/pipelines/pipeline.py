"""Runs pipelines over sequences of held-out text, which they score or continue, and writes a record
of each. Timed trials of several pipelines take turns.
"""

import math
import random
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ragauge.cost.machine import Load, competing_load, processor
from ragauge.cost.trace import Trace
from ragauge.engines.memory import MEMORY_ERRORS, unified_memory_errors
from ragauge.engines.passes import NotFiniteError
from ragauge.errors import in_one_line
from ragauge.io.progress import bar
from ragauge.io.record_writer import MAX_CRASHES, RecordWriter, crash_reason
from ragauge.io.records import SequenceRecord
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.decoding import generate, token_nll
from ragauge.pipelines.evaluation import EvaluationStretch
from ragauge.pipelines.performance import GenerationModel
from ragauge.pipelines.reader import NeighbourModel, PreparingReader, SequenceReader
from ragauge.pipelines.schedules.base import SequenceInputs
from ragauge.pipelines.sources import NeighbourSource
from ragauge.pipelines.specification import PipelineSpecification
from ragauge.pipelines.windows import CHUNK, NEIGHBOUR

PROMPT = CHUNK  # tokens of a sequence that are continued
ENDED = object()


@dataclass
class Pipeline:
    lm: NeighbourModel
    specification: PipelineSpecification
    searcher: Any = None  # a `retrieval.Searcher`, where the schedule asks an index
    passages: Database | None = None  # the database's, where neighbours are random
    network_s: float = 0.0  # of a message to the searcher and back without a search
    # fitted once, where nprobe follows from it
    performance: GenerationModel | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.settings = self.specification.pipeline
        self.schedule = self.settings.make_schedule(self.specification.seed)

    def steps(self, text: EvaluationStretch) -> Generator[None, None, SequenceRecord]:
        """Make one sequence's record, with a pause before each generation, in which others may run;
        one that outgrows the memory, or has no finite likelihood, fails.

        Raises:
            UserError: the retriever failed.
        """
        try:
            with unified_memory_errors():
                if self.settings.task == "perplexity":
                    result = self._score(text)
                else:
                    result = yield from self._generate(text)
        except (*MEMORY_ERRORS, NotFiniteError) as error:
            return _failed(text, in_one_line(error))
        if not math.isfinite(result.get("nll", 0.0)):  # which JSON has no number for
            return _failed(text, "its likelihood is not a finite number")
        return SequenceRecord(**_sequence_facts(text), status="ok", **result)

    def _score(self, text: EvaluationStretch) -> dict[str, Any]:
        windows = self.schedule.windows
        nll, source, trace, seconds = self._run(
            text, lambda reader, source: token_nll(reader, text.ids, source, windows)
        )
        # what is predicted before the first retrieval is the same for all schedules
        scored = nll if self.settings.scoring == "published" else nll[CHUNK - 1 :]
        scores = {
            "nll": float(scored.double().mean()),
            "scored": len(scored),
            "trials_s": [seconds],
        }
        return scores | _retrieved(source, trace)

    def _generate(self, text: EvaluationStretch) -> Generator[None, None, dict[str, Any]]:
        yield
        self.warm_up(text)
        trials = []
        load = Load()
        for _ in range(self.settings.trials):
            yield
            with competing_load() as of_trial:
                trials.append(self.generate(text))
            load += of_trial
        ids, source, trace, _ = sorted(trials, key=lambda trial: trial[3])[len(trials) // 2]
        return {
            "prompt_tokens": PROMPT,
            "generated": ids,
            "trials_s": [seconds for *_, seconds in trials],
            "load_share": load.share,
            "network_s": self.network_s if self.settings.queries_index else None,
            **_retrieved(source, trace),
        }

    def generate(self, text: EvaluationStretch) -> tuple[list[int], NeighbourSource, Trace, float]:
        """(new tokens, where neighbours came from, trace, seconds) of continuing a text's first 64
        tokens.
        """
        tokens = self.settings.tokens
        windows = self.schedule.windows
        return self._run(
            text,
            lambda reader, source: generate(reader, text.ids[:PROMPT], tokens, source, windows),
        )

    def warm_up(self, text: EvaluationStretch) -> None:
        """Generate once untimed; the performance model is fitted to the first such trace, searches
        at nprobe 1.
        """
        if self.settings.hides_search and self.performance is None:
            self.performance = GenerationModel.fit(
                self.generate(text)[2], self.specification.mode.in_cache
            )
        elif self.settings.trials > 1:
            self.generate(text)

    def _run(
        self, text: EvaluationStretch, use: Callable[[SequenceReader, NeighbourSource], Any]
    ) -> tuple[Any, NeighbourSource, Trace, float]:
        """(what `use` returns, the source, the trace, seconds) of one pass over a sequence in a new
        cache.
        """
        schedule = self.schedule
        lm = self.lm
        reader = lm.open(
            self.settings.tokens,
            schedule.neighbours * NEIGHBOUR if schedule.reads_neighbours else 0,
        )
        prepare = reader.prepare if isinstance(reader, PreparingReader) else None
        searched = self.searcher, self.passages, self._budget_s
        source = schedule.source(
            SequenceInputs(reader.note, text.key, text.document, *searched, prepare)
        )
        try:
            with lm.tracing() as trace:
                lm.synchronize()
                started = time.perf_counter()
                result = use(reader, source)
                lm.synchronize()
                seconds = time.perf_counter() - started
        finally:
            source.close()
        return result, source, list(trace), seconds

    def _budget_s(self, length: int) -> float:
        """Seconds of a search next to the window after `length` tokens; the least there is until a
        model is fitted.
        """
        if self.performance is None:
            return 1e-3
        return self.performance.budget_s(
            length, self.schedule.windows, self.settings.neighbours, self.network_s
        )


def in_turns(runs: Iterable[Iterator[None]], seed: int = 0) -> None:
    """Take runs to their ends, one step of each in turn, in seeded random orders: timed trials of
    several pipelines on one text alternate, until one fails.

    Raises:
        UserError: as the runs do.
    """
    order = random.Random(seed)
    pending = list(runs)
    while pending:
        order.shuffle(pending)
        pending = [run for run in pending if next(run, ENDED) is not ENDED]


def run(
    make: Callable[[], Pipeline],
    texts: list[EvaluationStretch],
    specification: PipelineSpecification,
    out: Path,
    *,
    overwrite: bool = False,
    about: dict[str, Any] | None = None,
) -> Iterator[None]:
    """Write a record of every sequence that `out` does not have yet, with metadata `about`; a
    killed run resumes. `make` loads the decoder and connects the retriever; it is called only if a
    sequence is missing. Pauses before each generation, in which others may run.

    Raises:
        UserError: as `make` and `RecordWriter` do.
    """
    keys = [text.key for text in texts]
    machine = processor(specification.device)
    with RecordWriter(
        out, specification.fingerprint, keys, overwrite, SequenceRecord, machine
    ) as writer:
        todo = [text for text in texts if text.key not in writer.done]
        pipeline = make() if todo else None
        label = specification.pipeline.schedule
        for text in bar(label, "sequence", len(texts), len(texts) - len(todo), iterable=todo):
            crashes = writer.crashes.get(text.key, 0)
            if crashes >= MAX_CRASHES:
                writer.append(_failed(text, crash_reason(crashes)))
                continue
            assert pipeline is not None
            writer.start(text.key)
            record = yield from pipeline.steps(text)
            writer.append(record)
        model = pipeline.performance if pipeline else None
        network_s = (
            pipeline.network_s if pipeline and specification.pipeline.queries_index else None
        )
        measured = {"performance_model": asdict(model) if model else None, "network_s": network_s}
        writer.finish({**(about or {}), "specification": specification.model_dump(), **measured})


def _sequence_facts(text: EvaluationStretch) -> dict[str, Any]:
    return {"key": text.key, "document": text.document, "tokens": len(text.ids)}


def _failed(text: EvaluationStretch, reason: str) -> SequenceRecord:
    return SequenceRecord(**_sequence_facts(text), status="failed", reason=reason)


def _retrieved(source: NeighbourSource, trace: Trace) -> dict[str, Any]:
    """Return a sequence's calls, the chunks that each search found, and the lists that it scanned."""
    return {
        "trace": [call.to_json() for call in trace],
        "neighbours": [neighbours.ids for neighbours in source.results],
        "nprobe": [int(neighbours.nprobe) for neighbours in source.results],
    }
