"""The faults: each is one disturbance of one writer or reader, and what it came to; a broken promise raises."""

from __future__ import annotations

import random
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from injected.children import Child, Disturbance, Ended, How, one_line, run
from injected.writers import Found, Tested
from ragauge.errors import UserError

HOUR_S = 3600
JUMPS_S = tuple(sign * seconds for seconds in (HOUR_S, 24 * HOUR_S, 365 * 24 * HOUR_S) for sign in (1, -1))
MEMORY = (0, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22)  # bytes beyond what a process has
WAIT_S = 0.05  # that the second of two processes has before the first goes on
FLIPS = 4  # of bits, in each file
LOCK = re.compile(r"\..*\.lock|.*\.lock")


class BrokenPromiseError(AssertionError):
    """What a fault must not come to."""


@dataclass
class Prepared:
    """A writer with what stood there before it, and what an undisturbed run makes of that."""

    tested: Tested
    before: Path
    after: Path
    steps: int  # operations on the disk
    work: Path  # for copies

    @classmethod
    def make(cls, tested: Tested, room: Path) -> Prepared:
        """Run the writer undisturbed."""
        before, after, work = (room / name for name in ("before", "after", "work"))
        for folder in (before, work):
            folder.mkdir(parents=True)
        tested.before(before)
        shutil.copytree(before, after)
        ended = run(tested.write, after)
        expect(ended.status == 0, f"undisturbed: {ended.status}: {ended.said}")
        made = cls(tested, before, after, ended.steps, work)
        expect(bool(made.wanted), "undisturbed: nothing is found")
        return made

    @cached_property
    def was(self) -> Found:
        """What a reader finds before."""
        return self.tested.found(self.before)

    @cached_property
    def wanted(self) -> Found:
        """What a reader finds after an undisturbed run."""
        return self.tested.found(self.after)

    def copy(self, of: Path) -> Path:
        """A folder of its own for one fault."""
        place = self.work / "case"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(of, place)
        return place

    def names(self, place: Path) -> list[str]:
        """All that lies in a folder but locks, and what may stay."""
        names = (str(path.relative_to(place)) for path in place.rglob("*") if not LOCK.fullmatch(path.name))
        return sorted(name for name in names if not re.fullmatch(self.tested.stays, name))


def expect(holds: bool, told: str) -> None:
    """Raise where a promise is broken."""
    if not holds:
        raise BrokenPromiseError(told)


def check_found(prepared: Prepared, place: Path) -> str:
    """Each unit is what it was, what it was to be, or absent where it may be: whole or not at all."""
    tested = prepared.tested
    try:
        found = tested.found(place)
    except UserError as error:
        raise BrokenPromiseError(f"half-made: {error}") from None
    was, wanted = prepared.was, prepared.wanted
    for unit in {*was, *wanted, *found}:
        told = f"{unit} is neither what it was nor what it was to be"
        if unit not in found:
            expect(unit not in was or tested.absent, f"{unit} is lost")
        else:
            expect(found[unit] in [some[unit] for some in (was, wanted) if unit in some], told)
    expect(tested.keeps(place), "what was there before is lost")
    return "the new was there" if found == wanted else "the former was there" if found == was else "a part was there"


def check_again(prepared: Prepared, place: Path, ended: Ended | None = None) -> None:
    """The same work again ends as it would have undisturbed, and makes nothing anew that was on the disk."""
    again = run(prepared.tested.write, place)
    expect(again.status == 0, f"again: {again.status}: {again.said}")
    lost = (ended.done & again.done) if ended else set()
    expect(not lost, f"again: {sorted(lost)} was on the disk and is made anew")
    expect(prepared.tested.found(place) == prepared.wanted, "again: not what an undisturbed run makes")
    names, wanted = prepared.names(place), prepared.names(prepared.after)
    expect(names == wanted, f"again: left or missing: {sorted(set(names) ^ set(wanted))}")


Case = Callable[[], str]  # what it came to


@dataclass(frozen=True)
class Kind:
    """A way to disturb a writer."""

    name: str
    where: str  # it is injected
    promise: str
    cases: Callable[[Prepared], Iterator[tuple[str, Case]]]


def _killed(prepared: Prepared) -> Iterator[tuple[str, Case]]:
    def case(how: How, at: int) -> str:
        place = prepared.copy(prepared.before)
        ended = run(prepared.tested.write, place, Disturbance(how, at))
        expect(ended.status == -signal.SIGKILL, f"not killed: {ended.status}: {ended.said}")
        state = check_found(prepared, place)
        check_again(prepared, place, ended)
        return state

    for at in range(prepared.steps):
        for how in (How.KILLED_BEFORE, How.KILLED_WITHIN):
            yield f"{how.name.lower()} {at}", lambda how=how, at=at: case(how, at)


def _refused(how: How) -> Callable[[Prepared], Iterator[tuple[str, Case]]]:
    def cases(prepared: Prepared) -> Iterator[tuple[str, Case]]:
        for at in range(prepared.steps):
            yield f"{how.name.lower()} from {at}", lambda at=at: case(prepared, at)

    def case(prepared: Prepared, at: int) -> str:
        place = prepared.copy(prepared.before)
        ended = run(prepared.tested.write, place, Disturbance(how, at))
        expect(one_line(ended) or ended.status == 0, f"ended with {ended.status}: {ended.said}")
        check_found(prepared, place)
        whole = prepared.tested.optional or prepared.tested.found(place) == prepared.wanted
        expect(ended.status != 0 or whole, "it ended well with less than it was to make")
        check_again(prepared, place, ended)
        return "told in one line" if ended.status else "nothing was left to write"

    return cases


def _clock(prepared: Prepared) -> Iterator[tuple[str, Case]]:
    def case(at: int, jump_s: int) -> str:
        place = prepared.copy(prepared.before)
        ended = run(prepared.tested.write, place, Disturbance(How.CLOCK, at, jump_s))
        expect(ended.status == 0, f"ended with {ended.status}: {ended.said}")
        check_again(prepared, place, ended)
        return "as with a steady clock"

    for jump_s in JUMPS_S:
        for at in sorted({0, prepared.steps // 2}):
            yield f"clock {jump_s:+} s at {at}", lambda at=at, jump_s=jump_s: case(at, jump_s)


def _two(prepared: Prepared) -> Iterator[tuple[str, Case]]:
    def case(at: int) -> str:
        place = prepared.copy(prepared.before)
        first = Child(prepared.tested.write, place, Disturbance(How.STOPPED, at))
        expect(first.stops(), "the first did not come to its operation")
        second = Child(prepared.tested.write, place, Disturbance())
        waited = not second.ends_within(WAIT_S)
        first.resume()
        ends = first.end(), second.end()
        for ended in ends:
            expect(ended.status == 0 or one_line(ended), f"ended with {ended.status}: {ended.said}")
        expect(any(ended.status == 0 for ended in ends), f"both were refused: {ends[0].said}; {ends[1].said}")
        check_found(prepared, place)
        check_again(prepared, place)
        refused = any(ended.status for ended in ends)
        return "one was refused in one line" if refused else "one waited" if waited else "both ended well"

    for at in range(prepared.steps):
        yield f"two, the first stopped at {at}", lambda at=at: case(at)


def _memory(prepared: Prepared) -> Iterator[tuple[str, Case]]:
    def case(memory: int) -> str:
        place = prepared.copy(prepared.before)
        ended = run(prepared.tested.write, place, Disturbance(memory=memory))
        aborted = ended.status in (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS)  # by a library's allocator
        expect(aborted or ended.status == 0 or one_line(ended), f"ended with {ended.status}: {ended.said}")
        check_found(prepared, place)
        check_again(prepared, place, ended)
        return "ended by a library" if aborted else "told in one line" if ended.status else "enough"

    for memory in MEMORY:
        yield f"{memory} bytes of memory left", lambda memory=memory: case(memory)


def _files(prepared: Prepared) -> list[str]:
    """Files of the finished work that are not empty."""
    was = {path.relative_to(prepared.before) for path in prepared.before.rglob("*") if path.is_file()}
    new = [path for path in prepared.after.rglob("*") if path.is_file() and path.stat().st_size]
    changed = [
        path
        for path in new
        if (name := path.relative_to(prepared.after)) not in was
        or path.read_bytes() != (prepared.before / name).read_bytes()
    ]
    return sorted(str(path.relative_to(prepared.after)) for path in changed if not LOCK.fullmatch(path.name))


def _damaged(prepared: Prepared, name: str, content: bytes) -> str:
    place = prepared.copy(prepared.after)
    (place / name).write_bytes(content)
    state = _read(prepared, place)
    again = run(prepared.tested.write, place)
    expect(again.status == 0 or one_line(again), f"again: {again.status}: {again.said}")
    _read(prepared, place)
    return state


def _read(prepared: Prepared, place: Path) -> str:
    """What a reader makes of damage."""
    try:
        found = prepared.tested.found(place)
    except UserError as error:
        expect("\n" not in str(error), f"more than a line: {error}")
        return "told in one line"
    for unit, value in found.items():
        expect(unit in prepared.wanted and value == prepared.wanted[unit], f"{unit}: damage is taken for whole")
    return "harmless" if found == prepared.wanted else "passed over, made anew"


def _torn(prepared: Prepared) -> Iterator[tuple[str, Case]]:
    for name in _files(prepared) if prepared.tested.checked else ():
        whole = (prepared.after / name).read_bytes()
        for length in sorted({0, 1, len(whole) // 3, len(whole) * 2 // 3, len(whole) - 1}):
            yield f"{name} cut to {length}", lambda name=name, part=whole[:length]: _damaged(prepared, name, part)


def _flipped(prepared: Prepared) -> Iterator[tuple[str, Case]]:
    draw = random.Random(prepared.tested.name)
    for name in _files(prepared) if prepared.tested.hashed else ():
        whole = (prepared.after / name).read_bytes()
        for _ in range(FLIPS):
            at, bit = draw.randrange(len(whole)), draw.randrange(8)
            changed = whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
            yield f"{name}, bit {bit} of byte {at}", lambda name=name, new=changed: _damaged(prepared, name, new)


WHOLE = "what was there before or what was to be, whole; the same again ends as undisturbed"
KINDS = [
    Kind("kill -9", "before and within every operation on the disk", f"{WHOLE}; nothing kept is made anew", _killed),
    Kind("full disk", "from every operation on the disk on", f"one line; {WHOLE}", _refused(How.FULL)),
    Kind("read-only disk", "from every operation on the disk on", f"one line; {WHOLE}", _refused(How.READ_ONLY)),
    Kind("two in one folder", "one stopped at every operation on the disk", f"one waits or is refused; {WHOLE}", _two),
    Kind(
        "torn file",
        "every finished file with a reader, cut at five places",
        "told in one line, or made anew",
        _torn,
    ),
    Kind("flipped bit", "every finished file that has a hash", "told when verified, or harmless", _flipped),
    Kind("clock jump", "an hour, a day, a year, both ways", "the result of a steady clock", _clock),
    Kind("memory limit", "0 B to 4 MiB beyond what the process has", f"one line; {WHOLE}", _memory),
]
