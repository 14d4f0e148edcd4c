"""Logits that are not finite end a response by name, wherever they begin and whoever computes them."""

from dataclasses import replace

import pytest
import torch

from lm_references import row, tokens
from ragauge.engines.loading import random_lm
from ragauge.engines.passes import NotFiniteError, check_finite, likeliest
from ragauge.engines.protocol import Limits
from ragauge.engines.steps import StepsByCapacity
from tiny_models import LLAMA, side_by_side

LIMITS = Limits(6, ignore_stop=True)


def damage(lm, value=float("nan")):
    lm.decoder.weights.embedding[:] = value


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("stepped", [False, True])
def test_they_end_a_response_that_began_well(stepped, value):
    lm = random_lm(LLAMA)
    cache = lm.new_cache(20)
    read = lm.extend(cache, [row(tokens(5))], stage="prompt", last_logits=True)
    lm.steps = StepsByCapacity(lm.decoder) if stepped else None
    damage(lm, value)
    with pytest.raises(NotFiniteError):
        lm.generate(cache, read.last_logits[0], 5, LIMITS)


@pytest.mark.parametrize("size", [2, 5])
def test_side_by_side_each_fails_by_itself(size):
    """The embedding of one token alone is damaged: work that reads it fails, the rest goes on."""
    lm = random_lm(replace(LLAMA, tied=False))
    prompts = [tokens(6 + n, n) for n in range(size)]
    expected = [lm.respond(prompt, LIMITS).ids for prompt in prompts]
    used = {token for ids in (*prompts[1:], *expected) for token in ids}
    absent = min({*range(LLAMA.vocab)} - used)
    prompts[0][2] = absent
    lm.decoder.weights.embedding[absent] = float("nan")
    works = [lambda engine, ids=ids: engine.respond(ids, LIMITS).ids for ids in prompts]
    tasks = side_by_side(lm, works, size)
    with pytest.raises(NotFiniteError):
        tasks[0].result()
    assert [task.result() for task in tasks[1:]] == expected[1:]


def test_the_likeliest_token_is_argmax_or_an_error():
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        logits = torch.randn(50, generator=generator).round()  # with ties
        assert likeliest(logits) == int(logits.argmax())
        check_finite(logits[:0], logits)
        logits[int(torch.randint(50, (1,), generator=generator))] = float("nan")
        for check in (likeliest, check_finite):
            with pytest.raises(NotFiniteError):
                check(logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_first_of_equal_logits_is_the_likeliest(dtype):
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randint(0, 30, (5000 + seed,), generator=generator).to(dtype)
        assert likeliest(logits) == logits.tolist().index(29) == int(logits.argmax())
