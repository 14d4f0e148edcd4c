"""Several questions side by side on one decoder, for methods written for one at a time; see
docs/engine.md.

Each piece of work (a method that answers a question) runs in a thread of its own on an
`EngineProxy`, which hands its calls over. Only one thread runs at any time, in an order that does
not depend on the clock. Where no compiled pass decodes all responses together, they attend on
copies side by side (`batched_cache`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

import psutil
import torch
from torch import Tensor

from ragauge.cost.shape import Shape
from ragauge.cost.trace import Call
from ragauge.engines.batched_cache import BatchedKVCache, BatchRow, add_row
from ragauge.engines.cache import KVCache
from ragauge.engines.layout import Part
from ragauge.engines.lm import LM
from ragauge.engines.passes import (
    Ended,
    LogitsRequest,
    Reading,
    Requests,
    StatesRequest,
    decoding,
)
from ragauge.engines.protocol import CallOptions, Extension
from ragauge.engines.recorded import RecordedEngine
from ragauge.engines.spans import Row
from ragauge.engines.store import DocumentStore

T = TypeVar("T")
Work = Callable[["EngineProxy"], T]
"""A task: a function of the engine that it may call."""

# new tokens of the calls that share a pass; a longer piece has a pass for itself and the responses
PASS_TOKENS = 1024
MAX_TASKS = {"cpu": 8, "cuda": 256}  # of `max_batch_size`: more do not make a processor faster
# of a task's keys and values at most: methods that prune copy what they select, and so does
# decoding
COPIES = 3
SHARE = 0.5  # of the free memory, for keys and values; the rest is for what passes compute


class _Stopped(BaseException):
    """Ends the thread of a task whose scheduler is closed before it is done."""


@dataclass(eq=False)
class _PendingCall:
    """A call that a task handed over, as the requests that it makes of the decoder."""

    lm: LM
    requests: Requests[Any]
    alone: bool = False  # shares no pass
    more: int = 0  # tokens that a response has at most, one after another; 0: many at a time
    row: BatchRow | None = None  # of a response that is decoded in a batched cache
    # a StatesRequest or LogitsRequest that waits for its answer; None: the call is over
    request: Any = None
    result: Any = None  # an exception where the call failed

    def resume(self, answer: Tensor | Exception | None = None) -> None:
        """Pass on the answer to the last request, if there was one, and get the next."""
        self.request = None
        if isinstance(answer, Exception):
            self.result = answer
            return
        try:
            self.request = next(self.requests) if answer is None else self.requests.send(answer)
        except StopIteration as end:
            self.result = end.value
        except Exception as error:
            self.result = error


class Task(Generic[T]):
    """Work that was submitted."""

    def __init__(self, lm: LM, work: Work[T]) -> None:
        self.engine = EngineProxy(lm, self)  # has the times of the work's last response
        self.done = False
        self._future: Future[T] = Future()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._answers: SimpleQueue[Any] = SimpleQueue()
        self._calls: SimpleQueue[_PendingCall | None] = SimpleQueue()

    def result(self) -> T:
        """The work's result, once it is `done`; raises what it raised."""
        return self._future.result()

    def call(self, call: _PendingCall) -> Any:
        """Hand a call over and wait for its result: for the work's own thread."""
        self._calls.put(call)
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def resume(self, answer: Any = None) -> _PendingCall | None:
        """Let the work run until it makes a call; None: it is done."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._answers.put(answer)
        call = self._calls.get()
        if call is None:
            self._thread.join()
            self.done = True
        return call

    def stop(self) -> None:
        """End the work wherever it is."""
        if self._thread.ident is None or self.done:
            return
        self._answers.put(_Stopped())
        while self._calls.get() is not None:
            self._answers.put(_Stopped())
        self._thread.join()

    def _run(self, work: Work[T]) -> None:
        try:
            self._future.set_result(work(self.engine))
        except BaseException as error:
            self._future.set_exception(error)
        self._calls.put(None)


class EngineProxy(RecordedEngine):
    """The decoder as one task sees it: traces, times and caches are its own, and calls wait for
    their pass.

    Calls have no seconds, which they would share with other tasks; those that a document store
    saves run alone.
    """

    supported = LM.supported

    def __init__(self, lm: LM, task: Task[Any]) -> None:
        super().__init__(lm.shape, lm.tokenizer, lm.dtype, lm.device)
        self.documents = lm.documents
        self.precision = lm.precision
        self._lm = lm
        self._task = task
        self._alone = False
        if lm.finder is not None:
            self.finder = finder = EngineProxy(cast(LM, lm.finder), task)  # of the same engine
            finder._answering = self
            finder.template = lm.finder.template

    def compute(self, cache: KVCache, rows: Sequence[Row], options: CallOptions) -> Extension:
        requests = Reading(self._lm.decoder, cache, rows, options).requests()
        return self._task.call(_PendingCall(self._lm, requests, self._alone))

    def decode(
        self, cache: KVCache, ids: list[int], position: float, most: int, ended: Ended | None
    ) -> list[int]:
        requests = decoding(self._lm.decoder, cache, ids, position, most, ended)
        return self._task.call(_PendingCall(self._lm, requests, more=most - len(ids)))

    def _extend_stored(
        self, store: DocumentStore, cache: KVCache, rows: Sequence[Row], options: CallOptions
    ) -> Extension:
        self._alone = True
        try:
            return super()._extend_stored(store, cache, rows, options)
        finally:
            self._alone = False

    def _finish(self, call: Call, started: float) -> None:
        self._record(call)


class BatchScheduler(AbstractContextManager["BatchScheduler"]):
    """Work on one decoder, up to `size` tasks of it side by side; more can be submitted between two
    steps.
    """

    def __init__(self, lm: LM, size: int) -> None:
        self.lm = lm
        self.size = size
        self._waiting: deque[Task[Any]] = deque()
        # by the length of their rows, and decoder
        self._batched: dict[tuple[int, Shape], BatchedKVCache] = {}
        self._pending: dict[Task[Any], _PendingCall] = {}  # of running tasks

    @property
    def unfinished(self) -> int:
        """Tasks that are not done, running or waiting."""
        return len(self._waiting) + len(self._pending)

    def submit(self, work: Work[T]) -> Task[T]:
        """Add work, which begins once there is room for it."""
        task = Task(self.lm, work)
        self._waiting.append(task)
        return task

    def run(self, works: Iterable[Work[T]]) -> Iterator[Task[T]]:
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
        """One pass for all running work, one more for other layers or another decoder; the tasks
        that are then done.
        """
        done = []
        while self._waiting and len(self._pending) < self.size:
            if self._resume(self._waiting[0]):
                done.append(self._waiting[0])
            self._waiting.popleft()
        for shared in self._passes():
            _run(shared)
        for task, call in list(self._pending.items()):
            if call.request is None:
                if call.row:
                    call.row.release()
                if self._resume(task, call.result):
                    done.append(task)
        return done

    def __exit__(self, *_: object) -> None:
        """End the work that is not done."""
        for task in (*self._waiting, *self._pending):
            task.stop()
        self._waiting.clear()
        self._pending.clear()

    def _resume(self, task: Task[Any], answer: Any = None) -> bool:
        """Let a task run until it waits for a pass; whether it is done."""
        while (call := task.resume(answer)) is not None:
            call.resume()
            while call.alone and call.request is not None:
                _run([call])
            if isinstance(call.request, StatesRequest):
                if call.more and self.size > 1 and not self.lm.decoder.runs_fused(self.size):
                    call.row = add_row(self._batched, call.request.part.cache, call.more)
                self._pending[task] = call
                return False
            answer = call.result
        self._pending.pop(task, None)
        return True

    def _passes(self) -> list[list[_PendingCall]]:
        """The calls that share a pass: all responses, and calls through the same layers up to
        PASS_TOKENS, by age.
        """
        shared: dict[Any, list[_PendingCall]] = {}
        tokens: dict[Any, int] = {}
        for call in self._pending.values():
            joins = call.request.part.cache.cross_attention is None
            key = (call.lm, call.request.layers) if joins else call
            new = 0 if call.more else call.request.part.tokens
            # else in a later step
            if not new or not tokens.get(key) or tokens[key] + new <= PASS_TOKENS:
                shared.setdefault(key, []).append(call)
                tokens[key] = tokens.get(key, 0) + new
        return list(shared.values())


def max_batch_size(lm: LM, tokens: int) -> int:
    """The number of tasks of so many tokens each that the free memory is enough for, at least 1."""
    token = lm.new_cache(1)
    token.length = 1
    if lm.device.type == "cuda":
        unused = torch.cuda.memory_reserved(lm.device) - torch.cuda.memory_allocated(lm.device)
        free = torch.cuda.mem_get_info(lm.device)[0] + unused
    else:
        free = psutil.virtual_memory().available
        with suppress(OSError, IndexError):  # no control group
            name = Path("/proc/self/cgroup").read_text().split("::/")[1].strip()
            group = Path("/sys/fs/cgroup") / name
            for level in (group, *group.parents):  # Slurm limits a job, above the group of its task
                with suppress(OSError, ValueError):  # no limit here
                    limit = int((level / "memory.max").read_text())
                    free = min(free, limit - int((level / "memory.current").read_text()))
    most = int(SHARE * free) // (COPIES * tokens * token.bytes)
    return max(1, min(most, MAX_TASKS[lm.device.type]))


def _run(shared: Sequence[_PendingCall]) -> None:
    """One pass, and the logits of the states that it computes."""
    _answer_together(shared, _states)
    if calls := [call for call in shared if isinstance(call.request, LogitsRequest)]:
        _answer_together(calls, _logits)


def _answer_together(
    shared: Sequence[_PendingCall], compute: Callable[[Sequence[_PendingCall]], Sequence[Tensor]]
) -> None:
    """Answer the requests by one computation; where that fails, by one each, so that only its cause
    fails.
    """
    answers: Sequence[Tensor | Exception]
    try:
        answers = compute(shared)
    except Exception as error:
        if len(shared) > 1:
            for call in shared:
                _answer_together([call], compute)
            return
        answers = [error]
    for call, answer in zip(shared, answers, strict=True):
        call.resume(answer)


def _states(shared: Sequence[_PendingCall]) -> Sequence[Tensor]:
    """The states of each call: rows of a batched cache are one part, other calls have their own."""
    groups: dict[BatchedKVCache | _PendingCall, list[_PendingCall]] = {}
    for call in sorted(shared, key=lambda call: call.row.index if call.row else 0):
        groups.setdefault(call.row.batched if call.row else call, []).append(call)
    requests: dict[_PendingCall, StatesRequest] = {}
    parts: list[Part] = []
    for group in groups.values():
        requests |= {call: call.request for call in group}
        own = [requests[call].part for call in group]
        rows = [call.row for call in group if call.row]
        if rows:
            own = [rows[0].batched.part(rows, torch.cat([part.positions for part in own]))]
        parts += own
    x = [request.x for request in requests.values()]
    together = x[0] if len(x) == 1 else torch.cat(x)
    states = shared[0].lm.decoder.read(together, parts, requests[shared[0]].layers)
    for call in shared:
        if call.row:
            call.row.cache.length += 1
    by_call = dict(zip(requests, states.split([*map(len, x)]), strict=True))
    return [by_call[call] for call in shared]


def _logits(shared: Sequence[_PendingCall]) -> Sequence[Tensor]:
    hidden = [call.request.hidden for call in shared]
    return shared[0].lm.decoder.logits(torch.cat(hidden)).split([len(h) for h in hidden])
