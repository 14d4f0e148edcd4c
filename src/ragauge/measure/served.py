"""The protocols of `ragauge time`, `load` and `stream` on a model behind a server; see docs/served-models.md.

Times are by the client's clock, with the server's own where it tells. A request that fails is counted and not repeated.
"""

from __future__ import annotations

import random
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ragauge import engines
from ragauge.config.schema import ModelEntry
from ragauge.cost.gap import aligned
from ragauge.cost.machine import competing_load, provenance
from ragauge.cost.settings import LatencySettings, TimedSettings
from ragauge.engines import Limits
from ragauge.engines.backends.openai import ServedEngine
from ragauge.errors import UserError
from ragauge.io.completions import Completion, count
from ragauge.io.http import MAX_PAUSE_S, EndpointError
from ragauge.io.progress import bar
from ragauge.io.streams import StreamClient
from ragauge.measure import latency, timing
from ragauge.measure.inputs import Questions
from ragauge.methods import Method
from ragauge.prompts import Prompt

PAUSE_S = 1.0  # after a failure, before the next request, if the server asks for less
NONCE_BYTES = 4
MAX_COLD, MIN_WARM = 0.1, 0.5  # share of prompts in the server's cache: at most where it is cold, at least where warm
MAX_TEMPLATE = 64  # tokens of a chat template in front of the user's turn, which the cache may have where it is cold
MAX_LATE_S, MAX_LATE_SHARE = 0.02, 0.05  # of the client's own delay: in seconds, and of the median first token
CACHE_STATES = {
    "cold": "a random word in front of each prompt, so that the server's cache has nothing of it",
    "warm": "the server has just answered the same prompt",
    "found": "as the server's cache was found",
}


@dataclass(frozen=True)
class ServedBench:
    """A server with the prompts that every method sends to it."""

    engine: ServedEngine
    prompts: Sequence[Prompt]
    dataset: str

    def adapted(self, variants: Mapping[str, Method]) -> tuple[dict[str, Method], dict[str, str]]:
        """The variants that run on a server, adapted to it, and the reasons why the others do not."""
        methods = {name: method.adapted_to(self.engine.capabilities) for name, method in variants.items()}
        unsupported = {name: reason for name, method in methods.items() if (reason := method.refusal(self.engine))}
        return {name: method for name, method in methods.items() if name not in unsupported}, unsupported

    def protocol(self, seed: int, cache: str) -> dict[str, Any]:
        """The part of a result's protocol that every kind of measurement states."""
        state = {"cache": cache, "cache_state": CACHE_STATES[cache], "timeout_s": self.engine.server.timeout_s}
        return {"dataset": self.dataset, "seed": seed, "device": "server", "prompts": len(self.prompts), **state}


@contextmanager
def bench(questions: Questions, number: int, model: ModelEntry, new_tokens: int) -> Iterator[ServedBench]:
    """A server with the prompts of the first `number` questions, as long as the context lasts."""
    assert model.served is not None
    how = model.served.model_dump(exclude={"price"})
    engine = engines.load(model.source, model.engine, max_context=model.max_context, served=how)
    assert isinstance(engine, ServedEngine)
    with StreamClient() as engine.client:
        yield ServedBench(engine, timing.prompts_of(questions, number, model, engine, new_tokens), questions.name)


def provenance_of(engine: ServedEngine) -> dict[str, Any]:
    """The provenance of times: the machine is the server's, which this one asked."""
    assert engine.client is not None
    facts = provenance()
    return facts | {
        "cpu": f"a server's ({engine.client.stack or 'unnamed'}), asked from {facts['cpu']}",
        "threads": None,
    }


# --- one answer ---


@dataclass(frozen=True)
class Timed:
    """Times of an answer on one clock, and what the server says of its last request."""

    start_s: float
    first_token_s: float
    end_s: float
    new_tokens: int
    facts: Mapping[str, Any]  # of a record

    def to_json(self) -> dict[str, Any]:
        first, total, later = self.first_token_s - self.start_s, self.end_s - self.start_s, self.new_tokens - 1
        per_token = (self.end_s - self.first_token_s) / later if later > 0 else None
        times = {"first_token_s": first, "per_token_s": per_token, "total_s": total}
        return {**times, "new_tokens": self.new_tokens, **self.facts}


def timed_answer(engine: ServedEngine, method: Method, state: Any, prompt: Prompt, limits: Limits) -> Timed:
    """Answer a prompt; raises UserError (EndpointError where the server failed) if there is no answer."""
    start = time.perf_counter()
    with engine.tracing():
        method.answer(engine, state, prompt, limits)  # type: ignore[arg-type]
        exchange, completion = engine.exchange, engine.completion
    assert exchange is not None
    assert completion is not None
    assert engine.first_token_at is not None
    counts = {"prompt_tokens": exchange.prompt_tokens, "cached_tokens": exchange.cached_tokens}
    facts = {**counts, "model": completion.model, "server": server_times(completion)}
    tokens = count(completion.usage, "completion_tokens") or len(completion.pieces)
    return Timed(start, engine.first_token_at, completion.ended, tokens, facts)


def server_times(completion: Completion) -> dict[str, float] | None:
    """Seconds of the first token and of each later one by the server's clock, of its `timings`; None without them."""
    stated = [completion.timings.get(key) for key in ("prompt_ms", "predicted_ms", "predicted_n")]
    if not all(isinstance(value, int | float) for value in stated):
        return None
    prompt_ms, predicted_ms, tokens = map(float, stated)  # type: ignore[arg-type]
    times = {"first_token_s": prompt_ms / 1e3}
    return times | ({"per_token_s": predicted_ms / 1e3 / (tokens - 1)} if tokens > 1 else {})


@dataclass
class Patience:
    """Ends a measurement that the server has stopped to answer."""

    limit_s: float  # without any answer
    answered_at: float = field(default_factory=time.monotonic)

    def answered(self) -> None:
        self.answered_at = time.monotonic()

    @property
    def over(self) -> bool:
        return time.monotonic() - self.answered_at > self.limit_s


def pause_after(error: UserError) -> float:
    """Seconds to wait after a failure, before the next request."""
    return min(max(PAUSE_S, error.wish_s if isinstance(error, EndpointError) else 0.0), MAX_PAUSE_S)


# --- what a measurement says of the server and of the client ---


def cached_share(rows: Sequence[Mapping[str, Any]]) -> float | None:
    """The share of the prompts' tokens that the server's cache had; None where it does not say."""
    known = [row for row in rows if row.get("prompt_tokens") and row.get("cached_tokens") is not None]
    tokens = sum(row["prompt_tokens"] for row in known)
    return sum(row["cached_tokens"] for row in known) / tokens if tokens else None


def refusal(
    rows: Sequence[Mapping[str, Any]], cache: str, settings: TimedSettings, late_s: Sequence[float]
) -> str | None:
    """Why times must not be reported: a cache in another state, another model, or a client that was too slow."""
    share, models = cached_share(rows), list(dict.fromkeys(row["model"] for row in rows if row.get("model")))
    most = max((row.get("cached_tokens") or 0 for row in rows), default=0)
    if cache == "cold" and share is not None and share > MAX_COLD and most > MAX_TEMPLATE:
        return f"the server's cache had {share:.0%} of the prompts, which were to be cold (allowed: {MAX_COLD:.0%})"
    if cache == "warm" and share is not None and share < MIN_WARM:
        return f"the server's cache had {share:.0%} of the prompts, which were to be warm (required: {MIN_WARM:.0%})"
    if len(models) > 1:
        return f"the server changed its model while it was measured: {', '.join(models)}"
    late, first = p99(late_s), [row["first_token_s"] for row in rows if row.get("first_token_s") is not None]
    if first and not settings.allow_load and late > max(MAX_LATE_S, MAX_LATE_SHARE * statistics.median(first)):
        return f"this client was {late:.3f} s late (99th percentile), as its machine was busy; or allow the load"
    return None


def p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * len(values))] if values else 0.0


def server_summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the server says of its answers: the share of prompts in its cache, and medians by its own clock."""
    times = [row["server"] for row in rows if row.get("server")]
    keys = ("first_token_s", "per_token_s")
    clocked = {key: values for key in keys if (values := [one[key] for one in times if key in one])}
    return {"cached_share": cached_share(rows)} | {key: statistics.median(v) for key, v in clocked.items()}


# --- latency ---


def measure_latency(
    variants: Mapping[str, Method], bench: ServedBench, settings: LatencySettings, seed: int = 0
) -> dict[str, Any]:
    """Time the variants with every response length of the protocol, as `latency.measure_latency` does.

    Returns: its keys, as far as a server tells; `server`: the server's view of each variant; `lost`: the trials that
        have no answer, each with its reason.
    """
    first, *others = (_time(variants, bench, settings, n, seed) for n in settings.all_new_tokens)
    return {**first, "other_lengths": others}


def _time(
    variants: Mapping[str, Method],
    bench: ServedBench,
    settings: LatencySettings,
    new_tokens: int,
    seed: int,
) -> dict[str, Any]:
    able, unsupported = bench.adapted(variants)
    trials, cache = _ServedTrials(able, bench, settings, new_tokens, random.Random(seed)), settings.server_cache
    assert bench.engine.client is not None
    late_s = bench.engine.client.late_s
    late_s.clear()
    with competing_load() as load, bar(f"timing on {bench.dataset}", "trial", len(able) * settings.trials) as progress:
        trials.run(progress.update)
    refused = refusal(trials.rows, cache, settings, late_s)
    sizes = {"new_tokens": new_tokens, "trials": settings.trials, "warmup": max(settings.warmup, 1)}
    by_variant = {name: [row for row in trials.rows if row["variant"] == name] for name in able}
    return {
        "provenance": provenance_of(bench.engine),
        "protocol": {**bench.protocol(seed, cache), **sizes, "allow_load": settings.allow_load},
        "machine": {},
        "load": {"share": load.share, "client_late_p99_s": p99(late_s)},
        "refused": refused,
        "unsupported": unsupported,
        "stages": {},
        "gap": {},
        "summary": {} if refused else latency.summarise(trials.rows),
        "server": {name: server_summary(rows) for name, rows in by_variant.items()},
        "rows": trials.rows,
        "lost": trials.lost,
        "documents": None,
        "evidence_batches": None,
    }


@dataclass
class _ServedTrials:
    """The trials of one run, interleaved in seeded random orders."""

    variants: Mapping[str, Method]
    bench: ServedBench
    settings: LatencySettings
    new_tokens: int
    order: random.Random
    rows: list[dict[str, Any]] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)

    def run(self, on_trial: Callable[[], object]) -> None:
        engine, limits = self.bench.engine, timing.fixed_length(self.new_tokens)
        engine.nonce = new_nonce if self.settings.server_cache == "cold" else str
        patience = Patience(engine.server.timeout_s)
        warmup, prompts = max(self.settings.warmup, 1), self.bench.prompts
        for number in range(-warmup, self.settings.trials):
            names = list(self.variants)
            self.order.shuffle(names)
            place = number % len(prompts)
            for name in names:
                method, about = self.variants[name], {"variant": name, "trial": number, "prompt": place}
                try:
                    if patience.over:
                        raise UserError(f"not asked: the server answered nothing for {patience.limit_s:g} s")
                    state = method.prepare(engine, prompts[place])  # type: ignore[arg-type]
                    if self.settings.server_cache == "warm":
                        timed_answer(engine, method, state, prompts[place], timing.fixed_length(1))
                    answer = timed_answer(engine, method, state, prompts[place], limits)
                except UserError as error:
                    self.lost.append({**about, "reason": str(error)})
                    time.sleep(0.0 if patience.over else pause_after(error))
                    continue
                patience.answered()
                if number >= 0:
                    self.rows.append({**about, "disturbed": False, **answer.to_json()})
                    on_trial()


def new_nonce() -> str:
    """A line that no prompt began with before."""
    return f"[{secrets.token_hex(NONCE_BYTES)}]\n"


def losses(lost: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each reason why requests have no answer."""
    return [f"{number} requests lost: {reason}" for reason, number in Counter(one["reason"] for one in lost).items()]


def latency_table(result: Mapping[str, Any]) -> str:
    """A line a variant, by the client's clock and by the server's, and what was lost."""
    lines = [
        ["variant", "first token s", "per token s", "total s", "n", "server: first token s", "per token s", "cached"]
    ]
    for name, times in result["summary"].items():
        cells = [f"{times[key]['median']:.3g}" if times[key]["n"] else "" for key in latency.TIMES]
        server = result["server"][name]
        clocked = [f"{server[key]:.3g}" if key in server else "" for key in ("first_token_s", "per_token_s")]
        share = server["cached_share"]
        lines.append([name, *cells, str(times["total_s"]["n"]), *clocked, "" if share is None else f"{share:.0%}"])
    return "\n".join([aligned(lines), *losses(result["lost"])])
