"""Records inside the page: one compressed block per variant, which the page unpacks on demand."""

import base64
import gzip
import json
import math
from collections.abc import Mapping
from typing import Any

from ragauge.cost.trace import Call, Trace
from ragauge.io.jsonl import JsonObject
from ragauge.io.records import Record
from ragauge.results import materials
from ragauge.results.measures import scored
from ragauge.results.runs import Runs, Variant

DIGITS = 5  # significant digits of saliencies and seconds
FIELDS = (  # of a record in a block, in this order
    "key",
    "status",
    "reason",
    "question",
    "answers",
    "prediction",
    "text",
    "score",
    "documents",
    "gold",
    "kept",
    "saliency",
    "tokens",
    "trace",
    "offline_s",
    "online_s",
    "first_token_s",
    "cache_bytes",
    "truncated",
    "evidence",
    "served",
)
# of a trace
CALL = ("stage", "offline", "parallel", "rows", "new", "past", "steps", "seconds", "loaded")
TITLE_CHARACTERS = 80
EVIDENCE_CHARACTERS = 1000  # of a piece; a full article would make the page as large as the data


def pack_records(variant: Variant) -> str:
    """The records of a variant by column: gzip of JSON, in base64."""
    scores = scored(variant)
    rows = [
        _row(record, variant.traces.get(key, []), scores.get(key))
        for key, record in variant.records.items()
    ]
    return packed({field: [row[field] for row in rows] for field in FIELDS})


def pack_titles(runs: Runs, dataset: str) -> str:
    """The titles of each question's documents, by its key."""
    documents = materials.documents(runs, dataset)
    return packed(
        {
            key: [_cut(document.title or document.text) for document in of_one]
            for key, of_one in documents.items()
        }
    )


def packed(data: Any) -> str:
    """Data as base64 of gzip of JSON: safe inside HTML, and the same on every run."""
    return base64.b64encode(gzip.compress(compact_json(data).encode(), 6, mtime=0)).decode()


def compact_json(data: Any) -> str:
    """Data as JSON without blanks, with null for each number that it cannot express."""
    return json.dumps(finite(data), separators=(",", ":"), allow_nan=False)


def finite(data: Any) -> Any:
    """The data with null for each number that JSON cannot express."""
    if isinstance(data, float):
        return data if math.isfinite(data) else None
    if isinstance(data, Mapping):
        return {str(key): finite(value) for key, value in data.items()}
    return [finite(value) for value in data] if isinstance(data, list | tuple) else data


def _row(record: Record, trace: Trace, score: float | None) -> JsonObject:
    shown = record.model_dump(include=set(FIELDS) - {"trace"})
    evidence = shown["evidence"] or []
    for piece in evidence:
        piece["text"] = shortened(piece["text"])
    return shown | {
        "score": score,
        "evidence": evidence,
        "text": None if record.text == record.prediction else record.text,
        "saliency": [_rounded(value) for value in record.saliency],
        "tokens": {
            name: sum(v for v in n if isinstance(v, int)) if isinstance(n, list) else n
            for name, n in record.tokens.items()
        },
        "trace": [_call(call) for call in trace],
        **{clock: _rounded(shown[clock]) for clock in ("offline_s", "online_s", "first_token_s")},
    }


def shortened(text: str) -> str:
    """A piece of evidence as long as the page takes it; what is cut is counted."""
    more = len(text) - EVIDENCE_CHARACTERS
    return (
        text
        if more <= 0
        else f"{text[:EVIDENCE_CHARACTERS]}… ({more:,} more characters in the record)"
    )


def _call(call: Call) -> list[Any]:
    """A model call as the values of CALL: rows counted, their tokens summed."""
    return [
        call.stage,
        call.offline,
        call.parallel,
        len(call.lengths),
        sum(call.lengths),
        max(call.past, default=0),
        call.steps,
        _rounded(call.seconds),
        call.loading_s is not None,
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _cut(title: str) -> str:
    return title[:TITLE_CHARACTERS] + "…" * (len(title) > TITLE_CHARACTERS)
