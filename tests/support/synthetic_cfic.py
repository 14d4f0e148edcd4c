"""A small invented results folder of CFIC's kind. Test-only: no number in it was measured."""

import json

from ragauge.cost.trace import Call
from ragauge.io.records import Record
from synthetic_run import (
    MODEL,
    specification,
    write_meta,
    write_protocol,
    write_records,
    write_text,
)

DOCUMENT = "Ida Ember kept the light. The tower was built in 1821. Nobody knows why it leans. It was sold twice."
SECTION = {"document": 0, "start": 26, "stop": 54}  # the second sentence
FOUND = (26, 54)
ELSEWHERE = (55, 81)
TOKENS = 24  # of the document


def write(
    folder,
    name,
    method,
    right,
    *,
    dataset="wiki_long",
    registered=None,
    model=MODEL,
    found=None,
    **params,
):
    """Write one variant's records.

    Args:
        right: one entry a question: right, wrong, or None for failed.
        registered: the data set's name, where the label is another.
        found: whether the evidence is the gold section; by default where the answer is right.
    """
    made = specification(method, params, registered or dataset, model)
    options = made.options
    looks = [bool(ok) for ok in right] if found is None else list(found)
    lines = [_record(i, ok, looks[i], method, options, dataset) for i, ok in enumerate(right)]
    place = made.model_copy(update={"dataset": dataset})
    path = write_records(folder, name, lines, place)
    write_meta(path, made)
    return path


def write_documents(folder, dataset, count):
    """Write the questions as the data rule does."""
    example = {
        "question": "When?",
        "documents": [{"title": "", "text": DOCUMENT}],
        "answers": ["1821"],
        "gold": [0],
    }
    lines = "".join(json.dumps({"key": f"q{i}", **example}) + "\n" for i in range(count))
    write_text(folder / "data" / f"{dataset}.jsonl", lines)


def write_latency(
    folder,
    stages,
    *,
    dataset="wiki_long",
    model=MODEL,
    **more,
):
    """Write a latency file: seconds of each stage of each variant, a little more in every trial."""
    rows = [_timed(name, trial, of) for trial in range(3) for name, of in stages.items()]
    protocol = {"dataset": dataset, "new_tokens": 5, "trials": 3}
    protocol |= {"dtype": "bfloat16", "device": "cpu"}
    usable = {row["variant"]: row["state"] for row in rows}
    states = {"usable": usable, "states": {"documents": {}}}
    write_protocol(folder / "latency", protocol, model, rows=rows, **states, **more)


def write_judgements(folder, name, labels):
    """Write an invented judge's file."""
    lines = [
        {"key": f"q{i}", "label": label, "judge": "invented-judge"}
        for i, label in enumerate(labels)
    ]
    path = folder / "judgements" / "wiki_long" / MODEL / f"{name}.jsonl"
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def _timed(name, trial, stages):
    seconds = {stage: s * (1 + 0.1 * trial) for stage, s in stages.items()}
    first = sum(seconds.values())
    line = {
        "variant": name,
        "state": "nothing" if name == "naive" else "documents",
        "trial": trial,
        "first_token_s": first,
        "total_s": first + 0.2,
        "disturbed": False,
    }
    return {**line, "stages": seconds}


def _record(place, ok, found, method, options, dataset):
    common = {
        "key": f"q{place}",
        "question": "When?",
        "answers": ["1821"],
        "gold": [0],
        "gold_stretches": [SECTION] if dataset == "wiki_long" else [],
        "documents": 1,
        "prompt_sha256": "0" * 64,
    }
    if ok is None:
        return Record(**common, status="failed", reason="the document has no sentence")
    evidence = _evidence(method, found)
    tokens = {"preamble": 5, "documents": [TOKENS + place], "query": 4, "task": 2, "generated": 2}
    volume = {} if evidence is None else {"evidence": 10 + place}
    return Record(
        **common,
        status="ok",
        tokens=tokens | volume,
        evidence=evidence,
        text="1821" if ok else "1900",
        prediction="1821" if ok else "1900",
        trace=[call.to_json() for call in trace(method, options)],
        online_s=0.5,
    )


def _evidence(method, found):
    if method == "closed_book":
        return None
    start, stop = (0, len(DOCUMENT)) if method == "full_article" else FOUND if found else ELSEWHERE
    pieces = [
        {
            "document": 0,
            "start": start,
            "stop": stop,
            "text": DOCUMENT[start:stop],
            "verbatim": True,
        }
    ]
    if method == "free_extraction" and not found:
        pieces.append(
            {
                "document": None,
                "start": None,
                "stop": None,
                "text": "It was 1900.",
                "verbatim": False,
            }
        )
    return pieces


def trace(method, options):
    read = [Call("documents", (TOKENS,), (0,), offline=True), Call("query", (8,), (TOKENS,))]
    answer = [
        Call("prompt", (20,), (0,), logits=(1,)),
        Call("decode", (1,), (20,), logits=(1,), steps=2),
    ]
    if method == "cfic":
        k = int(options["top_k"])
        searched = (
            [Call("prefix", (1,) * k, (32,) * k, parallel=True)] * 2 if options["prefix"] else []
        )
        skipped = [Call("skip", (9,) * k, (32,) * k, parallel=True)] if options["skip"] else []
        return [*read, *searched, *skipped, *answer]
    if method == "free_extraction":
        return [*read, Call("decode", (1,), (32,), logits=(1,), steps=30), *answer]
    return answer
