"""Damage to files, drawn by hypothesis: cut short, overwritten, false lengths, wrong values."""

import copy
import json
import resource
import signal
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from ragauge.errors import UserError

LONGEST_S = 20  # that a reader may take over a file of some kilobytes
MOST_BYTES = 2 << 30  # of address space that it may take for one
STRAYS = (
    b"",
    b"\x00",
    b"\xff" * 8,
    b"\xff\xff\xff\x7f",
    b"\xff" * 7 + b"\x7f",
    b'"',
    b"{",
    b"}",
    b"\n",
    b"\xe2\x80",
)
FOREIGN = (
    b"",
    b"\n\n",
    b"null",
    b"[]",
    b"{}",
    b"[" * 100_000,
    b'{"a":' * 20_000,
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"GGUF",
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b"<html>502 Bad Gateway</html>",
    b"version https://git-lfs",
    b"1e999",
)
VALUES = (
    None,
    True,
    0,
    -1,
    1 << 31,
    1 << 63,
    10**30,
    0.5,
    float("nan"),
    float("inf"),
    "",
    " ",
    "x",
    "\ud800",
    "\x00",
    [],
    {},
    [None],
    [[]],
    {"a": {}},
    "9" * 5000,
    [0] * 50,
)


@st.composite
def damaged(draw, whole):
    """Bytes that differ from `whole` in one to three places, or end early, or are another file
    altogether.
    """
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(FOREIGN) | st.binary(max_size=64))
    found = whole
    for _ in range(draw(st.integers(1, 3))):
        found = draw(st.sampled_from((_cut, _dropped, _repeated, _overwritten)))(draw, found)
    return found


@st.composite
def damaged_json(draw, value):
    """A JSON value in which one or two places hold something else, are missing, or are there as
    well.
    """
    found = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 2))):
        holders = list(_holders(found))
        if not holders:
            return draw(st.sampled_from(VALUES))
        holder, key = draw(st.sampled_from(holders))
        what = draw(st.sampled_from(("replaced", "removed", "added")))
        if what == "removed":
            del holder[key]
        elif what == "replaced":
            holder[key] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        elif isinstance(holder, dict):
            holder["an unknown key"] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        else:
            holder.insert(key, copy.deepcopy(draw(st.sampled_from(VALUES))))
    return found


def damaged_lines(whole):
    lines = whole.split(b"\n")[:-1]

    @st.composite
    def one_line(draw):
        number = draw(st.integers(0, len(lines) - 1))
        line = json.dumps(draw(damaged_json(json.loads(lines[number]))))
        return b"\n".join([*lines[:number], line.encode(), *lines[number + 1 :], b""])

    return damaged(whole) | one_line()


def damaged_document(whole):
    return damaged(whole) | damaged_json(json.loads(whole)).map(
        lambda value: json.dumps(value).encode()
    )


@contextmanager
def bounded():
    """Fail what takes `LONGEST_S` seconds or `MOST_BYTES` of further address space."""

    def late(*_):
        raise TimeoutError(f"still reading after {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, late)
    limit = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MOST_BYTES, limit[1]))
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limit)


def _holders(value):
    """(container, key or index) of every value inside a JSON value."""
    places = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in places:
        yield value, key
        yield from _holders(inner)


def _span(draw, whole):
    start = draw(st.integers(0, len(whole)))
    return start, min(len(whole), start + draw(st.integers(1, 40)))


def _cut(draw, whole):
    return whole[: draw(st.integers(0, len(whole)))]


def _dropped(draw, whole):
    start, stop = _span(draw, whole)
    return whole[:start] + whole[stop:]


def _repeated(draw, whole):
    start, stop = _span(draw, whole)
    return whole[:stop] + whole[start:]


def _overwritten(draw, whole):
    """Some bytes overwritten, which is where sizes and offsets become absurd."""
    stray = draw(st.sampled_from(STRAYS) | st.binary(min_size=1, max_size=8))
    start = draw(st.integers(0, min(len(whole), 200)) | st.integers(0, len(whole)))
    return whole[:start] + stray + whole[start + len(stray) :]


class Repeatable(providers.HypothesisProvider):
    """Draws the same whatever else is imported: hypothesis itself mixes in constants of the modules
    loaded so far.
    """

    def _maybe_draw_constant(self, *_, **__):
        return None


providers.AVAILABLE_PROVIDERS["repeatable"] = f"{__name__}.{Repeatable.__name__}"

Damage = Callable[[bytes], st.SearchStrategy[bytes]]

SETTINGS = {
    "deadline": None,
    "derandomize": True,
    "backend": "repeatable",
    "database": None,
    "phases": [Phase.generate],  # shrinking a failure would read thousands more
    "suppress_health_check": list(HealthCheck),
}


@dataclass(frozen=True)
class Reader:
    """A file, the function that reads it, and the damage done to it."""

    path: Path
    read: Callable[[], Any]
    damage: Damage = damaged
    files: int = 40  # malformed ones
    named: str = ""  # what a refusal names, where it is not the file


def survives(made):
    """Read a file in as many malformed states as its reader says: accepted, or refused in a line
    that names it.
    """
    whole = made.path.read_bytes()

    @settings(max_examples=made.files, **SETTINGS)
    @given(made.damage(whole))
    def attempt(content):
        made.path.write_bytes(content)
        try:
            with bounded():
                made.read()
        except UserError as error:
            assert (made.named or made.path.name) in str(error)  # noqa: PT017 (or no error)

    made.read()  # which it does before the damage
    attempt()
