"""Reading JSON lines, plain or gzipped, and checking their fields; errors name file, line and
field.
"""

import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ragauge.errors import UserError, meant

JsonObject = dict[str, Any]
_HALF_PAIR = re.compile(r"[\ud800-\udfff]")  # JSON can escape what UTF-8 cannot hold
_TYPES = {
    str: "text",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "a list",
    dict: "an object",
}


def read_jsonl(path: Path, **options: Any) -> Iterator[tuple[int, JsonObject]]:
    """Yield the JSON objects of a file with their line numbers (from 1), parsed with `options` of
    `json.loads`.

    Raises:
        UserError: as `read_lines`.
    """
    for number, line in read_lines(path):
        if line.strip():
            yield number, json_object(line, f"{path}:{number}", **options)


def read_records(path: Path) -> Iterator[tuple[str, JsonObject]]:
    """Yield the JSON objects of a file of JSON lines, or of one array, each with its place:
    "file:line" or "file: records[3]".

    Raises:
        UserError: as `read_lines`.
    """
    lines = read_lines(path)
    is_first = True
    for number, line in lines:
        if is_first and line.lstrip().startswith(b"["):
            array = b"".join([line, *(further for _, further in lines)])
            whole = json_object(b'{"records": %b}' % array, str(path))
            for record, place in objects(whole, "records", str(path)):
                yield place, record
        elif line.strip():
            is_first = False
            place = f"{path}:{number}"
            yield place, json_object(line, place)


def read_lines(path: Path, max_bytes: int = -1) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file, plain or gzipped, with their numbers (from 1) and their final
    0x0A. Lines end at the byte 0x0A alone: U+2028 and its like are legal inside a JSON string.

    Raises:
        UserError: no such file, a line of more than `max_bytes` (before it is read whole), a
            damaged gzip stream.
    """
    number = 0
    try:
        with open(path, "rb") as packed:
            is_gzipped = packed.peek(2)[:2] == b"\x1f\x8b"
            file = gzip.GzipFile(fileobj=packed) if is_gzipped else packed
            while line := file.readline(max_bytes):
                number += 1
                if len(line) == max_bytes and not line.endswith(b"\n"):
                    raise UserError(f"{path}:{number}: line longer than {max_bytes:,} bytes")
                yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(
            f"{path}:{number + 1}: gzip file truncated or damaged here ({error})"
        ) from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_object(path: Path) -> JsonObject:
    """Return the JSON object that a file holds; raise UserError if it cannot be read or holds
    something else.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
    return json_object(text, str(path))


def json_object(text: bytes, place: str, **options: Any) -> JsonObject:
    """Parse a JSON object in UTF-8; raise UserError that names the place if it is none, or if a key
    stands twice in an object, of which json would keep the last.
    """
    try:
        value = json.loads(text, object_pairs_hook=partial(distinct, place), **options)
    except UserError:
        raise
    except (
        ValueError,
        RecursionError,
    ) as error:  # ValueError covers malformed JSON and malformed UTF-8
        remedy = (
            "; convert it to UTF-8, as with iconv" if isinstance(error, UnicodeDecodeError) else ""
        )
        raise UserError(f"{place}: not valid JSON: {error}{remedy}") from error
    if not isinstance(value, dict):
        raise UserError(f"{place}: must be a JSON object, not {_shown(value)}")
    return value


def distinct(place: str, pairs: list[tuple[str, Any]]) -> JsonObject:
    """An object of these keys and values.

    Raises:
        UserError: a key repeats, with the place.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        repeated = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise UserError(f"{place}: {repeated!r} stands twice in one object; leave one of them")
    return value


def json_lines(records: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the content of a file of JSON lines."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def field(record: Mapping[str, Any], name: str, kind: type, place: str) -> Any:
    """Return `record[name]`.

    Raises:
        UserError: it is missing, of another JSON type, blank or no valid text.
    """
    if name not in record:
        near = meant(name, record)
        hint = f" did you mean {near!r}?" if near else ""
        raise UserError(
            f"{place}: no field {name!r};{hint} the record has {', '.join(map(repr, record)) or 'none'}"
        )
    value = record[name]
    if type(value) is not kind:
        raise UserError(f"{place}: field {name!r} must be {_TYPES[kind]}, not {_shown(value)}")
    if isinstance(value, str) and not value.strip():
        raise UserError(f"{place}: field {name!r} is empty")
    if isinstance(value, str) and _HALF_PAIR.search(value):
        raise UserError(
            f"{place}: field {name!r} contains an unpaired surrogate, which is not valid text"
        )
    return value


def number(
    record: Mapping[str, Any], name: str, place: str, kind: type = float, least: int = 0
) -> Any:
    """Return the finite number `record[name]`; with `kind` int an integer.

    Raises:
        UserError: it is missing, of another JSON type, not finite, or less than `least`.
    """
    value = field(record, name, int if isinstance(record.get(name), int) else kind, place)
    if not least <= value < math.inf:
        raise UserError(f"{place}: field {name!r} must be a number from {least}, not {value}")
    return value


def objects(record: Mapping[str, Any], name: str, place: str) -> list[tuple[JsonObject, str]]:
    """Return the objects of the list `record[name]`, each with its own place ("file:line:
    ctxs[3]").
    """
    placed = []
    for index, value in enumerate(field(record, name, list, place)):
        if not isinstance(value, dict):
            raise UserError(f"{place}: {name}[{index}] must be an object, not {_shown(value)}")
        placed.append((value, f"{place}: {name}[{index}]"))
    return placed


def strings(record: Mapping[str, Any], name: str, place: str) -> tuple[str, ...]:
    """Return the texts of the list `record[name]`, none of them blank."""
    values = field(record, name, list, place)
    for index, value in enumerate(values):
        field({f"{name}[{index}]": value}, f"{name}[{index}]", str, place)
    return tuple(values)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
