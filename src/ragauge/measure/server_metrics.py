"""Metrics of a server at `/metrics`: vLLM, SGLang and llama.cpp, in Prometheus' text
format.
"""

import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from ragauge.engines.backends.openai import ServedEngine
from ragauge.engines.served.http import EndpointError

SAMPLE_S = 0.5  # between two looks at the queue
SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*)(?:\{.*\})?\s+(\S+)", re.MULTILINE)
STACKS = ("vllm:", "sglang:", "llamacpp:")
TOTALS = {  # name -> the counters that state it, of each stack
    "prompt_tokens": (
        "vllm:prompt_tokens_total",
        "sglang:prompt_tokens_total",
        "llamacpp:prompt_tokens_total",
    ),
    "cached_tokens": (
        "vllm:prefix_cache_hits_total",
        "sglang:cached_tokens_total",
        "llamacpp:prompt_tokens_cached_total",
    ),
    "new_tokens": (
        "vllm:generation_tokens_total",
        "sglang:generation_tokens_total",
        "llamacpp:tokens_predicted_total",
    ),
    "preemptions": ("vllm:num_preemptions_total", "sglang:num_retractions_total"),
    "passes": ("vllm:iteration_tokens_total_count", "llamacpp:n_decode_total"),
}
MEANS = {  # name -> endings of histograms of seconds
    "first_token_s": ("time_to_first_token_seconds",),
    "per_token_s": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "queued_s": ("request_queue_time_seconds", "queue_time_seconds"),
    "total_s": ("e2e_request_latency_seconds",),
}
GAUGES = {  # looked at again and again
    "running": (
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "llamacpp:requests_processing",
    ),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"),
    "cache_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
}


def parse(text: str) -> dict[str, float]:
    """Samples by name, those of several label sets added up; of shares of a cache the mean."""
    samples: dict[str, list[float]] = defaultdict(list)
    for name, value in SAMPLE.findall(text):
        with suppress(ValueError):
            samples[name].append(float(value))
    return {
        n: sum(values) / (len(values) if n in GAUGES["cache_usage"] else 1)
        for n, values in samples.items()
    }


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Counts and mean seconds of what a server did between two readings, as far as it states them."""
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    counts = {key: grown[name] for key, names in TOTALS.items() if (name := _first(names, grown))}
    # its prompt tokens are those it read
    if "llamacpp:prompt_tokens_total" in grown and "cached_tokens" in counts:
        counts["prompt_tokens"] += counts["cached_tokens"]
    for key, names in MEANS.items():
        name = _first([f"{stack}{name}_count" for name in names for stack in STACKS], grown)
        if name and grown[name] > 0:
            counts[key] = grown[f"{name.removesuffix('_count')}_sum"] / grown[name]
    return counts


def _first(names: Any, samples: Mapping[str, float]) -> str | None:
    return next((name for name in names if name in samples), None)


@contextmanager
def watched(engine: ServedEngine) -> Iterator[dict[str, float]]:
    """Watch a server: after the block the mapping has its `difference` and each gauge's mean and
    most, if any.
    """
    seen: dict[str, float] = {}
    before = _read(engine)
    ended = threading.Event()
    gauges = defaultdict[str, list[float]](list)

    def look() -> None:
        while not ended.wait(SAMPLE_S):
            samples = _read(engine)
            for key, names in GAUGES.items():
                if name := _first(names, samples):
                    gauges[key].append(samples[name])

    thread = threading.Thread(target=look, daemon=True)
    if before:
        thread.start()
    try:
        yield seen
    finally:
        ended.set()
    if before:
        thread.join()
        seen |= difference(before, _read(engine))
        for key, values in gauges.items():
            seen |= {f"mean_{key}": sum(values) / len(values), f"max_{key}": max(values)}


def _read(engine: ServedEngine) -> dict[str, float]:
    """The server's samples; empty where it has none."""
    assert engine.client is not None
    url = f"{engine.server.url.rstrip('/').removesuffix('/v1')}/metrics"
    try:
        samples = parse(engine.client.read(engine.server, url))
    except EndpointError:
        return {}
    return {name: value for name, value in samples.items() if name.startswith(STACKS)}
