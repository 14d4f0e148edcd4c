"""A stream of questions over a corpus whose documents come back, answered with a store of what was prepared of them."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from ragauge.cost import load
from ragauge.cost.cold import STATE, Disk, forget
from ragauge.cost.gpu_load import looked_at, watch
from ragauge.cost.load import Request, Targets, TimedRequest
from ragauge.cost.machine import MAX_LOAD, competing_load
from ragauge.cost.settings import StreamSettings
from ragauge.cost.trace import Call
from ragauge.engines import LM, Limits
from ragauge.engines.store import DocumentStore, MemoryStore
from ragauge.errors import UserError
from ragauge.evaluation.inputs import Questions
from ragauge.evaluation.under_load import opened, sorted_out
from ragauge.experiment.schema import ModelEntry
from ragauge.io.progress import bar
from ragauge.methods import Method
from ragauge.methods.prefix_tree import PrefixTree
from ragauge.prompts import Prompt

PROBES = 2  # requests that are answered with an empty store and again, before the stream
CACHE_STATES = {"disk": f"documents are read from disk: {STATE}", "memory": "documents are read from memory"}


def stream_model(
    variants: Mapping[str, Method],
    questions: Questions,
    model: ModelEntry,
    settings: StreamSettings,
    *,
    folder: Path,
    seed: int = 0,
    allow_load: bool = False,
) -> dict[str, Any]:
    """The same stream for one variant after another, each with a store of its own that begins empty.

    A request's documents are known with its question, so all that is read of them is on the clock: from the store, or
    anew. `prefix_tree` has its own store, in memory, of the same size.

    Args:
        folder: on the disk that the store is meant to be on; what is written there is removed again.
        seed: of the documents' popularity and of what is drawn.
        allow_load: report although other processes kept the machine busy.

    Returns: {"provenance", "protocol", "unsupported", "streams"}; a stream has its `variant`, `hit_rate` by tokens,
        `summary` as `cost.load.summarise` has it, `missed_s` and `found_s` (the median first token of a request whose
        documents are all not in the store, and all in it), and `requests`.

    Raises:
        UserError: fewer documents than a request has; a prompt that the context does not hold.
    """
    lm, prompts = opened(questions, model, settings.questions, settings.new_tokens, settings.threads)
    asked = requests(prompts, settings, seed)
    able, unsupported = sorted_out(variants, lm)
    streams = []
    with bar(f"stream on {questions.name}", "variant", len(able)) as progress:
        for name, method in able.items():
            progress.set_postfix_str(name)
            streams.append({"variant": name, **_Stream(method, lm, asked, settings, folder).run(seed, allow_load)})
            progress.update()
    made = load.result(_protocol(questions, lm, prompts, settings, seed), unsupported, ())
    del made["levels"], made["protocol"]["counted"]
    return {**made, "streams": streams}


def requests(prompts: Sequence[Prompt], settings: StreamSettings, seed: int) -> list[Prompt]:
    """The prompts of a stream: the questions in turn, each with documents that are drawn by their popularity.

    Quality is not measured, so the documents need not answer the question.

    Raises:
        UserError: the corpus has fewer documents than a request.
    """
    pairs = [pair for p in prompts for pair in zip(p.documents, p.document_texts, strict=True)]
    corpus = list({tuple(ids): (ids, text) for ids, text in pairs}.values())
    if len(corpus) < settings.documents:
        raise UserError(
            f"documents: {settings.documents} a request, but {len(prompts)} questions have {len(corpus)} in all; ask "
            "more questions"
        )
    rng = np.random.default_rng(seed)
    weights = np.arange(1, len(corpus) + 1, dtype=float) ** -settings.exponent
    popularity = rng.permutation(weights / weights.sum())
    made = []
    for place in range(settings.requests):
        drawn = [corpus[i] for i in rng.choice(len(corpus), settings.documents, replace=False, p=popularity)]
        documents, texts = zip(*drawn, strict=True)
        prompt = prompts[place % len(prompts)]
        made.append(replace(prompt, documents=list(documents), document_texts=texts, gold=(), sources=()))
    return made


@dataclass
class _Stream:
    """One variant's stream."""

    method: Method
    lm: LM
    asked: Sequence[Prompt]
    settings: StreamSettings
    folder: Path
    after: Callable[[], object] = field(default=lambda: None)  # between requests, off the clock

    def run(self, seed: int, allow_load: bool) -> dict[str, Any]:
        limits = Limits(max_new_tokens=self.settings.new_tokens, ignore_stop=True)
        self._one(self._fresh(), 0, limits)  # warm up, without a store
        ends = [self._ends(place % len(self.asked), limits) for place in range(PROBES)]
        gc.collect()
        gpu = watch(str(self.lm.device))
        with self._store(), competing_load() as busy, looked_at(gpu):
            method = self._fresh()
            served = [self._one(method, place, limits) for place in range(len(self.asked))]
        refused = None if allow_load or gpu is None else gpu.refusal()
        if busy.share > MAX_LOAD and not allow_load:
            refused = f"other processes took {busy.share:.0%} of the machine's CPU time (allowed: {MAX_LOAD:.0%})"
        found = [share for _, share in served]
        rows = load.rows([one for one, _ in served], warmup=0)
        return {
            "load_share": busy.share,
            "gpu": gpu.to_json() if gpu else None,
            "refused": refused,
            "hit_rate": None if None in found else sum(filter(None, found)) / len(found),
            "missed_s": statistics.median(missed for missed, _ in ends),
            "found_s": statistics.median(again for _, again in ends),
            "summary": {} if refused else _summary(rows, seed),
            "requests": [{**row, "found": share} for row, share in zip(rows, found, strict=True)],
        }

    def _ends(self, place: int, limits: Limits) -> tuple[float, float]:
        """Seconds to the first token of a request with an empty store, and of the same again."""
        with self._store():
            method = self._fresh()
            both = [self._one(method, place, limits)[0] for _ in range(2)]
        first, again = (one.first_token_s - one.start_s for one in both)
        return first, again

    def _one(self, method: Method, place: int, limits: Limits) -> tuple[TimedRequest, float | None]:
        """Answer a request; its times, and the share of its documents' tokens that was found."""
        prompt = self.asked[place]
        self.lm.synchronize()
        start = perf_counter()
        with self.lm.tracing() as trace:
            written = method.answer(self.lm, method.prepare(self.lm, prompt), prompt, limits).ids
        self.lm.synchronize()
        end = perf_counter()
        if len(written) != limits.max_new_tokens:
            raise UserError(f"the model's context of {self.lm.shape.max_context} tokens ends the response too soon")
        assert self.lm.first_token_at is not None
        self.after()
        return TimedRequest(Request(place, place, start), start, self.lm.first_token_at, end, len(written)), found(
            trace, prompt
        )

    def _fresh(self) -> Method:
        """The method without anything that it has kept of other questions."""
        if isinstance(self.method, PrefixTree):
            return replace(self.method, store_gb=self.settings.store_gb)
        return replace(self.method)

    @contextmanager
    def _store(self) -> Iterator[None]:
        """An empty store, for the length of the context."""
        size = int(self.settings.store_gb * 1e9)
        if self.settings.store == "memory":
            self.lm.documents = MemoryStore("stream", size)
            try:
                yield
            finally:
                self.lm.documents = None
            return
        with Disk(self.folder, lambda place: DocumentStore(place, "stream", size)).keep(self.lm) as place:
            self.after = lambda: forget(place)
            try:
                yield
            finally:
                self.after = lambda: None


def found(trace: Sequence[Call], prompt: Prompt) -> float | None:
    """The share of the documents' tokens that was not read anew; None for a method that keeps nothing of them."""
    calls = [call for call in trace if call.stage == "documents"]
    if not calls and not any(call.stage == "load" for call in trace):
        return None
    anew = sum(sum(call.lengths) for call in calls if call.loading_s is None)
    return max(0.0, 1 - anew / sum(map(len, prompt.documents)))


def _summary(rows: Sequence[Mapping[str, Any]], seed: int) -> dict[str, Any]:
    """As of load; requests came one after another, so the rates are over the time of answering."""
    made = load.summarise(rows, Targets(), seed)
    seconds = sum(row["total_s"] for row in rows)
    rates = {"questions_per_s": len(rows), "tokens_per_s": sum(row["new_tokens"] for row in rows)}
    kept: dict[str, Any] = {
        key: made[key] for key in ("first_token_s", "per_token_s", "total_s", "requests") if key in made
    }
    return kept | {"seconds": seconds} | {key: count / seconds for key, count in rates.items()}


def _protocol(
    questions: Questions, lm: LM, prompts: Sequence[Prompt], settings: StreamSettings, seed: int
) -> dict[str, Any]:
    corpus = {tuple(ids) for prompt in prompts for ids in prompt.documents}
    return {
        **settings.model_dump(exclude={"methods"}),
        "dataset": questions.name,
        "corpus_documents": len(corpus),
        "corpus_tokens": sum(map(len, corpus)),
        "seed": seed,
        "threads": torch.get_num_threads(),
        **asdict(lm.precision),
        "device": lm.device.type,
        "cache_state": CACHE_STATES[settings.store],
    }
