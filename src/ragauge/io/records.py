"""Raw records: one JSON line a question, with metadata in `.meta.json`. `record_writer` writes
them.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from ragauge.errors import UserError, validating
from ragauge.io.files import os_errors_as_user_errors, replace_atomically
from ragauge.io.jsonl import JsonObject

VERSION = 1  # of files of records, finished or not


class EvidenceRecord(BaseModel, extra="forbid"):
    """A piece of evidence that an answer was generated from: a stretch of a document, or text said
    to be one.
    """

    document: int | None  # index among the question's documents; null: it stands in none
    start: int | None  # first character in the document's text; null: it stands in none
    stop: int | None  # after the last character; null: it stands in none
    text: str  # what the answer was generated from
    verbatim: bool | None = None  # whether `text` is what stands at that place of the document


class StretchRecord(BaseModel, extra="forbid"):
    """A stretch of a document that holds the answer, as the data set says."""

    document: int  # index among the question's documents
    start: int  # first character in the document's text
    stop: int  # after the last character


class ServedResponse(BaseModel, extra="forbid"):
    """A model server's report of a request. Times are of the server, not of this package's
    decoder.
    """

    prompt_tokens: int | None = None  # by the server's count; null: it did not say
    cached_tokens: int | None = None  # of the prompt, found in the server's cache
    new_tokens: int | None = None  # by the server's count
    # of them, those of the last response; null: all, or not known
    response_tokens: int | None = None
    token_s: list[float]  # seconds from the request to each piece of text, thoughts included
    # of them, to the first piece of the answer; null: none came
    first_answer_s: float | None = None
    thought_tokens: int = 0  # of the new tokens, thoughts before the answer
    # who counted the thoughts: the server, or their pieces; null: there are none
    thought_tokens_source: Literal["server", "pieces"] | None = None
    thoughts: str = ""  # their text, as far as the server shows it
    attempts: int  # requests until one was answered; only that one is timed
    concurrency: int  # requests under way at a time
    finish: str | None = None  # why the response ended, in the server's words
    stack: str  # what the server calls itself
    remarks: list[str] = []  # how the request was changed for the server; `not streamed`

    @property
    def timed_tokens(self) -> int:
        """Tokens of the last response whose time is known; 0 where nobody counted them.

        The token that ends an answer has no text, and so no time.
        """
        tokens = self.response_tokens or self.new_tokens or 0
        return tokens - (self.finish == "stop" and tokens == len(self.token_s) + 1)

    @property
    def per_token_s(self) -> float | None:
        """Seconds of each token of the last response after its first; None where nobody counted
        them, or all came at once.
        """
        seconds = self.token_s[-1] - self.token_s[0] if self.token_s else 0.0
        return seconds / (self.timed_tokens - 1) if seconds and self.timed_tokens > 1 else None

    @property
    def counting(self) -> str:
        """What limits the times of single tokens; empty: each had an event of its own."""
        if not self.timed_tokens:
            return "the server counts no tokens"
        more = self.timed_tokens - len(self.token_s)
        if more < 0:
            return "fewer tokens counted than pieces of text"
        return "several tokens in one event" if more else ""


class AnyRecord(BaseModel, extra="forbid"):
    """A line of a file of records."""

    key: str  # of an example in its data set; of a sequence: its document and its place in it
    status: Literal["ok", "failed"]
    reason: str | None = None  # why the question or the sequence failed


class Record(AnyRecord):
    """The answer of one method variant to one question. Metrics are computed from it later, without a
    model.
    """

    question: str
    answers: list[str]
    wordless_answers: list[str] = []  # answers that normalisation empties: they fit any prediction
    gold: list[int]  # indices of the gold documents, in the order the method was given them
    gold_stretches: list[StretchRecord] = []  # where in the gold documents the answer stands
    documents: int  # how many documents the method was given
    prompt_sha256: str  # hash of the token ids of all segments
    exact_tokens: bool | None = None  # whether the segments' tokens, joined, are the whole text's
    control_tokens: int = 0  # control tokens that documents and question quote, read as plain words
    tokens: JsonObject = {}  # by segment (documents: a list), truncated, evidence, generated
    kept: list[int] = []  # documents the answer was generated from, in reading order
    saliency: list[float | None] = []  # one score a document; null where not scored
    evidence: list[EvidenceRecord] | None = None  # of the answer; null: the method looks for none
    request: str = ""  # the prompt that found the evidence, `{article}` in the documents' place
    truncated: int = 0  # document tokens cut from the middle to fit the context
    text: str = ""  # the generated text, whole
    cut: bool = False  # the text ends where the model's context does, before an end of its own
    prediction: str = ""  # the first line of the text; in a chat, the first that is not blank
    trace: list[JsonObject] = []  # cost.trace.Call, as JSON
    cache_bytes: int | None = None  # largest size of the KV cache at any time
    offline_s: float | None = None
    online_s: float | None = None
    first_token_s: float | None = None  # online seconds until the first token was known
    batch: int = 1  # questions answered at the same time; if several, none has seconds of its own
    served: ServedResponse | None = None  # of a served model; null: the model ran here


class SequenceRecord(AnyRecord):
    """The result of one way of generating with retrieval on one sequence of text."""

    document: int  # number of the sequence's document in the database; -1 where it has none there
    tokens: int  # tokens of the sequence, generated ones included
    prompt_tokens: int = 0  # tokens that were given, where the rest was generated
    nll: float | None = None  # mean negative log-likelihood of the scored tokens, in nats
    scored: int = 0  # tokens that `nll` is the mean of: the labels that are scored
    neighbours: list[list[int]] = []  # by retrieval: chunks that were found
    nprobe: list[int] = []  # by retrieval: inverted lists that were scanned
    generated: list[int] = []  # the new tokens
    trials_s: list[float] = []  # seconds of the whole sequence, by trial
    load_share: float | None = None  # of the CPU time during the trials, taken by other processes
    network_s: float | None = None  # round trip to the retrieval server without a search
    trace: list[JsonObject] = []  # cost.trace.Call, as JSON, of the median trial


class _Git(BaseModel):
    commit: str | None = None


class _Provenance(BaseModel, strict=True):
    cpu: str | None = None
    gpu: JsonObject | None = None
    threads: int | None = None
    memory_bytes: float | None = None
    packages: JsonObject | None = None
    git: _Git | None = None


class _Meta(BaseModel, strict=True):
    """The keys of a `.meta.json` that readers rely on, as far as they are there."""

    fingerprint: JsonObject | None = None
    sha256: str | None = None  # of the file of records
    provenance: _Provenance | None = None
    shape: JsonObject | None = None
    peak_memory_bytes: float | None = None


RecordKind = TypeVar("RecordKind", bound=AnyRecord)


class ChangedRecordsError(UserError):
    """A finished file of records is not as it was finished."""


def read(path: Path) -> list[Record]:
    """Return the records of a finished file of answers; see `read_kind`."""
    return read_kind(path, Record)


def read_kind(path: Path, kind: type[RecordKind]) -> list[RecordKind]:
    """Return the records of a finished file; see `open_finished`."""
    return [record for _, record in open_finished(path, kind)]


def open_finished(path: Path, kind: type[RecordKind]) -> list[tuple[bytes, RecordKind]]:
    """Return the lines of a finished file with their records; every reader of one comes here.

    Raises:
        UserError: no such file, a line that is no record, a key that stands twice.
        ChangedRecordsError: it is not as it was finished.
    """
    check_unchanged(path, read_meta(path) or {})
    with os_errors_as_user_errors(path):
        return list(parse_lines(path.read_bytes().split(b"\n"), path, 1, kind))


def check_unchanged(path: Path, meta: Mapping[str, Any]) -> None:
    """Raise ChangedRecordsError if a file has not the hash that its metadata state, if any."""
    stated = meta.get("sha256")
    with os_errors_as_user_errors(path):
        if stated and stated != hashlib.sha256(path.read_bytes()).hexdigest():
            raise ChangedRecordsError(
                f"{path}: changed since it was finished (its sha256 is not that of "
                f"{meta_path(path).name}); remove it and run it again"
            )


def outcome(out: Path) -> tuple[int, dict[str, list[str]]]:
    """Return how many questions of a finished file were answered, and the keys that failed by
    reason.
    """
    records = read(out)
    reasons = dict[str, list[str]]()
    failed = [record for record in records if record.status == "failed"]
    for record in failed:
        reasons.setdefault(record.reason or "no reason given", []).append(record.key)
    return len(records) - len(failed), reasons


def meta_path(out: Path) -> Path:
    """Return the path of the metadata of a file of records: `x.jsonl` -> `x.meta.json`."""
    return out.with_name(out.name.removesuffix(".jsonl") + ".meta.json")


def partial_path(out: Path) -> Path:
    """Return the path of the records of an unfinished run: `x.jsonl` -> `x.jsonl.partial`."""
    return out.with_name(f"{out.name}.partial")


def read_meta(out: Path) -> JsonObject | None:
    """Return the metadata of a file of records; None where there are none that can be read."""
    try:
        meta = json.loads(meta_path(out).read_bytes())
        _Meta.model_validate(meta)
    except (OSError, ValueError, RecursionError):  # a ValidationError is a ValueError
        return None
    return meta


def recorded_fingerprint(out: Path) -> JsonObject:
    """Return the settings of a finished or unfinished file of records; empty where there is none."""
    meta = read_meta(out) or {}
    with suppress(OSError, ValueError, RecursionError), partial_path(out).open("rb") as file:
        meta = json.loads(file.readline())
    fingerprint = meta.get("fingerprint") if isinstance(meta, dict) else None
    return fingerprint if isinstance(fingerprint, dict) else {}


def recorded_dtype(out: Path) -> str | None:
    """Return the data type of a finished or unfinished file of records; None where there is none."""
    fingerprint = recorded_fingerprint(out)
    engine = fingerprint.get("engine")
    # of answers, of pipelines
    dtype = engine.get("dtype") if isinstance(engine, dict) else fingerprint.get("dtype")
    return dtype if isinstance(dtype, str) else None


def parse_lines(
    lines: Sequence[bytes], path: Path, first: int, kind: type[RecordKind]
) -> Iterator[tuple[bytes, RecordKind]]:
    """Yield the lines that are not blank with their records.

    Args:
        first: the number of the first line in the file.

    Raises:
        UserError: a bad line, or a key that stands twice, with its line.
    """
    seen = set[str]()
    for number, line in enumerate(lines, start=first):
        if line.strip():
            with validating(f"{path}:{number}: not a record"):
                record = kind.model_validate_json(line)
            note_key(seen, record.key, f"{path}:{number}")
            yield line, record


def note_key(seen: set[str], key: str, place: str) -> None:
    """Add a key to those of the lines before.

    Raises:
        UserError: it is one of them.
    """
    if key in seen:
        raise UserError(f"{place}: duplicate key {key!r}")
    seen.add(key)


def lines_by_key(opened: Iterable[tuple[bytes, AnyRecord]]) -> dict[str, str]:
    """Return the lines of records by key."""
    return {record.key: line.decode() for line, record in opened}


def write_finished(
    out: Path, lines: Sequence[str], fingerprint: Mapping[str, Any], meta: Mapping[str, Any]
) -> None:
    """Write a finished file and its `.meta.json` (meta, fingerprint, counts and hash), which comes
    first.
    """
    content = join_lines(lines)
    failed = sum(json.loads(line)["status"] == "failed" for line in lines)
    described = {
        "version": VERSION,
        **meta,
        "fingerprint": fingerprint,
        "counts": {"records": len(lines), "failed": failed},
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    with os_errors_as_user_errors(out):
        out.unlink(missing_ok=True)  # lest a kill leaves other records next to these metadata
        replace_atomically(
            meta_path(out), join_lines([json.dumps(described, indent=2, ensure_ascii=False)])
        )
        replace_atomically(out, content)


def seal(line: str, header: str) -> str:
    """Return a line of an unfinished file: a record with the hash of the header and itself."""
    return f'{line[:-1]},"seal":"{_digest(line.encode(), header.encode())}"}}'


def unseal(sealed: bytes, header: bytes) -> bytes:
    """Return the record of a sealed line, empty where it or the header changed."""
    line, _, digest = sealed.rpartition(b',"seal":"')
    line += b"}"
    return line if digest == f'{_digest(line, header)}"}}'.encode() else b""


def _digest(line: bytes, header: bytes) -> str:
    return hashlib.sha256(header + b"\n" + line).hexdigest()[:16]


def join_lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def gather(parts: Sequence[Path], out: Path) -> None:
    """Join the records of the parts of one run into one file, in the order of the parts. The
    metadata are those of the first part with all processors, the largest memory peak, and each
    part's provenance.

    Raises:
        UserError: a part is missing, is of another run than the first, or has a question that
            another has.
    """
    metas = []
    lines: dict[str, str] = {}
    for part in parts:
        meta = read_meta(part) or {}
        if not meta.get("fingerprint"):
            raise UserError(
                f"{part}: {meta_path(part).name} is missing or not valid JSON; run this part again"
            )
        metas.append(meta)
        difference = fingerprint_difference(meta["fingerprint"], metas[0]["fingerprint"])
        if difference:
            raise UserError(f"{part}: from another run than {parts[0]}: {difference}")
        of_part = lines_by_key(open_finished(part, Record))
        twice = sorted(set(of_part) & set(lines))
        if twice:
            raise UserError(f"{part}: question {twice[0]} is in another part as well")
        lines |= of_part
    provenances = [meta.get("provenance") or {} for meta in metas]
    known = (
        meta.get("machines") or [p.get("cpu")] for meta, p in zip(metas, provenances, strict=True)
    )
    machines = list(dict.fromkeys(machine for names in known for machine in names if machine))
    peaks = [
        meta["peak_memory_bytes"] for meta in metas if meta.get("peak_memory_bytes") is not None
    ]
    joined = metas[0] | {
        "provenance": provenance_of(machines, provenances[0]),
        "machines": machines,
        "peak_memory_bytes": max(peaks, default=None),
        "parts": provenances,
    }
    write_finished(out, list(lines.values()), joined["fingerprint"], joined)


def provenance_of(machines: Sequence[str], provenance: Mapping[str, Any]) -> JsonObject:
    """Return a provenance, with the processors of all records in place of one machine's where these
    are several.
    """
    if len(machines) > 1:
        return {**provenance, "cpu": " / ".join(machines), "gpu": None}
    return dict(provenance)


def fingerprint_difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Say in which settings two fingerprints differ; empty where they are the same."""

    def shown(settings: Mapping[str, Any], key: str) -> str:
        return json.dumps(settings[key], ensure_ascii=False) if key in settings else "not set"

    keys = [key for key in {**here, **there} if there.get(key) != here.get(key)]
    return ", ".join(f"{key} is {shown(there, key)} there, {shown(here, key)} here" for key in keys)
