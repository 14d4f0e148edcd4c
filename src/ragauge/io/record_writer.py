"""Writing records so that a killed run resumes: each is on the disk before the next question."""

import hashlib
import json
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from io import FileIO
from pathlib import Path
from typing import Any, Self

from ragauge.errors import UserError
from ragauge.io import records
from ragauge.io.files import locked, os_errors_as_user_errors, replace_atomically
from ragauge.io.jsonl import JsonObject, strings
from ragauge.io.records import AnyRecord, Record, meta_path, partial_path

AFFECTS_RESULTS = False

logger = logging.getLogger(__name__)

MAX_CRASHES = 2  # of processes at one question, after which it is recorded as failed


def crash_reason(crashes: int) -> str:
    """Return the reason of failure of a question at which processes died."""
    return f"{crashes} processes were killed while they answered it, most likely for want of memory"


class RecordWriter:
    """Collects the records of one run in a file.

    While the run lasts, `<out>.partial` holds a header with the run's fingerprint and then each
    record with its hash; one that changed is asked again. `finish` writes the records in the order
    of `keys` to `<out>`. A rerun after a kill ends with the same file as an undisturbed run.
    Records that no longer belong to the run, and a finished file that changed, are moved to the
    folder `former`, not removed.

    `start` notes that a question is about to be answered; where the process then dies without a word,
    as one killed for memory does, the next one counts it in `crashes`. The caller records a
    question with `MAX_CRASHES` as failed.
    """

    def __init__(
        self,
        out: Path,
        fingerprint: Mapping[str, Any],
        keys: Sequence[str],
        overwrite: bool = False,
        kind: type[AnyRecord] = Record,
        machine: str = "",
    ) -> None:
        """
        Args:
            fingerprint: every setting that a record depends on, as JSON values; not the limit.
                keys: the questions that make the run complete, in the order they run.
                overwrite: replace finished records of another run; they are refused otherwise.
                machine: the processor of new records; where it is not that of all, the provenance
                has every one.
        """
        self.out, self.partial = out, partial_path(out)
        self.done: set[str] = set()  # the keys that need no asking
        # unanswered question -> processes that died while they answered it
        self.crashes: dict[str, int] = {}
        self._fingerprint: JsonObject = json.loads(json.dumps(fingerprint))  # as it reads back
        self._keys = list(keys)
        self._overwrite = overwrite
        self._kind = kind
        # of new records, and of all, in their order
        self._machine, self._machines = machine, dict[str, None]()
        self._discard_reason = ""  # why the finished file is moved aside
        self._records: dict[str, str] = {}  # key -> its line
        # keys of questions under way; an orderly exit removes it
        self._started = out.with_name(f".{out.name}.started")

    def __enter__(self) -> Self:
        """Lock the file and read the records that exist. Raises UserError: another process writes
        it, it holds records of another run, or it cannot be written.
        """
        with os_errors_as_user_errors(self.out), ExitStack() as resources:
            resources.enter_context(locked(self.out, wait=False))
            self._records = self._read_finished() | self._read_partial()
            self._file = resources.enter_context(self._open_partial())
            resources.callback(self._started.unlink, missing_ok=True)
            self._started_file = resources.enter_context(open(self._started, "wb", buffering=0))
            self._resources = resources.pop_all()  # the lock and the open files
        self.done = set(self._records) & set(self._keys)
        return self

    def __exit__(self, *error: object) -> None:
        self._resources.close()

    def forget_failed(self) -> None:
        """Schedule failed questions again. Until `finish`, the finished file keeps their records.

        Raises:
            UserError: the partial file cannot be written.
        """
        failed = {
            key for key, line in self._records.items() if json.loads(line)["status"] == "failed"
        }
        for key in failed:
            del self._records[key]
        self.done -= failed
        with os_errors_as_user_errors(self.partial):  # which is to hold each key once
            self._file = self._resources.enter_context(self._open_partial())

    def start_over(self, reason: str) -> None:
        """Move all records aside, so that every question runs again.

        Raises:
            UserError: they cannot be moved.
        """
        with os_errors_as_user_errors(self.partial):
            for path in filter(Path.exists, (self.out, self.partial)):
                self._move_aside(path, reason)
            self._records, self.done, self._discard_reason = {}, set(), ""
            self._machines.clear()
            self._file = self._resources.enter_context(self._open_partial())

    def start(self, key: str) -> None:
        """Note that a question is about to be answered; this does not wait for the disk.

        Raises:
            UserError: the file cannot be written.
        """
        with os_errors_as_user_errors(self._started):
            self._started_file.write(f"{_escaped(key)}\n".encode())

    def append(self, record: AnyRecord) -> None:
        """Write one record to the disk.

        Raises:
            UserError: it cannot be written; earlier records stay.
        """
        line = record.model_dump_json()
        with os_errors_as_user_errors(self.partial):
            start = self._file.seek(0, os.SEEK_END)
            data = memoryview(records.join_lines([records.seal(line, self._header)]))
            try:
                while data:  # an unbuffered file may take a part
                    data = data[self._file.write(data) :]
                os.fsync(self._file.fileno())
            except BaseException:
                self._file.truncate(start)  # a line is written whole or not at all
                raise
        self._records[record.key] = line
        self._machines[self._machine] = None
        self.done.add(record.key)

    def finish(self, meta: Mapping[str, Any]) -> None:
        """Write the finished file and its `.meta.json`, unless they exist as they are; remove the
        partial file.

        Raises:
            UserError: they cannot be written; the partial file stays.
        """
        missing = [key for key in self._keys if key not in self._records]
        if missing:
            raise RuntimeError(
                f"{self.out}: {len(missing)} questions are unanswered, the first is {missing[0]}"
            )
        lines = [self._records[key] for key in self._keys]
        with os_errors_as_user_errors(self.out):
            meta_there = records.read_meta(self.out) or {}
            is_same_run = meta_there.get("fingerprint") == self._fingerprint and self.out.exists()
            # else its provenance stays
            if not (is_same_run and self.out.read_bytes() == records.join_lines(lines)):
                if self._discard_reason:
                    self._move_aside(self.out, self._discard_reason)
                machines = list(filter(None, self._machines))
                if machines:
                    provenance = records.provenance_of(machines, meta.get("provenance") or {})
                    meta = {**meta, "machines": machines, "provenance": provenance}
                records.write_finished(self.out, lines, self._fingerprint, meta)
            self.partial.unlink(missing_ok=True)

    def _open_partial(self) -> FileIO:
        about = {
            "version": records.VERSION,
            "fingerprint": self._fingerprint,
            "crashes": self.crashes,
            "machines": [*filter(None, (*self._machines, self._machine))],
        }
        self._header = json.dumps(about)
        sealed = [records.seal(line, self._header) for line in self._records.values()]
        replace_atomically(self.partial, records.join_lines([self._header, *sealed]))
        return open(self.partial, "ab", buffering=0)

    def _read_finished(self) -> dict[str, str]:
        """Return the records of a finished run with the same fingerprint, whatever its limit was."""
        if not self.out.exists():
            return {}
        meta = records.read_meta(self.out)
        if meta is None:
            difference = f"an unknown run ({meta_path(self.out).name} is missing or not valid JSON)"
        else:
            stated = meta.get("fingerprint") or {}
            difference = records.fingerprint_difference(stated, self._fingerprint)
            difference = difference and f"another run: {difference}"
        if meta is None or difference:
            self._discard_reason = f"holds records of {difference}"
            if not self._overwrite:
                raise UserError(
                    f"{self.out}: {self._discard_reason}; use --overwrite or another --out"
                )
            return {}
        try:
            lines = records.lines_by_key(records.open_finished(self.out, self._kind))
        except records.ChangedRecordsError:
            self._move_aside(self.out, "changed since it was finished")
            return {}
        more = len(set(lines) - set(self._keys))
        if more:
            self._discard_reason = f"holds {more} records that this run does not ask for"
        self._add_machines(meta, lines, meta_path(self.out))
        return lines

    def _read_partial(self) -> dict[str, str]:
        """Return the records of a run that did not finish, without a torn last line; count its
        crashes.
        """
        if not self.partial.exists():
            return {}
        *lines, _torn = self.partial.read_bytes().split(b"\n")
        header = {}
        with suppress(IndexError, ValueError, RecursionError):
            header = _as_dict(json.loads(lines[0]))
        difference = records.fingerprint_difference(
            _as_dict(header.get("fingerprint")), self._fingerprint
        )
        if difference:
            if len(lines) > 1:
                self._move_aside(self.partial, f"belongs to another run: {difference}")
            return {}
        whole = [records.unseal(line, lines[0]) for line in lines[1:]]
        opened = list(records.parse_lines(whole, self.partial, 2, self._kind))
        damaged = len(whole) - len(opened)
        if damaged:
            self._move_aside(self.partial, f"{damaged} lines changed since they were written")
        answered = records.lines_by_key(opened)
        crashes = Counter(_as_dict(header.get("crashes")))
        started = self._started.read_text().split("\n")[:-1] if self._started.exists() else ()
        crashes.update(key for key in self._keys if _escaped(key) in started)
        self.crashes = {key: crashes[key] for key in crashes if key not in answered}
        self._add_machines(header, answered, self.partial)
        return answered

    def _add_machines(
        self, header: Mapping[str, Any], lines: Mapping[str, str], place: Path
    ) -> None:
        """Add the machines of the records of an earlier run, if there are any."""
        if lines and header.get("machines"):
            self._machines.update(dict.fromkeys(strings(header, "machines", str(place))))

    def _move_aside(self, path: Path, reason: str) -> None:
        """Move records, finished or not, and their metadata to the folder `former`, under a name
        with their hash.
        """
        content = path.read_bytes()
        stem = f"{self.out.name.removesuffix('.jsonl')}-{hashlib.sha256(content).hexdigest()[:8]}"
        target = self.out.parent / "former" / f"{stem}.jsonl"
        target.parent.mkdir(exist_ok=True)
        if path == self.out and meta_path(path).exists():
            replace_atomically(meta_path(target), meta_path(path).read_bytes())
        target = partial_path(target) if path == self.partial else target
        path.replace(target)
        logger.warning("%s: %s; moved to %s", path, reason, target)


def _escaped(key: str) -> str:
    """Return a key in one line, whatever it holds."""
    return key.encode("unicode_escape").decode()


def _as_dict(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
