"""Steps of one shape give the tokens, keys and values of those over a growing cache, whatever
theirs held before.
"""

import pytest
import torch

from lm_references import row, tokens
from ragauge.engines import steps
from ragauge.engines.loading import random_lm
from ragauge.engines.protocol import Limits
from ragauge.engines.steps import FixedSteps, StepsByCapacity
from ragauge.measure.protocols import latency
from tiny_models import ALIBI, LLAMA

SHAPES = pytest.mark.parametrize("shape", [LLAMA, ALIBI], ids=["rope", "alibi"])
LIMITS = Limits(9, ignore_stop=True)


def read(lm, length, seed=0):
    """A prompt in a cache, and the logits of what follows."""
    cache = lm.new_cache(length)
    prompt = [row(tokens(length, seed))]
    logits = lm.extend(cache, prompt, stage="prompt", last_logits=True).last_logits
    return cache, logits[0]


def respond(lm, length, seed=0):
    cache, logits = read(lm, length, seed)
    return lm.generate(cache, logits, length, LIMITS), cache


@pytest.fixture
def made(monkeypatch):
    """The steps of a capacity, as they are made."""
    found = []

    class Noted(FixedSteps):
        def __init__(self, decoder, capacity):
            super().__init__(decoder, capacity)
            found.append(self)

    monkeypatch.setattr(steps, "FixedSteps", Noted)
    return found


def with_steps(lm):
    lm.steps = made = StepsByCapacity(lm.decoder)
    return made


@SHAPES
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_was_read_is_in_the_cache_as_it_would_have_been(shape, dtype):
    lm = random_lm(shape, dtype=dtype)
    ids, plain = respond(lm, 30)
    with_steps(lm)
    again, fixed = respond(lm, 30)
    if dtype == "float32":
        assert again == ids
    assert fixed.length == plain.length == 30 + LIMITS.max_new_tokens - 1
    assert fixed.positions[: fixed.length].tolist() == plain.positions[: plain.length].tolist()
    same = next((i for i, (a, b) in enumerate(zip(again, ids, strict=True)) if a != b), len(ids))
    assert same, "the first token is of the prompt alone"
    read_alike = min(30 + same, fixed.length)
    close = {"float32": 1e-5, "bfloat16": 0.05}[dtype]
    for a, b in zip(fixed.k + fixed.v, plain.k + plain.v, strict=True):
        torch.testing.assert_close(a[:, :read_alike], b[:, :read_alike], atol=close, rtol=0)


def test_few_capacities_are_kept_and_those_used_last(monkeypatch, made):
    monkeypatch.setattr(steps, "CAPACITY_STEP", 16)
    monkeypatch.setattr(steps, "MAX_GRAPHS", 2)
    lm = random_lm(LLAMA)
    expected = {length: respond(lm, length)[0] for length in (10, 30, 50)}
    steps_of = with_steps(lm)
    for length in (10, 30, 10, 50, 10, 30):  # and nine new tokens: 32, 48, 32, 64, 32 and 48 slots
        assert respond(lm, length)[0] == expected[length]
    assert [one.cache.capacity for one in made] == [32, 48, 64, 48]
    assert steps_of.bytes > 0
    assert lm.cache_bytes >= steps_of.bytes


def test_a_device_that_cannot_capture_them_decodes_without_and_says_so_once(monkeypatch, caplog):
    def fail(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    lm = random_lm(LLAMA)
    plain = respond(lm, 30)[0]
    made = with_steps(lm)
    monkeypatch.setattr(steps, "FixedSteps", fail)
    monkeypatch.setattr(steps, "engines_state", state := {})
    assert latency.cuda_graphs(lm) == "on"
    assert [respond(lm, 30)[0], respond(lm, 30)[0]] == [plain, plain]
    assert [record.getMessage() for record in caplog.records] == [
        "decoding continues without CUDA graphs, more slowly: CUDA out of memory"
    ]
    assert made.fallback == "CUDA out of memory"
    # in the provenance of what is measured from now on
    assert state == {"cuda_graphs": "off: CUDA out of memory"}
    assert latency.cuda_graphs(lm) == "off: CUDA out of memory"
    assert latency.cuda_graphs(random_lm(LLAMA)) is None


@SHAPES
def test_a_shorter_prompt_after_a_longer_one_sees_nothing_of_it(shape, made):
    lm = random_lm(shape)
    alone = respond(lm, 12, seed=5)[0]
    with_steps(lm)
    respond(lm, 200)
    with torch.inference_mode():
        for values in made[0].cache.k + made[0].cache.v:
            values[:, 100:] = 1e4  # would be seen
    assert respond(lm, 12, seed=5)[0] == alone
    assert len(made) == 1
