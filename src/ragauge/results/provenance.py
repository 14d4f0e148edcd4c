"""The provenance of a run's numbers: settings, data, code and machine of every file of records."""

from collections.abc import Mapping
from typing import Any

from ragauge.results import pipelines
from ragauge.results.pipelines import PipelineRun
from ragauge.results.runs import Runs, Variant


def describe(runs: Runs) -> dict[str, Any]:
    """The provenance of a run as JSON: its files of answers, times and pipelines, and each machine
    once.
    """
    machines: list[dict[str, Any]] = []
    times = {"latency": runs.latencies, "load": runs.loads, "stream": runs.streams}
    return {
        "answers": [_answers(variant, machines) for variant in runs.run],
        **{
            name: [_times(protocol, machines) for protocol in files]
            for name, files in times.items()
        },
        "pipelines": [
            _pipeline(each, machines) for each in pipelines.pipelines(runs) if not each.missing
        ],
        "machines": machines,
    }


def machine(provenance: Mapping[str, Any], device: str | None = None) -> str:
    """The GPU of a provenance block where the decoder ran on one, else the CPU and its threads."""
    gpu = provenance.get("gpu")
    cpu = provenance.get("cpu")
    if str(device).startswith("cuda") and isinstance(gpu, Mapping):
        return str(gpu.get("name") or "")
    threads = provenance.get("threads")
    return (
        f"{cpu}, {threads} {'thread' if threads == 1 else 'threads'}"
        if cpu and threads
        else str(cpu or "")
    )


SERVER = "server"  # the device of times of a served model


def place(measured: Mapping[str, Any]) -> str:
    device = (measured.get("protocol") or {}).get("device")
    return machine(measured.get("provenance") or {}, device) or "an unrecorded machine"


def provenance_of(variant: Variant) -> dict[str, Any]:
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


def commit(provenance: Mapping[str, Any]) -> str:
    git = provenance.get("git") or {}
    return (
        f"commit {git['commit'][:9]}{' with changes' if git.get('dirty') else ''}"
        if git.get("commit")
        else ""
    )


def _when_and_where(meta: Mapping[str, Any], machines: list[dict[str, Any]]) -> dict[str, Any]:
    """When a file was finished, and the number of its machine and environment, which joins
    `machines` if it is new.
    """
    provenance = dict(meta.get("provenance") or {})
    finished = provenance.pop("time", None)
    if provenance not in machines:
        machines.append(provenance)
    return {"finished": finished, "machine": machines.index(provenance)}


def _answers(variant: Variant, machines: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "dataset": variant.dataset,
        "model": variant.model,
        "variant": variant.name,
        "questions": len(variant.records),
        "failed": len(variant.failed),
        **_when_and_where(variant.meta, machines),
        "peak_memory_bytes": variant.meta.get("peak_memory_bytes"),
        "settings": variant.specification.model_dump() if variant.specification else None,
        "stack": variant.stack,
        "code": (variant.meta.get("fingerprint") or {}).get("code"),
    }


def _pipeline(pipeline: PipelineRun, machines: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "dataset": pipeline.text,
        "model": pipeline.specification.model,
        "sequences": len(pipeline.all_records),
        **_when_and_where(pipeline.meta, machines),
        "cores": pipeline.settings.cores,
        "load_share": pipeline.load_share,
        "settings": pipeline.meta.get("fingerprint"),
    }


def _times(protocol: Mapping[str, Any], machines: list[dict[str, Any]]) -> dict[str, Any]:
    more = {key: protocol.get(key) for key in ("protocol", "load", "refused", "unsupported")}
    return {
        "model": protocol["model"],
        "dataset": protocol["dataset"],
        **_when_and_where(protocol, machines),
        **more,
    }
