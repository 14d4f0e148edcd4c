"""Raw records: one JSON line a question, written as they are made, resumable, never rewritten."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ragauge.errors import UserError
from ragauge.io.disks import take
from ragauge.io.files import replace_atomically, sync_folder

logger = logging.getLogger(__name__)

VERSION = 1  # of files of records, finished or not; older ones state none
DEATHS = 2  # of processes at one question, after which it is not asked again but recorded as failed
FORMER = "former"  # the folder beside a file of records that holds what was discarded of it


class EvidenceRecord(BaseModel):
    """A piece of evidence that an answer was generated from: a stretch of a document, or text said to be one."""

    model_config = ConfigDict(extra="forbid")

    document: int | None = Field(description="index among the question's documents; null: it stands in none")
    start: int | None = Field(description="first character in the document's text; null: it stands in none")
    stop: int | None = Field(description="after the last character; null: it stands in none")
    text: str = Field(description="what the answer was generated from")
    verbatim: bool | None = Field(None, description="whether `text` is what stands at that place of the document")


class StretchRecord(BaseModel):
    """A stretch of a document that holds the answer, as the data set says."""

    model_config = ConfigDict(extra="forbid")

    document: int = Field(description="index among the question's documents")
    start: int = Field(description="first character in the document's text")
    stop: int = Field(description="after the last character")


class ServedResponse(BaseModel):
    """What a server that runs the model told of a request. Times are of its stack, not of this package's decoder."""

    model_config = ConfigDict(extra="forbid")

    prompt_tokens: int | None = Field(None, description="by the server's count; null: it did not say")
    cached_tokens: int | None = Field(None, description="of the prompt, found in the server's cache")
    new_tokens: int | None = Field(None, description="by the server's count")
    token_s: list[float] = Field(description="seconds from the request to each piece of text, mostly a token each")
    attempts: int = Field(description="requests until one was answered; only that one is timed")
    concurrency: int = Field(description="requests under way at a time")
    finish: str | None = Field(None, description="why the response ended, in the server's words")
    stack: str = Field(description="what the server calls itself")


class Record(BaseModel):
    """What one method variant did with one question. Metrics are computed from it later, without a model."""

    model_config = ConfigDict(extra="forbid")

    key: str = Field(description="the example's key in its data set")
    status: Literal["ok", "failed"]
    reason: str | None = Field(None, description="why the question failed")
    question: str
    answers: list[str]
    gold: list[int] = Field(description="indices of the gold documents, in the order the method was given them")
    gold_stretches: list[StretchRecord] = Field(
        default_factory=list, description="where in the gold documents the answer stands, as far as the data set says"
    )
    documents: int = Field(description="how many documents the method was given")
    prompt_sha256: str = Field(description="hash of the token ids of all segments")
    tokens: dict[str, Any] = Field(
        default_factory=dict, description="token counts: preamble, documents (a list), query, task, evidence, generated"
    )
    kept: list[int] = Field(
        default_factory=list, description="documents the answer was generated from, in reading order"
    )
    saliency: list[float | None] = Field(
        default_factory=list, description="one score a document; null where not scored"
    )
    evidence: list[EvidenceRecord] | None = Field(
        None, description="what the answer was generated from; null: the method looks for no evidence"
    )
    request: str = Field("", description="what was asked to find the evidence, `{article}` in the documents' place")
    truncated: int = Field(0, description="document tokens cut from the middle to fit the context")
    text: str = Field("", description="the generated text, whole")
    cut: bool = Field(False, description="the text ends where the model's context does, before an end of its own")
    prediction: str = Field("", description="the answer taken from the text (before the first newline)")
    trace: list[dict[str, Any]] = Field(default_factory=list, description="cost.trace.Call, as JSON")
    cache_bytes: int | None = Field(None, description="largest size of the cached keys and values held at one time")
    offline_s: float | None = None
    online_s: float | None = None
    first_token_s: float | None = Field(None, description="online seconds until the first token was known")
    batch: int = Field(
        1, description="questions that were answered side by side; if several, none has seconds of its own"
    )
    served: ServedResponse | None = Field(
        None, description="of a served model, whose seconds are another stack's; null: the model ran here"
    )


class SequenceRecord(BaseModel):
    """What one way of generating with retrieval did with one sequence of text."""

    model_config = ConfigDict(extra="forbid")

    key: str = Field(description="the sequence's key: its document and its place in it")
    status: Literal["ok", "failed"]
    reason: str | None = Field(None, description="why the sequence failed")
    document: int = Field(description="number of the sequence's document in the database; -1 where it has none there")
    tokens: int = Field(description="tokens of the sequence, generated ones included")
    prompt_tokens: int = Field(0, description="tokens that were given, where the rest was generated")
    nll: float | None = Field(None, description="mean negative log-likelihood of the scored tokens, in nats")
    scored: int = Field(0, description="tokens that `nll` is the mean of: those after the first query")
    neighbours: list[list[int]] = Field(default_factory=list, description="by retrieval: chunks that were found")
    nprobe: list[int] = Field(default_factory=list, description="by retrieval: inverted lists that were scanned")
    generated: list[int] = Field(default_factory=list, description="the new tokens")
    trials_s: list[float] = Field(default_factory=list, description="seconds of the whole sequence, by trial")
    load_share: float | None = Field(
        None, description="part of the machine's CPU time that other processes took during the trials"
    )
    network_s: float | None = Field(
        None,
        description="seconds of a message to the retrieval server and back without a search, measured at the start",
    )
    trace: list[dict[str, Any]] = Field(
        default_factory=list, description="cost.trace.Call, as JSON, of the median trial"
    )


class _Git(BaseModel):
    commit: str | None = None


class _Provenance(BaseModel):
    model_config = ConfigDict(strict=True)

    cpu: str | None = None
    gpu: dict[str, Any] | None = None
    threads: int | None = None
    memory_bytes: float | None = None
    packages: dict[str, Any] | None = None
    git: _Git | None = None


class _Meta(BaseModel):
    """What readers of a `.meta.json` rely on, as far as it is there."""

    model_config = ConfigDict(strict=True)

    version: int | None = None
    fingerprint: dict[str, Any] | None = None
    sha256: str | None = None  # of the file of records; older versions wrote none
    provenance: _Provenance | None = None
    shape: dict[str, Any] | None = None
    peak_memory_bytes: float | None = None


AnyRecord = TypeVar("AnyRecord", bound=BaseModel)  # a record of any kind; it has a `key`


class Writer:
    """Collects the records of one run in a file, so that a killed run goes on where it was.

    While the run lasts, `<out>.partial` holds a header line with the run's fingerprint and then every record, each
    safe on disk before the next question is asked. `finish` writes the records in the order of `keys` to `<out>` in one
    rename. A rerun after a kill at any point therefore ends with the same file as a run that nobody disturbed.

    A question at which `DEATHS` processes died without a word, as one killed for memory does, stands in `died`; the
    caller records it as failed, lest every rerun meet it again. A process that ends in order leaves no such trace.

    Records that are no longer of the run are moved to the folder `former`, not removed.

        with Writer(out, fingerprint, keys) as writer:
            for example in examples:
                if example.key not in writer.done:
                    writer.begin(example.key)
                    writer.append(answer(example))
            writer.finish({"machine": ...})
    """

    def __init__(
        self,
        out: Path,
        fingerprint: Mapping[str, Any],
        keys: Sequence[str],
        overwrite: bool = False,
        kind: type[BaseModel] = Record,
        derived: bool = False,
    ) -> None:
        """
        Args:
            out: the file of records, `....jsonl`.
            fingerprint: every setting that a record depends on, as JSON values; not the limit.
            keys: the questions that make the run complete, in the order they are asked.
            overwrite: replace what the finished file holds where it is of another run; it is refused otherwise.
            kind: of the records; each has a `key`.
            derived: the records are copies, so that what is discarded need not be kept.
        """
        self.out = out
        self.partial = out.with_name(out.name + ".partial")
        self.done: set[str] = set()  # the keys that need no asking
        self.died: dict[str, int] = {}  # unanswered question -> processes that died while they answered it
        self._fingerprint: dict[str, Any] = json.loads(json.dumps(fingerprint))  # as it reads back
        self._keys = list(keys)
        self._overwrite = overwrite
        self._kind = kind
        self._derived = derived
        self._begun: set[str] = set()  # by this process
        self._left_at: list[str] = []  # what the last process had begun, if it died
        self._discards = ""  # why the finished file is not of this run
        self._records: dict[str, str] = {}  # key -> its line
        self._lock: IO[bytes] | None = None
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Take the file for this process and learn what is done.

        Raises:
            UserError: another process writes it, it holds records of another run or of a newer version, or it cannot
                be written.
        """
        with _told(self.out):
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self._lock, self._left_at = _locked(self.out)
            try:
                self._records = {**self._finished_records(), **self._partial_records()}
                self._start_partial()
            except BaseException:
                _unlock(self._lock)
                raise
        self.done = set(self._records) & set(self._keys)
        return self

    def keep(self, lines: Mapping[str, str]) -> None:
        """Take finished records of this run, line by key, as they stand."""
        self._records |= lines
        self.done |= set(lines) & set(self._keys)

    def forget_failed(self) -> None:
        """Have the questions asked again that failed. Until `finish`, the finished file keeps their records."""
        failed = {key for key, line in self._records.items() if json.loads(line)["status"] == "failed"}
        self._records = {key: line for key, line in self._records.items() if key not in failed}
        self.done -= failed

    def begin(self, key: str) -> None:
        """Note that a question is about to be asked, so that the next process knows of a death at it.

        The note stands in the lock, which a process that ends in order removes. Nothing waits for the disk: what a
        killed process wrote, the system keeps.

        Raises:
            UserError: the disk is full or the file cannot be written.
        """
        assert self._lock is not None, "begin needs the with block"
        if key not in self._begun:
            with _told(self.out):
                self._lock.write(f"{key}\n".encode())
                self._lock.flush()
            self._begun.add(key)

    def append(self, record: Record | SequenceRecord) -> None:
        """Keep one record; when this returns it is on the disk.

        Raises:
            UserError: the disk is full or the file cannot be written; what was kept before stays.
        """
        assert self._file is not None, "append needs the with block"
        line = record.model_dump_json()
        with _told(self.partial):
            _write_line(self._file, line)
        self._records[record.key] = line
        self.done.add(record.key)

    def finish(self, meta: Mapping[str, Any]) -> None:
        """Write the finished file, its `.meta.json` (meta, fingerprint and counts) first; the partial file goes.

        Raises:
            UserError: the disk is full or the files cannot be written; the partial file stays.
        """
        lines = self._finished_lines()
        with _told(self.out):
            if not self._is_finished(lines):
                self._write_finished(lines, meta)
            self.partial.unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if self._lock is not None:
            _unlock(self._lock)

    def _finished_records(self) -> dict[str, str]:
        """The records that a finished run of the same fingerprint left, whatever its limit was."""
        if not self.out.exists():
            return {}
        foreign = self._foreign()
        if foreign and not self._overwrite:
            raise UserError(f"{self.out}: holds records of {foreign}; use --overwrite or another --out")
        if foreign:
            self._discards = f"holds records of {foreign}"
            return {}
        found = _lines_by_key(self.out.read_bytes().split(b"\n"), self.out, 1, self._kind)
        if more := len(set(found) - set(self._keys)):
            self._discards = f"holds {more} records that this run does not ask for"
        return found

    def _foreign(self) -> str | None:
        """Which other run the finished file is of; None where it is of this one."""
        meta = read_meta(self.out)
        _check_version(self.out, meta or {})
        if meta is None:
            return f"an unknown run ({meta_path(self.out).name} is missing or not valid JSON)"
        difference = _difference(meta.get("fingerprint") or {}, self._fingerprint)
        return f"another run: {difference}" if difference else None

    def _partial_records(self) -> dict[str, str]:
        """The records of a run that was cut off, without a last line that was torn."""
        if not self.partial.exists():
            return {}
        *whole, _torn = self.partial.read_bytes().split(b"\n")
        header = _header(whole)
        _check_version(self.partial, header)
        difference = _difference(header["fingerprint"], self._fingerprint)
        if difference:
            kept = self._put_aside(self.partial) if len(whole) > 1 else None
            moved = f"; its records are in {kept}" if kept else ""
            logger.warning("%s: starting over: it belongs to another run: %s%s", self.partial, difference, moved)
            return {}
        records = _lines_by_key(whole[1:], self.partial, 2, self._kind)
        self.died = _died(header, self._left_at, records)
        return records

    def _finished_lines(self) -> list[str]:
        missing = [key for key in self._keys if key not in self._records]
        if missing:
            raise RuntimeError(f"{self.out}: {len(missing)} questions are unanswered, the first is {missing[0]}")
        return [self._records[key] for key in self._keys]

    def _is_finished(self, lines: list[str]) -> bool:
        """Whether the finished file holds just these lines already, so that its provenance stays as it is."""
        meta = read_meta(self.out)
        same_run = meta is not None and meta.get("fingerprint") == self._fingerprint
        return same_run and self.out.exists() and self.out.read_bytes() == _joined(lines)

    def _write_finished(self, lines: list[str], meta: Mapping[str, Any]) -> None:
        failed = sum(json.loads(line)["status"] == "failed" for line in lines)
        counts = {"records": len(lines), "failed": failed}
        about = {"fingerprint": self._fingerprint, "counts": counts, "sha256": _sha256(_joined(lines))}
        described = {"version": VERSION, **meta, **about}
        if self._discards and self.out.exists() and not self._derived:
            logger.warning("%s: %s; it was moved to %s", self.out, self._discards, self._put_aside(self.out))
        if self.out.exists():  # lest a kill leaves other records beside this provenance
            self.out.unlink()
        replace_atomically(meta_path(self.out), _joined([json.dumps(described, indent=2, ensure_ascii=False)]))
        replace_atomically(self.out, _joined(lines))

    def _start_partial(self) -> None:
        """Put what is known into a partial file that ends with a whole line, and keep it open for more."""
        header = {"version": VERSION, "fingerprint": self._fingerprint}
        header |= {"died": self.died} if self.died else {}
        lines = [json.dumps(header, ensure_ascii=False), *self._records.values()]
        replace_atomically(self.partial, _joined(lines))
        self._file = open(self.partial, "ab", buffering=0)  # noqa: SIM115 (closed by __exit__)

    def _put_aside(self, path: Path) -> Path:
        """Move the finished or the partial file, what stands beside it first, to a free name in `former`."""
        folder, stem = self.out.parent / FORMER, self.out.name.removesuffix(".jsonl")
        folder.mkdir(exist_ok=True)
        names = (f"{stem}{'' if n == 1 else f'.{n}'}.jsonl" for n in count(1))
        free = next(name for name in names if not any((folder / f"{name}{end}").exists() for end in ("", ".partial")))
        former = folder / f"{free}{'.partial' if path == self.partial else ''}"
        if path == self.out and meta_path(path).exists():
            replace_atomically(meta_path(former), meta_path(path).read_bytes())
        os.replace(path, former)
        sync_folder(folder)
        return former


def gather(parts: Sequence[Path], out: Path) -> None:
    """Put the records of the parts of one run into one file, in the order of the parts.

    Beside them stands the provenance of the first part, processors of the others added, and that of each in `parts`.

    Raises:
        UserError: a part is missing, is of another run than the first, or has a question that another has.
    """
    metas = [_meta_of(part, parts[0]) for part in parts]
    lines: dict[str, str] = {}
    for part in parts:
        with _told(part):
            content = part.read_bytes()
        found = _lines_by_key(content.split(b"\n"), part, 1, Record)
        if double := sorted(set(found) & set(lines)):
            raise UserError(f"{part}: question {double[0]} is in another part as well")
        lines |= found
    with Writer(out, metas[0]["fingerprint"], list(lines), overwrite=True, derived=True) as writer:
        writer.keep(lines)
        writer.finish(_gathered_meta(metas))


def _meta_of(part: Path, first: Path) -> dict[str, Any]:
    """What stands beside a part; raises UserError where nothing does, or what is of another run than the first's."""
    meta, other = read_meta(part), read_meta(first)
    if meta is None or other is None or not meta.get("fingerprint"):
        raise UserError(f"{part}: {meta_path(part).name} is missing or not valid JSON; run this part again")
    if difference := _difference(meta["fingerprint"], other.get("fingerprint") or {}):
        raise UserError(f"{part}: from another run than {first}: {difference}")
    return meta


def _gathered_meta(metas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    provenances = [meta.get("provenance") or {} for meta in metas]
    processors = dict.fromkeys(p["cpu"] for p in provenances if p.get("cpu"))
    joined = {**metas[0], "provenance": {**provenances[0], "cpu": " / ".join(processors) or None}}
    peaks = [meta["peak_memory_bytes"] for meta in metas if meta.get("peak_memory_bytes") is not None]
    return {**joined, "peak_memory_bytes": max(peaks, default=None), "parts": provenances}


def read(path: Path) -> list[Record]:
    """The records of a finished file of answers, as `read_kind` reads them."""
    return read_kind(path, Record)


def read_kind(path: Path, kind: type[AnyRecord]) -> list[AnyRecord]:
    """The records of a finished file, of the kind that it holds.

    Raises:
        UserError: no such file, one of a newer version, a line that is not a record (the line is named), or a file that
            is not as it was finished.
    """
    meta = read_meta(path) or {}
    _check_version(path, meta)
    with _told(path):
        content = path.read_bytes()
    found = [record for _, record in _parsed(content.split(b"\n"), path, 1, kind)]
    if meta.get("sha256") not in (None, _sha256(content)):
        raise UserError(f"{path}: not as it was finished (sha256 differs from {meta_path(path).name}); run it again")
    return found


class Outcome(NamedTuple):
    """What became of the questions of a finished file."""

    answered: int
    reasons: dict[str, list[str]]  # why questions failed, and their keys

    @property
    def failed(self) -> int:
        return sum(map(len, self.reasons.values()))


def outcome(out: Path) -> Outcome:
    """The outcome of a finished file; its records are read only if some failed.

    Raises:
        UserError: as `read`.
    """
    counts = (read_meta(out) or {}).get("counts")
    if isinstance(counts, dict) and counts.get("failed") == 0 and isinstance(counts.get("records"), int):
        return Outcome(counts["records"], {})
    reasons = dict[str, list[str]]()
    made = read(out)
    for record in made:
        if record.status == "failed":
            reasons.setdefault(record.reason or "no reason given", []).append(record.key)
    return Outcome(sum(record.status == "ok" for record in made), reasons)


def meta_path(out: Path) -> Path:
    """Where the provenance of a file of records lies: `x.jsonl` -> `x.meta.json`."""
    return out.with_name(out.name.removesuffix(".jsonl") + ".meta.json")


def recorded_dtype(out: Path) -> str | None:
    """The data type that a finished or unfinished file of records was computed in; None where there is none."""
    meta = read_meta(out) or {}
    with suppress(OSError, ValueError, RecursionError), out.with_name(out.name + ".partial").open("rb") as file:
        meta = json.loads(file.readline())
    told = meta.get("fingerprint") or {}
    engine = told.get("engine")
    dtype = engine.get("dtype") if isinstance(engine, dict) else told.get("dtype")  # of answers, of pipelines
    return dtype if isinstance(dtype, str) else None


def read_meta(out: Path) -> dict[str, Any] | None:
    """The provenance beside a file of records; None where there is none that can be read."""
    try:
        meta = json.loads(meta_path(out).read_bytes())
        _Meta.model_validate(meta)
    except (OSError, ValueError, RecursionError):  # a ValidationError is a ValueError
        return None
    return dict(meta)


def killed(times: int) -> str:
    """The reason of a question at which so many processes died."""
    return f"{times} processes were killed while they answered it, most likely for want of memory"


def newer(meta: Mapping[str, Any]) -> str:
    """Why records with these metadata cannot be read by this version; empty if they can."""
    version = meta.get("version")
    if version is None or (type(version) is int and version <= VERSION):
        return ""
    return f"records of version {version}, and this ragauge reads them up to version {VERSION}; use a newer ragauge"


def _check_version(path: Path, meta: Mapping[str, Any]) -> None:
    if reason := newer(meta):
        raise UserError(f"{path}: {reason}")


def _died(header: Mapping[str, Any], left_at: Iterable[str], records: Mapping[str, str]) -> dict[str, int]:
    """Processes that died at each question without a record: those counted before, and the last one."""
    found = {key: times for key, times in (header.get("died") or {}).items() if type(times) is int}
    for key in left_at:
        found[key] = found.get(key, 0) + 1
    return {key: times for key, times in found.items() if key not in records}


def _write_line(file: IO[bytes], line: str) -> None:
    """Append a line and wait for the disk; where that fails, take back what was written of it."""
    start = file.seek(0, os.SEEK_END)
    data = memoryview(line.encode() + b"\n")
    try:
        while data:  # an unbuffered file may take a part
            data = data[file.write(data) :]
        os.fsync(file.fileno())
    except BaseException:
        file.truncate(start)
        raise


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _joined(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _header(lines: Sequence[bytes]) -> dict[str, Any]:
    """The first line of a partial file; its fingerprint is empty where there is none."""
    try:
        header = json.loads(lines[0])
        known = all(isinstance(header.get(name, {}), dict) for name in ("fingerprint", "died"))
    except (IndexError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        known = False
    return {"fingerprint": {}, **header} if known else {"fingerprint": {}}


def _lines_by_key(lines: Sequence[bytes], path: Path, first: int, kind: type[BaseModel]) -> dict[str, str]:
    return {getattr(record, "key"): line.decode() for line, record in _parsed(lines, path, first, kind)}  # noqa: B009


def _parsed(lines: Sequence[bytes], path: Path, first: int, kind: type[AnyRecord]) -> Iterator[tuple[bytes, AnyRecord]]:
    """The lines that are not blank, each with its record; `first` is the number of the first line."""
    for number, line in enumerate(lines, start=first):
        if line.strip():
            yield line, _record(line, f"{path}:{number}", kind)


def _record(line: bytes, place: str, kind: type[AnyRecord]) -> AnyRecord:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UserError(f"{place}: not a record: {field + ': ' if field else ''}{first['msg']}") from error


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """In which settings two fingerprints differ, in words; empty where they are the same."""
    keys = [key for key in {**here, **there} if there.get(key) != here.get(key)]
    return ", ".join(f"{key} is {_shown(there, key)} there, {_shown(here, key)} here" for key in keys)


def _shown(settings: Mapping[str, Any], key: str) -> str:
    return json.dumps(settings[key], ensure_ascii=False) if key in settings else "not set"


def _locked(out: Path) -> tuple[IO[bytes], list[str]]:
    """The lock of an output file, held until `_unlock` or the process's end; raises UserError where it is taken.

    Its lines are the questions that the holder has begun. Returned are also those of a holder that died.
    """
    path = out.with_name(f".{out.name}.lock")
    while True:
        lock = open(path, "ab+")  # noqa: SIM115 (held as long as the writer)
        try:
            take(lock, wait=False)
        except BlockingIOError:
            lock.close()
            raise UserError(f"{out}: another process is writing this file") from None
        if _is_at(lock, path):
            lock.seek(0)
            *begun, _torn = lock.read().decode(errors="replace").split("\n")
            lock.truncate(0)
            return lock, begun
        lock.close()  # its last holder removed it between our two calls


def _unlock(lock: IO[bytes]) -> None:
    os.unlink(lock.name)  # while it is held: who opens the path from now on gets a new file
    lock.close()


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn what the system says of a file (no space left, no permission) into a line for the user."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{error.filename or path}: {error.strerror or error}") from error
