"""The anchors of the methods of reuse on SmolLM2 itself, in float32: under some options a method is another one."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from ragauge import assets
from ragauge.engines import LM, Limits, load_lm
from ragauge.prompts import Prompt, build_prompt
from reuse_anchors import ANCHORS, Variant, answered, shortened

pytestmark = pytest.mark.slow
MODEL = "smollm2-135m-instruct"
CLOSE = {"atol": 1e-3, "rtol": 1e-4}  # in float32, of logits of tens
TITLES = ("Halden Bridge", "Verrin Lighthouse", "Osk Observatory")


@pytest.fixture(scope="module")
def lm() -> LM:
    if not assets.describe(MODEL)["fetched"]:
        pytest.skip(f"{MODEL} is not in the asset store; ragauge fetch {MODEL}")
    return load_lm(MODEL, dtype="float32")


@pytest.fixture(scope="module")
def prompt(lm: LM) -> Prompt:
    """Three documents of about 60 tokens."""
    texts = [
        f"{title} was finished in {1871 + 14 * i} after {i + 5} years of work and cost {i + 2} million crowns. Its "
        f"architect was Ines Maro-{i}, who had built two others in the valley. A fire damaged it in {1901 + i}; since "
        f"its repair it is open to visitors from May to September."
        for i, title in enumerate(TITLES)
    ]
    return build_prompt(
        "when was the Verrin Lighthouse finished",
        list(zip(TITLES, texts, strict=True)),
        instruction="Answer the question by the documents.",
        template="chat",
        tokenizer=lm.tokenizer,
        gold=(1,),
    )


@pytest.fixture(scope="module")
def answers(lm: LM, prompt: Prompt) -> Any:
    """What a variant answers to a part of the prompt; each is asked once."""

    @cache
    def of(name: str, options: str, part: str) -> tuple[list[int], Tensor | None]:
        return answered(lm, (name, json.loads(options)), shortened(prompt, part), Limits(8, ignore_stop=True))

    return lambda asked, part: of(asked[0], json.dumps(asked[1]), part)


@pytest.mark.parametrize(("one", "other", "part"), ANCHORS, ids=lambda value: str(value)[:40])
def test_anchors(answers: Any, one: Variant, other: Variant, part: str) -> None:
    (mine, logits), (theirs, expected) = answers(one, part), answers(other, part)
    assert mine == theirs
    if logits is not None and expected is not None:
        torch.testing.assert_close(logits, expected, **CLOSE)
