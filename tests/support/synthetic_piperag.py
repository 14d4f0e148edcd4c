"""A small invented results folder of PipeRAG's kind. Test-only: no number in it was measured."""

import math

from ragauge.cost.trace import Call
from ragauge.io.records import SequenceRecord
from ragauge.pipelines.settings import PipelineSettings
from ragauge.pipelines.specification import describe_index, specify_pipeline
from ragauge.pipelines.windows import CHUNK
from synthetic_run import MODEL, PROVENANCE, write_json, write_text

DATABASE = "wikipedia"
INDEX = "ivf"
RECIPE = {"nlist": 64, "nprobe": 8, "near_duplicates": "drop", "filled": None, "shards": None}
TOKENS = 320  # of a sequence: five windows of 64
STEP_S = 0.01
READ_S = 0.05  # of a decoder step, of reading neighbours


def write(
    folder,
    name,
    schedule,
    values,
    *,
    search_s=0.1,
    lists=8,
    vectors=1000,
    recipe=None,
    load_share=0.01,
    adapters_sha256=None,
    source="",
    **options,
):
    """Write one pipeline's records, with what `ragauge piperag run` writes beside them.

    Args:
        values: one entry a sequence: nats a token, or for generation the seconds of three trials'
            median; None: failed.
        search_s: seconds of a search in the trace.
        lists: that each search scanned.
        vectors, recipe: of the index that is asked.
        load_share: what other processes took while text was generated.
        source: of the decoder.
        options: further keys of the pipeline.
    """
    settings = PipelineSettings(
        schedule=schedule, **{"tokens": TOKENS, "trials": 3, "cores": "0"} | options
    )  # type: ignore[arg-type]
    path = folder / "pipelines" / f"{name}.jsonl"
    calls = trace(settings, search_s)
    lines = [
        _record(place, value, settings, calls, lists, load_share)
        for place, value in enumerate(values)
    ]
    write_text(path, "".join(line.model_dump_json() + "\n" for line in lines))
    recipe_settings = RECIPE | (recipe or {})
    index = describe_index(settings.index, recipe_settings, vectors)
    place = {"model": MODEL, "database": settings.database or DATABASE, "index": index}
    weights = {"adapters_sha256": adapters_sha256, "source": source}
    specification = specify_pipeline(settings, dtype="float32", device="cpu", **place, **weights)
    fit = {"fixed_s": STEP_S, "token_s": 0.0, "error": 0.04}
    model = {"decode": fit, "neighbours": fit, "ahead": True} if settings.nprobe == "hide" else None
    about = {
        "provenance": PROVENANCE,
        "performance_model": model,
        "specification": specification.model_dump(),
    }
    write_json(path.with_suffix(".meta.json"), about)
    return path


def write_recall(folder, index=INDEX, vectors=1000):
    path = folder / "databases" / DATABASE / "indexes" / index / "recall.json"
    write_json(path, {"settings": RECIPE, "vectors": vectors, "filled": None, "recall": []})


def write_staleness(folder, cosines, **more):
    """Write a comparison of stale queries: a row of cosines a query, at 1 and 64 stale tokens."""
    queries = [
        {
            "key": f"t{i}",
            "start": CHUNK,
            "chunks": [5, *(5 if c == 1 else -1 if c is None else 6 for c in row)],
        }
        | {"cosine": list(row)}
        for i, row in enumerate(cosines)
    ]
    about = {
        "encoder": "minilm",
        "database": DATABASE,
        "index": INDEX,
        "nprobe": 8,
        "texts": 2,
        "tokens": 1024,
    }
    about |= {"stale_tokens": [1, 64], "provenance": PROVENANCE, "queries": queries}
    return write_json(folder / "staleness" / f"{DATABASE}.json", about | more)


def trace(settings, search_s):
    """The calls of a generation: at each window its retrieval and what was read, then the tokens
    decoded.
    """
    calls = [Call("prompt", (CHUNK,), (0,), logits=(1,), seconds=READ_S)]
    for number, length in enumerate(range(CHUNK, settings.tokens, settings.interval)):
        if settings.queries_index and (settings.schedule != "retrieve_once" or not number):
            calls += _retrieval(search_s, hidden=settings.schedule == "piperag" and number > 0)
        steps = min(settings.interval, settings.tokens - length)
        calls.append(
            Call("decode", (1,), (length,), logits=(1,), steps=steps, seconds=steps * STEP_S)
        )
    return calls


def _retrieval(search_s, hidden):
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


def _record(
    place,
    value,
    settings,
    calls,
    lists,
    load_share,
):
    base = {
        "key": f"{place}:Article#0",
        "document": place,
        "tokens": settings.tokens,
    }
    if value is None:
        return SequenceRecord(**base, status="failed", reason="out of memory")
    times = sum(call.stage in ("retrieval", "prefetch") for call in calls)
    base |= {
        "neighbours": [[1, 2]] * times,
        "nprobe": [lists] * times,
        "trace": [call.to_json() for call in calls],
    }
    new = settings.tokens - CHUNK
    if settings.task == "perplexity":
        scored = settings.tokens - 1 if settings.scoring == "published" else new
        return SequenceRecord(**base, status="ok", nll=value, scored=scored, trials_s=[1.0])
    base |= {"prompt_tokens": CHUNK, "generated": [7] * new, "load_share": load_share}
    trials = [value, value * 1.1, value * 0.9] if math.isfinite(value) else [value]
    return SequenceRecord(**base, status="ok", trials_s=trials)
