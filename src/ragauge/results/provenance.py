"""The provenance of a run's numbers: settings, data, code and machine of every file of records."""

from collections.abc import Mapping

from ragauge.io.jsonl import JsonObject
from ragauge.results import pipelines
from ragauge.results.cells import Keys
from ragauge.results.pipelines import PipelineRun
from ragauge.results.runs import Runs, Variant
from ragauge.results.times import LatencyTimes, TimesFile


def describe(runs: Runs) -> JsonObject:
    """The provenance of a run as JSON: its files of answers, times and pipelines, and each machine
    once.
    """
    machines: list[JsonObject] = []
    return {
        "answers": [_answers(variant, machines) for variant in runs.run],
        "latency": [_times(times, machines) for times in runs.latencies],
        "load": [_times(times, machines) for times in runs.loads],
        "stream": [_times(times, machines) for times in runs.streams],
        "pipelines": [
            _pipeline(each, machines) for each in pipelines.pipelines(runs) if not each.missing
        ],
        "machines": machines,
    }


def machine(provenance: Keys, device: str | None = None) -> str:
    """The GPU of a provenance block where the decoder ran on one, else the CPU and its threads."""
    gpu = provenance.get("gpu")
    if isinstance(gpu, Mapping) and str(device).startswith("cuda"):
        return str(gpu.get("name") or "")
    cpu = str(provenance.get("cpu") or "")
    threads = provenance.get("threads")
    if not cpu or not threads:
        return cpu
    return f"{cpu}, {threads} {'thread' if threads == 1 else 'threads'}"


def place(times: TimesFile) -> str:
    """The machine of a file of times."""
    return machine(times.provenance, times.protocol.device) or "an unrecorded machine"


def provenance_of(variant: Variant) -> JsonObject:
    """The provenance in the metadata of a variant's records; of a served model the machine is the
    one that asked.
    """
    facts = dict(variant.meta.get("provenance") or {})
    if variant.stack:
        facts |= {
            "cpu": f"a server ({variant.stack}), requests from {facts.get('cpu') or 'a client'}",
            "threads": None,
        }
    return facts


def commit(provenance: Keys) -> str:
    git = provenance.get("git") or {}
    if not git.get("commit"):
        return ""
    return f"commit {git['commit'][:9]}{' with changes' if git.get('dirty') else ''}"


def _when_and_where(provenance: Keys, machines: list[JsonObject]) -> JsonObject:
    """When a file was finished, and the number of its machine and environment, which joins
    `machines` if it is new.
    """
    facts = dict(provenance)
    finished = facts.pop("time", None)
    if facts not in machines:
        machines.append(facts)
    return {"finished": finished, "machine": machines.index(facts)}


def _answers(variant: Variant, machines: list[JsonObject]) -> JsonObject:
    return {
        "dataset": variant.dataset,
        "model": variant.model,
        "variant": variant.name,
        "questions": len(variant.records),
        "failed": len(variant.failed),
        **_when_and_where(variant.meta.get("provenance") or {}, machines),
        "peak_memory_bytes": variant.meta.get("peak_memory_bytes"),
        "settings": variant.specification.model_dump() if variant.specification else None,
        "stack": variant.stack,
        "code": (variant.meta.get("fingerprint") or {}).get("code"),
    }


def _pipeline(pipeline: PipelineRun, machines: list[JsonObject]) -> JsonObject:
    return {
        "pipeline": pipeline.name,
        "dataset": pipeline.text,
        "model": pipeline.specification.model,
        "sequences": len(pipeline.all_records),
        **_when_and_where(pipeline.meta.get("provenance") or {}, machines),
        "cores": pipeline.settings.cores,
        "load_share": pipeline.load_share,
        "settings": pipeline.meta.get("fingerprint"),
    }


def _times(times: TimesFile, machines: list[JsonObject]) -> JsonObject:
    latency = times if isinstance(times, LatencyTimes) else None
    return {
        "model": times.model,
        "dataset": times.dataset,
        **_when_and_where(times.provenance, machines),
        "protocol": times.protocol.to_json(),
        "load": latency.load.to_json() if latency else None,
        "refused": latency.refused if latency else None,
        "unsupported": times.unsupported,
    }
