"""A stream of questions over a corpus whose documents come back, answered with a store of what was
prepared of them.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
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
from ragauge.measure.timing import AnyBench, Bench
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

    Raises:
        UserError: fewer documents than a request has; a prompt that the context does not hold.
    """
    prompts = requests(bench.prompts, settings, seed)
    watched = partial(timing.watched, bench.engine, settings.allow_load)

    def stream_of(name: str, method: Method) -> Stream:
        stream = _Stream(name, method, bench.engine, prompts, settings, folder)
        stream.answer_one(fresh(method, settings.store_gb), 0)  # warm up, without a store
        result = times(name, stream.answer, watched, len(prompts), seed)
        return result.model_copy(update={"stored_bytes": stream.stored_bytes})

    state = CACHE_STATES[settings.store]
    return measured(variants, bench, settings, seed, stream_of, cache_state=state)


def measured(
    variants: Mapping[str, Method],
    bench: AnyBench[Any],
    settings: StreamSettings,
    seed: int,
    stream_of: Callable[[str, Method], Stream],
    **facts: Any,
) -> StreamTimes:
    """Measure one variant after another; `facts`: of the protocol, besides the settings."""
    able, unsupported = bench.supported(variants)
    progress = bar(f"stream on {bench.dataset}", "variant", iterable=able)
    streams = []
    for name in progress:
        progress.set_postfix_str(name)
        streams.append(stream_of(name, able[name]))
    corpus = {tuple(ids) for prompt in bench.prompts for ids in prompt.documents}
    facts |= {"corpus_documents": len(corpus), "corpus_tokens": sum(map(len, corpus))}
    return StreamTimes(**bench.result(settings, seed, unsupported, **facts), streams=streams)


def requests(prompts: Sequence[Prompt], settings: StreamSettings, seed: int) -> list[Prompt]:
    """The prompts of a stream: the questions in turn, each with documents that are drawn by their
    popularity.

    The corpus' last documents enter one by one, `growth` a request: a new one is the most popular,
    and all others move down a rank.

    Quality is not measured, so the documents need not answer the question.

    Raises:
        UserError: the corpus has fewer documents than a request.
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

    def answer(self, indices: Iterable[int], anew: bool) -> list[TimedRequest]:
        """Answer requests in turn; a store always begins empty."""
        with self._store() as method:
            return [self.answer_one(method, index) for index in indices]

    def answer_one(self, method: Method, index: int) -> TimedRequest:
        """Answer a request; its times, with what was found of its documents' tokens."""
        prompt = self.prompts[index]
        limits = timing.fixed_length(self.settings.new_tokens)
        answered = timing.clocked(
            self.lm,
            lambda: method.answer(self.lm, method.prepare(self.lm, prompt), prompt, limits),
        )
        answer = answered.result
        timing.check_length(answer, limits, self.lm, self.name)
        first = self.lm.first_token_at
        assert first is not None
        start = answered.start_s + indexing_s(answered.trace)  # so that no wait has it
        if self.stored_in:
            drop_page_cache(self.stored_in)
        facts = found_share(answered.trace, prompt)
        request = ScheduledRequest(index, index, start)
        return TimedRequest(request, start, first, answered.end_s, len(answer.ids), facts=facts)

    @contextmanager
    def _store(self) -> Iterator[Method]:
        """Begin with an empty store: the method that uses it."""
        size = int(self.settings.store_gb * 1e9)
        method = fresh(self.method, self.settings.store_gb)
        try:
            if self.settings.store == "memory":
                self.lm.documents = store = MemoryStore("stream", size)
                yield method
                self.stored_bytes = store.bytes or None
                return
            with storing_documents(self.lm, self.folder, size) as stored_in:
                self.stored_in = stored_in
                yield method
                self.stored_bytes = sum(path.stat().st_size for path in stored_in.iterdir()) or None
        finally:
            self.lm.documents = None
            self.stored_in = None


def times(
    name: str,
    answer: Callable[[Iterable[int], bool], list[TimedRequest]],
    watched: Callable[[Callable[[], list[RequestTimes]]], tuple[list[RequestTimes], Watched]],
    requests: int,
    seed: int,
) -> Stream:
    """The times of a variant's stream.

    Args:
        answer: answers requests, by index; with nothing stored before, if so requested.
        watched: does a work while the machine or the server is watched.
    """
    pairs = [answer([index % requests] * 2, True) for index in range(PROBES)]
    rows, seen = watched(lambda: arrivals.rows(answer(range(requests), False), warmup=0))
    probes = [pair for pair in pairs if not any(request.failure for request in pair)]
    answered = [row for row in rows if not row.failure]
    is_shown = bool(answered) and not seen.refused
    return Stream(
        variant=name,
        hit_rate=share_found(rows),
        probes=len(probes),
        missed_s=_median_wait(missed for missed, _ in probes),
        found_s=_median_wait(found for _, found in probes),
        stored_bytes=None,
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
    summary = arrivals.summarise(rows, seed=seed, seconds=seconds)
    return RequestSummary(**summary.model_dump(include=keys, exclude_unset=True))
