"""A small invented results folder of PipeRAG's kind. Test-only: no number in it was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ragauge.cost.trace import Call
from ragauge.generation.cross_attention import CrossAttention
from ragauge.generation.joint import JointAttention
from ragauge.generation.windows import CHUNK
from ragauge.io.records import SequenceRecord
from synthetic_run import MODEL, PROVENANCE

Task = Literal["perplexity", "generate"]


@dataclass(frozen=True)
class Schedule:
    """A schedule as fingerprints of version 1 have it."""

    kind: str = "retro"
    interval: int = CHUNK
    k: int = 2
    nprobe: int | None = None
    hide: bool = False
    exclude: str = "none"
    characters: int | None = None
    seed: int = 0
    read_ahead: bool = True

    @property
    def asks(self) -> bool:
        return self.kind not in ("no_retrieval", "random")


DATABASE, INDEX = "wikipedia", "ivf"
JOINT = JointAttention()
TOKENS = 320  # of a sequence: five windows of 64
STEP_S, READ_S = 0.01, 0.05  # of a decoder step, of reading neighbours


def write(
    folder: Path,
    name: str,
    schedule: Schedule,
    values: Sequence[float | None],
    *,
    task: Task = "perplexity",
    index: str = INDEX,
    search_s: float = 0.1,
    nprobe: int = 8,
    tokens: int = TOKENS,
    form: JointAttention | CrossAttention = JOINT,
    load_share: float | None = 0.01,
    **more: Any,
) -> Path:
    """Write one pipeline's records.

    Args:
        values: one entry a sequence: nats a token, or for generation the seconds of three trials' median; None: failed.
        search_s: seconds of a search in the trace.
        nprobe: lists that each search scanned.
        load_share: what other processes took while text was generated.
        more: further fields of the setting.
    """
    path = folder / "pipelines" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    calls = trace(schedule, search_s, tokens)
    lines = [_record(place, value, task, calls, nprobe, tokens) for place, value in enumerate(values)]
    lines = [line.model_copy(update={"load_share": load_share}) if line.generated else line for line in lines]
    path.write_text("".join(line.model_dump_json() + "\n" for line in lines))
    place = f"results/t/databases/{DATABASE}/indexes/{index}" if schedule.asks else None
    fingerprint = {"task": task, "schedule": asdict(schedule), "form": asdict(form), "model": MODEL, "tokens": tokens}
    fingerprint |= {"trials": 3, "engine": "torch", "adapters_sha256": None, "index": place}
    fingerprint |= {"dtype": "float32", "device": "cpu", "database_sha256": "d" * 64, **more}
    fit = {"fixed_s": STEP_S, "token_s": 0.0, "error": 0.04}
    model = {"decode": fit, "neighbours": fit, "ahead": True} if schedule.hide else None
    about = {"provenance": PROVENANCE, "cores": "0", "performance_model": model, "fingerprint": fingerprint}
    path.with_suffix(".meta.json").write_text(json.dumps(about))
    return path


def write_recall(folder: Path, index: str = INDEX, vectors: int = 1000, **settings: Any) -> None:
    """Write the report of an index."""
    path = folder / "databases" / DATABASE / "indexes" / index / "recall.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"nprobe": 8, "near_duplicates": "drop", "filled": None, "shards": None} | settings
    path.write_text(json.dumps({"settings": told, "vectors": vectors, "filled": told["filled"], "recall": []}))


def write_staleness(folder: Path, cosines: Sequence[Sequence[float | None]], **more: Any) -> Path:
    """Write a comparison of stale queries: a row of cosines a query, at 1 and 64 stale tokens."""
    path = folder / "staleness" / f"{DATABASE}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    queries = [
        {"key": f"t{i}", "start": CHUNK, "chunks": [5, *(5 if c == 1 else -1 if c is None else 6 for c in row)]}
        | {"cosine": list(row)}
        for i, row in enumerate(cosines)
    ]
    about = {"encoder": "minilm", "index": INDEX, "nprobe": 8, "filled": None, "texts": 2, "tokens": 1024}
    path.write_text(
        json.dumps({**about, "stale_tokens": [1, 64], "provenance": PROVENANCE, "queries": queries, **more})
    )
    return path


def trace(schedule: Schedule, search_s: float, tokens: int = TOKENS) -> list[Call]:
    """The calls of a generation: at each window its retrieval and what was read, then the tokens decoded."""
    calls = [Call("prompt", (CHUNK,), (0,), logits=(1,), seconds=READ_S)]
    for number, length in enumerate(range(CHUNK, tokens, schedule.interval)):
        if schedule.asks and (schedule.kind != "retrieve_once" or not number):
            calls += _retrieval(search_s, hidden=schedule.kind == "piperag" and number > 0)
        steps = min(schedule.interval, tokens - length)
        calls.append(Call("decode", (1,), (length,), logits=(1,), steps=steps, seconds=steps * STEP_S))
    return calls


def _retrieval(search_s: float, hidden: bool) -> list[Call]:
    if not hidden:
        return [
            Call("retrieval", (CHUNK,), (0,), macs=0, seconds=search_s),
            Call("neighbours", (128, 128), (1, 1), parallel=True, seconds=READ_S),
        ]
    return [
        Call("prefetch", (CHUNK,), (0,), macs=0, seconds=search_s),
        Call("neighbours_ahead", (128, 128), (1, 1), parallel=True, seconds=READ_S),
        Call("wait", (0,), (0,), macs=0, seconds=0.01),
    ]


def _record(place: int, value: float | None, task: Task, calls: list[Call], nprobe: int, tokens: int) -> SequenceRecord:
    base: dict[str, Any] = {"key": f"{place}:Article#0", "document": place, "tokens": tokens}
    if value is None:
        return SequenceRecord(**base, status="failed", reason="out of memory")
    asked = sum(call.stage in ("retrieval", "prefetch") for call in calls)
    found = {"neighbours": [[1, 2]] * asked, "nprobe": [nprobe] * asked, "trace": [call.to_json() for call in calls]}
    if task == "perplexity":
        return SequenceRecord(**base, status="ok", nll=value, scored=tokens - CHUNK, trials_s=[1.0], **found)
    trials = [value, value * 1.1, value * 0.9] if math.isfinite(value) else [value]
    return SequenceRecord(
        **base, status="ok", prompt_tokens=CHUNK, generated=[7] * (tokens - CHUNK), trials_s=trials, **found
    )
