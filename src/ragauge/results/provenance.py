"""The provenance of a run's numbers: settings, data, code and machine of every file of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ragauge.results import pipelines
from ragauge.results.pipelines import Pipeline
from ragauge.results.runs import Runs, Variant


def describe(runs: Runs) -> dict[str, Any]:
    """The provenance of a run as JSON: `answers` (one a variant), `latency` (one a model), `pipelines` (one each),
    `machines` (each once)."""
    machines = _Machines()
    return {
        "answers": [_answers(variant, machines) for variant in runs.run],
        "latency": [_latency(result, machines) for result in runs.latencies],
        "pipelines": [_pipeline(each, machines) for each in pipelines.pipelines(runs) if not each.missing],
        "machines": machines.known,
    }


def machine(provenance: Mapping[str, Any], device: str | None = None) -> str:
    """The machine of a provenance block: the GPU where the decoder ran on one, else the CPU and its threads."""
    gpu, cpu = provenance.get("gpu"), provenance.get("cpu")
    if str(device).startswith("cuda") and isinstance(gpu, Mapping):
        return str(gpu.get("name") or "")
    threads = provenance.get("threads")
    return f"{cpu}, {threads} {'thread' if threads == 1 else 'threads'}" if cpu and threads else str(cpu or "")


class _Machines:
    """Distinct machines and environments, numbered in order of appearance; timestamps are ignored."""

    def __init__(self) -> None:
        self.known: list[dict[str, Any]] = []

    def number(self, provenance: Mapping[str, Any]) -> int:
        timeless = {k: v for k, v in provenance.items() if k != "time"}
        if timeless not in self.known:
            self.known.append(timeless)
        return self.known.index(timeless)


def _answers(variant: Variant, machines: _Machines) -> dict[str, Any]:
    provenance = dict(variant.meta.get("provenance") or {})
    return {
        "dataset": variant.dataset,
        "model": variant.model,
        "variant": variant.name,
        "questions": len(variant.records),
        "failed": len(variant.failed),
        "finished": provenance.get("time"),
        "machine": machines.number(provenance),
        "peak_memory_bytes": variant.meta.get("peak_memory_bytes"),
        "settings": variant.specification.model_dump() if variant.specification else None,
        "code": (variant.meta.get("fingerprint") or {}).get("code"),
    }


def _pipeline(pipeline: Pipeline, machines: _Machines) -> dict[str, Any]:
    provenance = dict(pipeline.meta.get("provenance") or {})
    return {
        "pipeline": pipeline.name,
        "dataset": pipeline.specification.database,
        "model": pipeline.specification.model,
        "sequences": len(pipeline.all_records),
        "finished": provenance.get("time"),
        "machine": machines.number(provenance),
        "cores": pipeline.engine.get("cores"),
        "load_share": pipeline.load_share,
        "settings": pipeline.meta.get("fingerprint"),
    }


def _latency(result: Mapping[str, Any], machines: _Machines) -> dict[str, Any]:
    provenance = dict(result.get("provenance") or {})
    return {
        "model": result["model"],
        "dataset": result["dataset"],
        "finished": provenance.get("time"),
        "machine": machines.number(provenance),
        **{key: result.get(key) for key in ("protocol", "load", "refused", "unsupported")},
    }
