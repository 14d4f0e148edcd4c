"""A small invented results folder. Test-only: no number in it was measured, and nothing outside the
tests reads it.
"""

import json
from dataclasses import asdict

from ragauge.cost.trace import Call
from ragauge.io.records import Record
from ragauge.io.specifications import AnswerSpecification, EngineFacts
from ragauge.measure.protocols.arrivals import ScheduledRequest, TimedRequest, rows, summarise
from ragauge.methods.base import making
from ragauge.methods.base.method import STATES
from ragauge.results.times import LoadLevel, Stream

PREAMBLE = 10
DOCUMENT = 100
QUERY = 12
TASK = 8  # tokens
MODEL = "smollm2-135m-instruct"
PROVENANCE = {
    "cpu": "Invented CPU",
    "gpu": None,
    "threads": 2,
    "packages": {"torch": "2.13.0"},
    "git": None,
}


def write_json(path, content):
    """Write a file of results, and the folders that it lies in."""
    return write_text(path, json.dumps(content))


def write_text(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_records(folder, name, records, made):
    """Write the records of a variant of this name, and their metadata."""
    path = folder / "answers" / made.dataset / made.model / f"{name}.jsonl"
    write_text(path, "".join(record.model_dump_json() + "\n" for record in records))
    write_meta(path, made)
    return path


def write_variant(
    folder,
    name,
    method,
    correct,
    *,
    params=None,
    dataset="nq_open",
    model=MODEL,
    documents=20,
    **fields,
):
    """Write one variant's records; `correct` has one entry a question: right, wrong, or None for
    failed.

    Args:
        fields: of every record, in place of those that would be invented.
    """
    params = dict(params or {})
    kept = _kept(method, params, documents)
    lines = [_record(i, ok, method, params, kept, documents) for i, ok in enumerate(correct)]
    made = specification(method, params, dataset, model)
    return write_records(folder, name, [line.model_copy(update=fields) for line in lines], made)


def specification(method, options, dataset, model):
    """As the runner writes it: every option resolved by the method itself."""
    resolved = asdict(making.make(method, **options))
    engine = EngineFacts(dtype="bfloat16", device="cpu")
    return AnswerSpecification(
        method=method, options=resolved, dataset=dataset, model=model, engine=engine
    )


def write_questions(folder, dataset, lengths, gold=None):
    """Write the questions of records: for each a row of documents of these lengths in words, and
    the index of the gold one, which is 0 by default.
    """
    lines = [
        {
            "key": f"q{i}",
            "question": "Which?",
            "documents": [{"title": "", "text": " ".join(["word"] * n)} for n in row],
            "answers": ["Paris"],
            "gold": [gold[i] if gold else 0],
        }
        for i, row in enumerate(lengths)
    ]
    path = folder / "data" / f"{dataset}.jsonl"
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def write_meta(path, made):
    """Write what stands beside a file of records."""
    meta = {"specification": made.model_dump(), "provenance": PROVENANCE}
    path.with_suffix(".meta.json").write_text(json.dumps(meta))


def write_latency(folder, totals, model=MODEL, device="cpu", **more):
    """Write a latency file with the given total seconds of each variant's trials: the full prompt
    had read nothing before the question, any other variant its documents.
    """
    by_state = {
        variant: {"nothing" if variant in ("naive", "plain") else "documents": seconds}
        for variant, seconds in totals.items()
    }
    write_states(folder, by_state, None, model, ("documents",), device, **more)


def write_states(
    folder,
    totals,
    prepared=None,
    model=MODEL,
    states=("documents", "set"),
    device="cpu",
    **more,
):
    """Write a latency file of variants in states: by variant and state the total seconds of its
    trials, and what it read before the question in seconds.
    """
    rows = [
        {
            "variant": variant,
            "state": state,
            "trial": i,
            "first_token_s": s / 2,
            "per_token_s": s / 8,
            "total_s": s,
            "preparation_s": (prepared or {}).get(variant, 0.0) if state != "nothing" else 0.0,
            "preparation_bytes": 2000000 if state != "nothing" else 0,
        }
        for variant, by_state in totals.items()
        for state, seconds in by_state.items()
        for i, s in enumerate(seconds)
    ]
    usable = {
        variant: [state for state in STATES if state in by_state][-1]
        for variant, by_state in totals.items()
    }
    more = {"usable": usable, "states": {state: {} for state in states}, **more}
    protocol = {"dataset": "nq_open", "new_tokens": 5, "trials": 3}
    protocol |= {"dtype": "bfloat16", "device": device}
    write_protocol(folder / "latency", protocol, model, rows=rows, **more)


def write_protocol(folder, protocol, model=MODEL, **measured):
    """Write a file of a protocol's measurements."""
    content = {"provenance": PROVENANCE, "protocol": protocol, **measured}
    write_json(folder / str(protocol["dataset"]) / f"{model}.json", content)


def write_load(
    folder,
    waits,
    dataset="nq_open",
    **more,
):
    """Write a file of load: one level of one request a second, with each variant's seconds to the
    first token, or None for a request that failed.
    """
    levels = []
    for variant, seconds in waits.items():
        served = [
            TimedRequest(
                ScheduledRequest(i, 0, float(i)), i + s / 2, i + s, i + s + 0.9, 10, failure
            )
            for i, (s, failure) in enumerate(
                (1.0, "no answer") if s is None else (s, None) for s in seconds
            )
        ]
        found = rows(served, warmup=0)
        summary = summarise(found, {"first_token_s": 1.0})
        level = LoadLevel(variant=variant, rate=1.0, summary=summary, requests=found)
        levels.append(level.to_json())
    protocol = {"dataset": dataset, "new_tokens": 10, "dtype": "bfloat16", "device": "cpu"}
    protocol |= {"state": "documents", "target_first_token_s": 1.0}
    write_protocol(folder / "load", protocol, **{"levels": levels, **more})


def write_stream(
    folder,
    ends,
    dataset="nq_open",
    model=MODEL,
    **more,
):
    """Write a file of a stream: each variant's first token with nothing found and with everything,
    and two requests.
    """
    streams = []
    for variant, (missed, again) in ends.items():
        served = [
            TimedRequest(
                ScheduledRequest(i, i, 10.0 * i), 10.0 * i, 10.0 * i + s, 10.0 * i + s + 0.9, 10
            )
            for i, s in enumerate((missed, again))
        ]
        keeps = missed != again
        requests = rows(served, warmup=0)
        found = [
            request.model_copy(update={"found": float(i) if keeps else None})
            for i, request in enumerate(requests)
        ]
        stream = Stream(
            variant=variant,
            hit_rate=0.5 if keeps else None,
            missed_s=missed,
            found_s=again,
            summary=summarise(requests),
            requests=found,
        )
        streams.append(stream.to_json())
    protocol = {
        "dataset": dataset,
        "store": "disk",
        "store_gb": 1.0,
        "exponent": 1.0,
        "documents": 5,
    }
    content = {"provenance": PROVENANCE, "protocol": protocol, "streams": streams, **more}
    write_json(folder / "stream" / dataset / f"{model}.json", content)


def trace(method, params, kept, documents):
    context = PREAMBLE + DOCUMENT * kept
    if method == "superposition":
        return [
            Call("preamble", (PREAMBLE,), (0,), offline=True),
            Call(
                "documents",
                (DOCUMENT,) * documents,
                (PREAMBLE,) * documents,
                offline=True,
                parallel=True,
            ),
            Call("query", (QUERY,) * documents, (PREAMBLE + DOCUMENT,) * documents, parallel=True),
            Call("task", (TASK,), (context + QUERY * kept,), logits=(1,)),
        ]
    if method == "prompt_cache":
        return [
            Call("documents", (DOCUMENT,) * kept, (0,) * kept, offline=True, parallel=True),
            Call("prompt", (QUERY + TASK,), (context,), logits=(1,)),
        ]
    rounds = int(params.get("rounds", 3)) if method == "attention_sort" else 1
    return [Call("prompt", (context + QUERY + TASK,), (0,), logits=(1,))] * rounds


def _kept(method, params, documents):
    everything = (
        method in ("naive", "attention_sort", "prompt_cache") or params.get("saliency") == "none"
    )
    if everything or params.get("path_pruning") is False:
        return list(range(documents))
    count = {"closed_book": 0, "oracle": 1}.get(method, int(params.get("top_k", 1)))
    return list(range(count))


def _record(
    place,
    ok,
    method,
    params,
    kept,
    documents,
):
    common = {
        "key": f"q{place}",
        "question": "Which?",
        "answers": ["Paris"],
        "gold": [0],
        "documents": documents,
        "prompt_sha256": "0" * 64,
    }
    if ok is None:
        return Record(**common, status="failed", reason="too long for the context")
    lengths = [DOCUMENT] * (documents - 1) + [DOCUMENT + 10 * place]
    text = "Paris" if ok else "Rome"
    return Record(
        **common,
        status="ok",
        kept=kept,
        tokens={
            "preamble": PREAMBLE,
            "documents": lengths,
            "query": QUERY,
            "task": TASK,
            "generated": 3,
        },
        text=text,
        prediction=text,
        trace=[call.to_json() for call in trace(method, params, len(kept), documents)],
        online_s=0.1 * (1 + len(kept)),
    )
