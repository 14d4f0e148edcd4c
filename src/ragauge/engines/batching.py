"""Several questions side by side on one decoder, for methods that know nothing of it.

Each piece of work (a method that answers a question) runs in a thread of its own on a `Seat`, an engine that hands its
calls over. Only one thread runs at any time, in an order that does not depend on the clock. Once all of them wait for
results, one pass reads a piece of every call and decodes one token of every response: norms, linear layers and logits
are computed for all tokens together, so that weights are read once, and each call attends to its own cache, where it
lies; where a compiled pass does not take them as they lie, responses attend together, on copies side by side
(`shelves`). Results are those of one after another but for rounding.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import psutil
import torch
from torch import Tensor

from ragauge.cost.trace import Call
from ragauge.engines.cache import KVCache
from ragauge.engines.decoder import Part
from ragauge.engines.lm import LM
from ragauge.engines.passes import CallOptions, Head, Piece, Requests
from ragauge.engines.protocol import DECODING, Capabilities, Capability, Extension, Row
from ragauge.engines.recorded import Ended, RecordedEngine
from ragauge.engines.shelves import ShelfPlace, Shelves
from ragauge.engines.store import DocumentStore

T = TypeVar("T")

PASS_TOKENS = 1024  # new tokens of the calls that share a pass; a longer piece has a pass for itself and the responses
MOST = {"cpu": 8, "cuda": 256}  # tasks side by side that `fitting` says: more do not make a processor faster
COPIES = 3  # of a task's keys and values at most: methods that prune copy what they keep, and so does decoding
SHARE = 0.5  # of the free memory, for keys and values; the rest is for what passes compute


class _Stopped(BaseException):
    """Ends the thread of a task whose batch is closed before it is done."""


@dataclass
class _PendingCall:
    """A call that was handed over, as the requests that it makes of the decoder."""

    lm: LM
    requests: Requests[Any]
    response: bool  # one token after another, rather than many at a time
    alone: bool = False
    more: int = 0  # tokens that a response has at most
    place: ShelfPlace | None = None  # of a response that is decoded on a shelf
    wants: Piece | Head | None = None  # the request that waits for its result; None: the call is over
    result: Any = None  # an exception where the call failed

    def go_on(self, answer: Tensor | Exception | None = None) -> None:
        """Take what the last request asked for, if there was one, and make the next."""
        self.wants = None
        if isinstance(answer, Exception):
            self.result = answer
            return
        try:
            self.wants = next(self.requests) if answer is None else self.requests.send(answer)
        except StopIteration as end:
            self.result = end.value
        except Exception as error:
            self.result = error


class Task(Generic[T]):
    """Work that was submitted."""

    def __init__(self, lm: LM, work: Callable[[Seat], T]) -> None:
        self.engine = Seat(lm, self)  # what the work is given: `token_at`, `first_token_at` of its last response
        self.done = False
        self._work = work
        self._result: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._waits: SimpleQueue[_PendingCall | None] = SimpleQueue()

    def result(self) -> T:
        """What the work returned; raises what it raised. Ask once it is `done`."""
        assert self.done
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def ask(self, asked: _PendingCall) -> Any:
        """Hand a call over and wait for its result: for the work's own thread."""
        self._waits.put(asked)
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def go_on(self, answer: Any = None) -> _PendingCall | None:
        """Let the work run until it makes a call; None: it is done."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._answers.put(answer)
        asked = self._waits.get()
        if asked is None:
            self._thread.join()
            self.done = True
        return asked

    def stop(self) -> None:
        """End the work wherever it is."""
        if self._thread.ident is None or self.done:
            return
        self._answers.put(_Stopped())
        while self._waits.get() is not None:
            self._answers.put(_Stopped())
        self._thread.join()

    def _run(self) -> None:
        try:
            self._result = self._work(self.engine)
        except BaseException as error:
            self._error = error
        self._waits.put(None)


class Seat(RecordedEngine):
    """What one task sees of the decoder: traces, times and caches are its own, and calls wait for their pass.

    Calls have no seconds, which they would share with other tasks; those that a store of documents keeps run alone.
    """

    able: ClassVar[Capabilities] = DECODING - {Capability.SHARED}

    def __init__(self, lm: LM, task: Task[Any]) -> None:
        super().__init__(lm.shape, lm.tokenizer, lm.dtype, lm.device)
        self.documents, self.precision = lm.documents, lm.precision
        self._lm, self._task, self._alone = lm, task, False
        if lm.finder is not None:
            self.finder = finder = Seat(cast(LM, lm.finder), task)  # of the same engine
            finder._answering, finder.template = self, lm.finder.template

    def new_cache(self, capacity: int) -> KVCache:
        """See `SpanEngine.new_cache`: kept as the decoder keeps them."""
        return self.keep(self._lm.new_cache(capacity))

    def compute(self, cache: KVCache, rows: Sequence[Row], asked: CallOptions) -> Extension:
        """See `RecordedEngine.compute`."""
        requests = self._lm.passes.reading(cache, rows, asked)
        extension: Extension = self._task.ask(_PendingCall(self._lm, requests, response=False, alone=self._alone))
        return extension

    def decode(self, cache: KVCache, ids: list[int], position: float, most: int, ended: Ended | None) -> list[int]:
        """See `RecordedEngine.decode`."""
        requests = self._lm.passes.decoding(cache, ids, position, most, ended)
        response: list[int] = self._task.ask(_PendingCall(self._lm, requests, response=True, more=most - len(ids)))
        return response

    def _extend_stored(
        self, store: DocumentStore, cache: KVCache, rows: Sequence[Row], asked: CallOptions, call: Call
    ) -> Extension:
        self._alone = True
        try:
            return super()._extend_stored(store, cache, rows, asked, call)
        finally:
            self._alone = False

    def _finish(self, call: Call, started: float) -> None:
        if self._alone:
            super()._finish(call, started)
        else:
            self._record(call)


class Batch:
    """Work on one decoder, up to `size` pieces of it side by side.

        with Batch(lm, 8) as batch:
            for task in batch.run(works):
                print(task.result())

    New work can be submitted at any time between two steps.
    """

    def __init__(self, lm: LM, size: int) -> None:
        self.lm, self.size = lm, size
        self._waiting: deque[Task[Any]] = deque()
        self._shelves = Shelves()
        self._live: dict[Task[Any], _PendingCall | None] = {}  # None: runs, or is done

    @property
    def unfinished(self) -> int:
        """Tasks that are not done, whether begun or not."""
        return len(self._waiting) + len(self._live)

    def submit(self, work: Callable[[Seat], T]) -> Task[T]:
        """Add work, which begins once there is room for it."""
        task = Task(self.lm, work)
        self._waiting.append(task)
        return task

    def run(self, works: Iterable[Callable[[Seat], T]]) -> Iterator[Task[T]]:
        """Do the work; tasks in the order in which they are done."""
        waiting = iter(works)
        while True:
            while self.unfinished < self.size and (work := next(waiting, None)) is not None:
                self.submit(work)
            if not self.unfinished:
                return
            yield from self.step()

    @torch.inference_mode()
    def step(self) -> list[Task[Any]]:
        """One pass for all begun work (work with other layers or another decoder has its own); the tasks then done."""
        done = []
        while self._waiting and len(self._live) < self.size:
            task = self._waiting.popleft()
            if self._over(task):
                done.append(task)
        for shared in self._passes():
            _run(shared)
        for task, asked in list(self._live.items()):
            if asked and asked.place and asked.wants is None:
                asked.place.leave()
            if asked and asked.wants is None and self._over(task, asked.result):
                done.append(task)
        return done

    def close(self) -> None:
        """End the work that is not done."""
        self._waiting.clear()
        while self._live:
            self._live.popitem()[0].stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _over(self, task: Task[Any], answer: Any = None) -> bool:
        """Let a task run until it waits for a pass; whether it is done."""
        while True:
            self._live[task] = None
            asked = task.go_on(answer)
            if asked is None:
                del self._live[task]
                return True
            asked.go_on()
            while asked.alone and asked.wants is not None:
                _run([asked])
            if isinstance(asked.wants, Piece):
                if asked.response and self.size > 1 and not self.lm.decoder.in_one_call(self.size):
                    asked.place = self._shelves.take(asked.wants.part.cache, asked.more)
                self._live[task] = asked
                return False
            answer = asked.result

    def _passes(self) -> list[list[_PendingCall]]:
        """What shares a pass: all responses, and calls through the same layers up to PASS_TOKENS, oldest first."""
        shared: dict[Any, list[_PendingCall]] = {}
        tokens: dict[Any, int] = {}
        for asked in self._live.values():
            assert asked is not None
            assert isinstance(asked.wants, Piece)
            beside = asked.wants.part.cache.beside
            key = (asked.lm, asked.wants.layers) if beside is None else (asked.lm, id(asked))
            new = 0 if asked.response else asked.wants.part.tokens
            if not new or not tokens.get(key) or tokens[key] + new <= PASS_TOKENS:  # else in a later step
                shared.setdefault(key, []).append(asked)
                tokens[key] = tokens.get(key, 0) + new
        return list(shared.values())


def fitting(lm: LM, tokens: int) -> int:
    """How many tasks of so many tokens each the free memory is enough for, at least 1."""
    one = lm.new_cache(1)
    one.length = 1
    most = int(SHARE * _free_bytes(lm.device)) // (COPIES * tokens * one.bytes)
    return max(1, min(most, MOST[lm.device.type]))


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    free = psutil.virtual_memory().available
    with suppress(OSError, ValueError, IndexError):  # no control group, or none with a limit
        group = Path("/sys/fs/cgroup") / Path("/proc/self/cgroup").read_text().split("::/")[1].strip()
        free = min(free, int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return free


def _run(shared: Sequence[_PendingCall]) -> None:
    """One pass, and the logits of what it read."""
    _together(shared, _states)
    _together([asked for asked in shared if isinstance(asked.wants, Head)], _logits)


def _together(shared: Sequence[_PendingCall], compute: Callable[[Sequence[_PendingCall]], Sequence[Tensor]]) -> None:
    """Answer the requests by one computation; where that fails, by one each, so that only its cause fails."""
    if not shared:
        return
    try:
        found: Sequence[Tensor | Exception] = compute(shared)
    except Exception as error:
        if len(shared) > 1:
            for asked in shared:
                _together([asked], compute)
            return
        found = [error]
    for asked, answer in zip(shared, found, strict=True):
        asked.go_on(answer)


def _states(shared: Sequence[_PendingCall]) -> Sequence[Tensor]:
    """Shelf by shelf, then what has a part of its own."""
    by_shelf: dict[Any, list[_PendingCall]] = {}
    for asked in sorted(shared, key=lambda asked: asked.place.row if asked.place else 0):
        by_shelf.setdefault(asked.place.shelf if asked.place else id(asked), []).append(asked)
    groups = list(by_shelf.values())
    order = [asked for group in groups for asked in group]
    x = [asked.wants.x for asked in order if isinstance(asked.wants, Piece)]
    assert isinstance(order[0].wants, Piece)
    joined = x[0] if len(x) == 1 else torch.cat(x)
    states = order[0].lm.decoder.read(joined, [_part(group) for group in groups], order[0].wants.layers)
    for asked in order:
        if asked.place:
            asked.place.cache.length += 1
    found = dict(zip(map(id, order), states.split([part.shape[0] for part in x]), strict=True))
    return [found[id(asked)] for asked in shared]


def _part(group: Sequence[_PendingCall]) -> Part:
    """Of one shelf's responses, or of one other call."""
    parts = [asked.wants.part for asked in group if isinstance(asked.wants, Piece)]
    places = [asked.place for asked in group if asked.place]
    return places[0].shelf.part(places, torch.cat([part.positions for part in parts])) if places else parts[0]


def _logits(shared: Sequence[_PendingCall]) -> Sequence[Tensor]:
    hidden = [asked.wants.hidden for asked in shared if isinstance(asked.wants, Head)]
    return shared[0].lm.decoder.logits(torch.cat(hidden)).split([h.shape[0] for h in hidden])
