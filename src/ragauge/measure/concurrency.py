"""Questions answered one by one, in batches of one engine, or by several requests at a time."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import Literal, cast

from ragauge.datasets.base.dataset import Example
from ragauge.engines.backends.openai import ServedEngine
from ragauge.engines.batching import BatchScheduler, max_batch_size
from ragauge.engines.lm import LM
from ragauge.engines.memory import MEMORY_ERRORS
from ragauge.engines.protocol import Capability, Engine, EngineLostError
from ragauge.errors import UserError
from ragauge.io.records import Record
from ragauge.io.specifications import AnswerSpecification
from ragauge.measure.answering import FAILURES, ask
from ragauge.measure.prompting import limits, prompt_of
from ragauge.methods.base.method import Method

BatchSize = int | Literal["auto"]


def answers(
    engine: Engine,
    method: Method,
    examples: Sequence[Example],
    specification: AnswerSpecification,
    batch: BatchSize = 1,
    on_start: Callable[[str], None] = lambda key: None,
) -> Iterator[Record]:
    """The record of each example, in the order in which they are done.

    `batch` questions are answered together, where engine and method support it
    (`engines/batching.py`). A question for which memory is too short among others is answered again
    alone. `on_start` is called with a question's key before its answer; not for a served model,
    which takes no memory here.
    """
    if Capability.SERVER in engine.capabilities:
        yield from _answers_of_server(
            cast(ServedEngine, engine), method, examples, specification, batch
        )
        return
    size = largest_batch(engine, examples, specification) if batch == "auto" else batch
    too_large: list[Example] = []

    def starting() -> Iterator[Example]:
        for example in examples:
            on_start(example.key)
            yield example

    def ask_one(example: Example, proxy: Engine) -> Record | None:
        try:
            record = ask(proxy, method, example, specification, failures=(UserError,))
        except MEMORY_ERRORS:
            too_large.append(example)
            return None
        return _without_times(record, scheduler.size)

    if size == 1 or not isinstance(engine, LM) or method.sequential():
        yield from (ask(engine, method, example, specification) for example in starting())
        return
    with BatchScheduler(engine, min(size, len(examples))) as scheduler:
        for task in scheduler.run(partial(ask_one, example) for example in starting()):
            if record := task.result():
                yield record
    yield from (ask(engine, method, example, specification) for example in too_large)


def _answers_of_server(
    engine: ServedEngine,
    method: Method,
    examples: Sequence[Example],
    specification: AnswerSpecification,
    batch: BatchSize,
) -> Iterator[Record]:
    """The records of a served model, some of whose requests are under way together. Raises
    EngineLostError: the server is unreachable; earlier answers were returned before.
    """
    several = engine.concurrency or (batch if isinstance(batch, int) else 1)
    if several == 1 or len(examples) == 1 or method.sequential():
        yield from (ask(engine, method, example, specification) for example in examples)
        return
    turn = threading.Lock()
    ended = threading.Event()
    lost = list[EngineLostError]()

    def ask_one(example: Example) -> Record | None:
        with turn:
            if ended.is_set():
                return None
            try:
                record = ask(engine.for_thread(turn, several), method, example, specification)
            except EngineLostError as error:
                lost.append(error)
                ended.set()
                return None
        return _without_times(record, several)

    with ThreadPoolExecutor(several) as pool:
        try:
            for task in as_completed([pool.submit(ask_one, example) for example in examples]):
                if record := task.result():
                    yield record
        finally:
            ended.set()  # an interrupted run asks nothing more
    if lost:
        raise lost[0]


def largest_batch(
    engine: Engine, examples: Sequence[Example], specification: AnswerSpecification
) -> int:
    """As many questions as fit in memory if all are as long as the longest."""
    if not isinstance(engine, LM):
        return 1
    longest = max(examples, key=lambda e: sum(len(d.title) + len(d.text) for d in e.documents))
    try:
        prompt = prompt_of(longest, specification, engine.tokenizer, engine.max_context)
    except FAILURES:
        return 1
    return max_batch_size(engine, prompt.total_tokens + limits(specification).max_new_tokens)


def _without_times(record: Record, batch: int) -> Record:
    """Remove the seconds of a question that was answered together with others."""
    return record.model_copy(
        update={"batch": batch, "offline_s": None, "online_s": None, "first_token_s": None}
    )
