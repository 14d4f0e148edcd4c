"""A stream of questions over a corpus whose documents come back, answered with a store of what was
prepared of them.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ragauge.config.protocols import StreamSettings
from ragauge.cost.trace import Call, indexing_s
from ragauge.engines.lm import LM
from ragauge.engines.store import MemoryStore
from ragauge.errors import UserError
from ragauge.io.progress import bar
from ragauge.measure import timing
from ragauge.measure.protocols import arrivals
from ragauge.measure.protocols.arrivals import ScheduledRequest, TimedRequest
from ragauge.measure.protocols.cold import STATE, drop_page_cache, storing_documents
from ragauge.measure.timing import Bench
from ragauge.methods.base.method import Method
from ragauge.methods.base.tree import TreeMethod
from ragauge.methods.prompts import Prompt
from ragauge.results.times import (
    RequestSummary,
    RequestTimes,
    Stream,
    StreamTimes,
    Watched,
    remarks,
    share_found,
)

RATES = ("seconds", "questions_per_s", "tokens_per_s")
PROBES = 2  # requests that are answered with an empty store and again, before the stream
CACHE_STATES = {
    "disk": f"documents are read from disk: {STATE}",
    "memory": "documents are read from memory",
}


def measure_stream(
    variants: Mapping[str, Method],
    bench: Bench,
    settings: StreamSettings,
    *,
    folder: Path,
    seed: int = 0,
) -> StreamTimes:
    """The same stream for one variant after another, each with a store of its own that begins
    empty.

    A request's documents are known with its question, so all that is read of them is on the clock:
    from the store, or anew. A tree of prefixes is its own store, in memory, of the same size.
    `folder` is on the disk that the store is meant to be on; what is written there is removed
    again. `seed` is of the documents' popularity and of what is drawn.

    Raises UserError: fewer documents than a request has; a prompt that the context does not hold.
    """
    prompts = requests(bench.prompts, settings, seed)
    able, unsupported = timing.supported(variants, bench.lm)
    streams = []
    with bar(f"stream on {bench.dataset}", "variant", len(able)) as progress:
        for name, method in able.items():
            progress.set_postfix_str(name)
            stream = _Stream(name, method, bench.lm, prompts, settings, folder)
            streams.append(stream.run(seed))
            progress.update()
    more = {"cache_state": CACHE_STATES[settings.store], **corpus_sizes(bench.prompts)}
    return StreamTimes(**bench.result(settings, seed, unsupported, **more), streams=streams)


def corpus_sizes(prompts: Sequence[Prompt]) -> dict[str, int]:
    """The number of different documents of the prompts, and of their tokens."""
    corpus = {tuple(ids) for prompt in prompts for ids in prompt.documents}
    return {"corpus_documents": len(corpus), "corpus_tokens": sum(map(len, corpus))}


def requests(prompts: Sequence[Prompt], settings: StreamSettings, seed: int) -> list[Prompt]:
    """The prompts of a stream: the questions in turn, each with documents that are drawn by their
    popularity.

    The corpus' last documents enter one by one, `growth` a request: a new one is the most popular,
    and all others move down a rank.

    Quality is not measured, so the documents need not answer the question. Raises UserError: the
    corpus has fewer documents than a request.
    """
    pairs = [pair for p in prompts for pair in zip(p.documents, p.document_texts, strict=True)]
    corpus = list({tuple(ids): (ids, text) for ids, text in pairs}.values())
    # documents at the beginning
    first = len(corpus) - int(settings.growth * (settings.requests - 1))
    if first < settings.documents:
        few = f"{settings.documents} a request, but {len(prompts)} questions have {len(corpus)} in all"
        few += f", of which {len(corpus) - first} enter later" if len(corpus) > first else ""
        raise UserError(f"documents: {few}; ask more questions")
    rng = np.random.default_rng(seed)
    ranks = rng.permutation(first)  # from 0, the most popular
    requests_ = []
    for number in range(settings.requests):
        new = int(settings.growth * number)
        weights = np.arange(1, first + new + 1, dtype=float) ** -settings.exponent
        popularity = (weights / weights.sum())[np.concatenate([ranks + new, np.arange(new)[::-1]])]
        drawn = [
            corpus[i]
            for i in rng.choice(first + new, settings.documents, replace=False, p=popularity)
        ]
        documents, texts = zip(*drawn, strict=True)
        prompt = prompts[number % len(prompts)]
        requests_.append(
            replace(
                prompt,
                documents=list(documents),
                document_texts=texts,
                gold=(),
                sources=(),
                text=None,
            )
        )
    return requests_


@dataclass
class _Stream:
    name: str
    method: Method
    lm: LM
    prompts: Sequence[Prompt]  # one a request
    settings: StreamSettings
    folder: Path
    # files of the store, which leave the page cache between requests, off the clock
    stored_in: Path | None = None
    stored_bytes: int | None = None  # at the end of the last use of the store

    def run(self, seed: int) -> Stream:
        self._answer(fresh(self.method, self.settings.store_gb), 0)  # warm up, without a store
        pairs = []
        for number in range(PROBES):
            with self._store():
                method = fresh(self.method, self.settings.store_gb)
                prompt = number % len(self.prompts)
                pairs.append((self._answer(method, prompt), self._answer(method, prompt)))

        def answer_all() -> list[RequestTimes]:
            with self._store():
                method = fresh(self.method, self.settings.store_gb)
                served = [self._answer(method, number) for number in range(len(self.prompts))]
            return arrivals.rows(served, warmup=0)

        rows, seen = timing.watched(self.lm, self.settings.allow_load, answer_all)
        return stream_times(self.name, pairs, rows, seen, seed, self.stored_bytes)

    def _answer(self, method: Method, index: int) -> TimedRequest:
        """Answer a request; its times, with what was found of its documents' tokens."""
        prompt = self.prompts[index]
        limits = timing.fixed_length(self.settings.new_tokens)
        self.lm.synchronize()
        start = perf_counter()
        with self.lm.tracing() as trace:
            answer = method.answer(self.lm, method.prepare(self.lm, prompt), prompt, limits)
        self.lm.synchronize()
        end = perf_counter()
        timing.check_length(answer, limits, self.lm, self.name)
        assert self.lm.first_token_at is not None
        start += indexing_s(trace)  # so that no wait has it
        if self.stored_in:
            drop_page_cache(self.stored_in)
        return TimedRequest(
            ScheduledRequest(index, index, start),
            start,
            self.lm.first_token_at,
            end,
            len(answer.ids),
            facts=found_share(trace, prompt),
        )

    @contextmanager
    def _store(self) -> Iterator[None]:
        size = int(self.settings.store_gb * 1e9)
        try:
            if self.settings.store == "memory":
                self.lm.documents = store = MemoryStore("stream", size)
                yield
                self.stored_bytes = store.bytes or None
                return
            with storing_documents(self.lm, self.folder, size) as stored_in:
                self.stored_in = stored_in
                yield
                self.stored_bytes = sum(path.stat().st_size for path in stored_in.iterdir()) or None
        finally:
            self.lm.documents = None
            self.stored_in = None


def stream_times(
    name: str,
    pairs: Sequence[tuple[TimedRequest, TimedRequest]],
    rows: list[RequestTimes],
    seen: Watched,
    seed: int,
    stored_bytes: int | None = None,
) -> Stream:
    """The times of a variant's stream.

    Args:
        pairs: requests with nothing stored, and the same again.
        rows: the times of the stream's requests.
        stored_bytes: in the store after the last one; None: nothing, or not known.
    """
    probes = [pair for pair in pairs if not any(request.failure for request in pair)]
    answered = [row for row in rows if not row.failure]
    is_shown = bool(answered) and not seen.refused
    return Stream(
        variant=name,
        hit_rate=share_found(rows),
        probes=len(probes),
        missed_s=_median_wait(missed for missed, _ in probes),
        found_s=_median_wait(found for _, found in probes),
        stored_bytes=stored_bytes,
        failed=len(rows) - len(answered),
        summary=summarise(answered, seed) if is_shown else RequestSummary(),
        requests=rows,
        **seen.to_json(),
    )


def _median_wait(requests: Iterable[TimedRequest]) -> float | None:
    waits = [request.first_token_s - request.start_s for request in requests]
    return statistics.median(waits) if waits else None


def fresh(method: Method, store_gb: float) -> Method:
    """Return the method for a new run, its own store of this size."""
    options = {"store_gb": store_gb} if isinstance(method, TreeMethod) else {}
    return replace(method, **options).for_run()


def found_share(trace: Sequence[Call], prompt: Prompt) -> dict[str, Any]:
    """The share of the documents' tokens that was not read anew (`found`) and their number
    (`found_of`); None for a method that keeps nothing of them. Of a ranker, whose prompt contains
    all documents but the best, it is the share of the best document's tokens.
    """
    calls = [call for call in trace if call.stage == "documents"]
    in_tree = any(call.stage == "load" for call in trace)
    tokens = sum(map(len, prompt.documents))
    if not calls and not in_tree:
        return {"found": None}
    if not in_tree:  # documents of a tree that are found have no call
        tokens = min(tokens, sum(sum(call.lengths) for call in calls))
    anew = sum(call.computed_tokens for call in calls)
    return {"found": max(0.0, 1 - anew / tokens), "found_of": tokens}


def line(stream: Stream) -> str:
    """One line about a variant's stream."""
    share = stream.hit_rate
    first = stream.summary.first_token_s
    losses = arrivals.losses(stream.requests)
    if first is None:
        return "; ".join([f"{stream.variant}: {stream.refused or 'nothing answered'}", *losses])
    hits = "keeps nothing" if share is None else f"found {share:.0%}"
    wait = f"first token p50 {first.p50.value:.3g} s, p95 {first.p95.value:.3g} s"
    rate = stream.summary.questions_per_s
    notes = [*losses, *remarks(stream.requests)]
    return "; ".join([f"{stream.variant}: {hits}, {wait}, {rate:.3g} questions/s", *notes])


def summarise(rows: Sequence[RequestTimes], seed: int) -> RequestSummary:
    """As of load; requests came one after another, so the rates are over the time of answering."""
    seconds = sum(row.end_at_s - row.arrival_at_s for row in rows)
    keys = {"first_token_s", "per_token_s", "total_s", "requests", *RATES}
    times = arrivals.summarise(rows, seed=seed, seconds=seconds)
    return RequestSummary(**times.model_dump(include=keys, exclude_unset=True))
