"""Work side by side on one decoder gives what it gives one after another, whatever the work is."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny_models
from ragauge import registry
from ragauge.cost.trace import Call
from ragauge.engines import batched_cache
from ragauge.engines.batching import BatchScheduler, max_batch_size
from ragauge.engines.protocol import Limits, SpanEngine
from ragauge.engines.spans import Row, Span
from ragauge.engines.store import MemoryStore
from ragauge.methods.base import making

LIMITS = Limits(max_new_tokens=6, ignore_stop=True)
OPTIONS = {
    "superposition": [
        {"top_k": 2, "saliency": "attention"},
        {"factor": 2},
        {"top_k": 2, "iterations": 2},
        {"drop_first_token": True, "path_temperature": 1.0},  # the cache has a bias
    ],
    "bm25": [{"top_k": 3}],
}
Work = Callable[[SpanEngine], Any]


def answered(method, prompt, engine):
    """An answer, its calls without their seconds, and the bytes that were cached."""
    with engine.tracing() as trace:
        answer = method.answer(engine, method.prepare(engine, prompt), prompt, LIMITS)
    calls = [{k: v for k, v in call.to_json().items() if k != "seconds"} for call in trace]
    return answer, calls, engine.peak_cache_bytes


def read(ids, most, engine):
    return engine.respond(ids, Limits(max_new_tokens=most, ignore_stop=True)).ids


# ---- the same results


# by positions, and of two shapes of layers
@pytest.mark.parametrize("family", ["llama", "bloom", "openelm"])
def test_every_method_answers_as_alone(family, encoder):
    """All of them at the same time, each on a question of its own."""
    lm = tiny_models.tiny_lm(tiny_models.deeper(tiny_models.FAMILIES[family]))
    works = {}
    needed = {
        "dense": {"encoder": encoder},
        "kv_link": tiny_models.LINKS,
    }
    for number, name in enumerate(registry.names("method")):
        for options in [{}, *OPTIONS.get(name, [])]:
            method = making.make(name, **options, **needed.get(name, {}))
            if method.sequential():
                continue
            prompt = tiny_models.tiny_prompt(
                [5 + (3 * n + number) % 13 for n in range(4)], seed=number
            )
            works[f"{name} {options}"] = partial(answered, method, prompt)
    alone = [work(lm) for work in works.values()]
    tasks = tiny_models.side_by_side(lm, works.values(), 5)
    for name, task, (expected, *costs) in zip(works, tasks, alone, strict=True):
        answer, *found = task.result()
        assert replace(answer, saliency=()) == replace(expected, saliency=()), name
        assert answer.saliency == pytest.approx(expected.saliency, abs=1e-4), name
        assert found == costs, name


@pytest.mark.parametrize("family", ["llama", "bloom", "olmo2"])
def test_short_and_long_responses_side_by_side(family):
    """In rows of two lengths, of which some are left and taken again; what follows finds the
    response in its cache.
    """
    lm = tiny_models.tiny_lm(tiny_models.FAMILIES[family])

    def work(count, most, engine):
        ids = list(range(4, 4 + count))
        limits = Limits(max_new_tokens=most, ignore_stop=True)
        cache = engine.new_cache(count)
        found = []
        for _ in range(2):
            row = Row(
                ids, [float(cache.length + i) for i in range(len(ids))], (Span(0, cache.length),)
            )
            read = engine.extend(cache, [row], stage="prompt", last_logits=True)
            found += engine.generate(cache, read.last_logits[0], float(cache.length), limits)
            ids = found[-1:]
        return found

    works = [
        partial(work, count, most)
        for count, most in ((3, 9), (150, 5), (200, 90), (7, 4), (240, 30), (5, 2))
    ]
    tasks = tiny_models.side_by_side(lm, works, 4)
    assert [task.result() for task in tasks] == [work(lm) for work in works]


def test_a_finder_of_another_shape_decodes_in_rows_of_its_own(
    monkeypatch,
):
    # for the request to the finder as for the answer
    monkeypatch.setattr(batched_cache, "MIN_ROW", 512)
    lm = tiny_models.tiny_lm(tiny_models.FAMILIES["bloom"])
    shape = tiny_models.FAMILIES["openelm"]
    lm.set_finder(tiny_models.tiny_lm(shape))
    method = making.make("free_extraction", volume=6)
    prompts = [tiny_models.tiny_prompt(seed=seed) for seed in (1, 2)]
    works = [partial(answered, method, prompt) for prompt in prompts]
    tasks = tiny_models.side_by_side(lm, works, 2)
    assert [task.result()[0] for task in tasks] == [work(lm)[0] for work in works]


# ---- one pass for all


def test_questions_side_by_side_share_stored_documents(lm):
    """Each document is read for the first of them; answers are those without a store."""
    method = making.make("superposition", positions="left_aligned", top_k=2)
    corpus = tiny_models.tiny_prompt([9, 14, 5, 11, 9, 30])
    chosen = [(0, 1, 2), (1, 3, 0), (5, 2, 4), (4, 0, 5)]
    prompts = [replace(corpus, documents=[corpus.documents[i] for i in c]) for c in chosen]
    works = [partial(answered, method, prompt) for prompt in prompts]
    expected = [work(lm)[0] for work in works]
    lm.documents = MemoryStore("x", 1 << 30)
    tasks = tiny_models.side_by_side(lm, works, 3)
    lm.documents = None
    found, calls, _ = zip(*(task.result() for task in tasks), strict=True)
    assert [(a.ids, a.kept) for a in found] == [(a.ids, a.kept) for a in expected]
    offline = [Call.from_json(c) for part in calls for c in part if c["stage"] == "documents"]
    assert sum(call.computed_tokens for call in offline) == sum(map(len, corpus.documents))


def test_work_joins_while_other_work_decodes(lm):
    with BatchScheduler(lm, 4) as batch:
        first = batch.submit(partial(read, [4, 5, 6], 12))
        for _ in range(5):
            batch.step()
        second = batch.submit(partial(read, [7, 8], 3))
        assert [task for _ in range(4) for task in batch.step()] == [second]
        assert not first.done
        while batch.unfinished:
            batch.step()
    assert first.result() == read([4, 5, 6], 12, lm)
    assert len(first.engine.token_at) == 12
    assert first.engine.token_at == sorted(first.engine.token_at)
    assert first.engine.token_at[3] < second.engine.token_at[0] < first.engine.token_at[-1]


# ---- what goes wrong


def test_one_failure_is_of_one_task(lm, monkeypatch):
    """A pass that fails is repeated for each; in it, in the work itself, and in what ends a
    response.
    """

    def failing(engine):
        engine.respond([3, 4], LIMITS)
        raise ZeroDivisionError

    def short_of_memory(engine):
        cache = engine.new_cache(4)
        cache.k[1] = torch.empty(0)
        engine.extend(cache, [Row([3, 4], [0.0, 1.0])], stage="prompt")

    def confused(engine):
        monkeypatch.setattr(engine, "tokenizer", None)
        engine.respond([3, 4], Limits(max_new_tokens=5, stop=("x",)))

    works = [partial(read, [5, 6], 8), failing, short_of_memory, confused]
    tasks = tiny_models.side_by_side(lm, works, 5)
    assert tasks[0].result() == read([5, 6], 8, lm)
    for task, error in zip(tasks[1:], (ZeroDivisionError, IndexError, AttributeError), strict=True):
        with pytest.raises(error):
            task.result()


def test_an_interrupt_ends_all_work(lm):
    ended = []

    def work(engine):
        try:
            engine.respond([3, 4], LIMITS)
        finally:
            ended.append(engine)

    def interrupted():
        with BatchScheduler(lm, 3) as batch:
            for _ in range(4):
                batch.submit(work)
            batch.step()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(ended) == 3


def test_memory_is_limited_by_the_control_groups_above_the_process(
    monkeypatch,
):
    job = Path("/sys/fs/cgroup/job")
    read = Path.read_text
    small = tiny_models.tiny_lm()
    files = {job / "task/memory.max": "max", job / "memory.max": "9", job / "memory.current": "8"}
    monkeypatch.setattr(
        Path, "read_text", lambda path, *given: files[path] if path in files else read(path, *given)
    )
    assert max_batch_size(small, 1) > 1
    files[Path("/proc/self/cgroup")] = "0::/job/task\n"
    assert max_batch_size(small, 1) == 1
