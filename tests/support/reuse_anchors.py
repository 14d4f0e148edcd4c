"""Methods of reuse that are another method under some options, and what a method answers."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from ragauge.engines.protocol import Limits
from ragauge.methods.base import making

LIMITS = Limits(max_new_tokens=4, ignore_stop=True)
Variant = tuple[str, dict[str, Any]]


def variant(name, **options):
    return name, options


def compressed(inner, **options):
    return "compressed", {"inner": inner, **options}


def parts(**options):
    """Prefix-Scale-Recompute with these parts alone."""
    return "prefix_scale_recompute", {
        "prefix": False,
        "temperature": 1.0,
        "scale": 1.0,
        "recompute": 0.0,
        **options,
    }


INNER = ("naive", "naive_reuse", "superposition", "full_article")
AWARE = ("snapkv", "finch")
UNAWARE = ("kvzip", "attention_matching", "expected_attention", "knorm", "keydiff")


close = partial(torch.testing.assert_close, atol=1e-4, rtol=1e-4)


def fresh(lm, method, prompt, limits=LIMITS):
    """The answer from a state prepared for it alone."""
    return method.answer(lm, method.prepare(lm, prompt), prompt, limits)


def answered(lm, asked, prompt, limits=LIMITS):
    """The response, and the logits (vocab,) of its first token; None where the method chooses
    tokens by others.
    """
    method = making.make(asked[0], **asked[1])
    seen = []
    assert method.refusal(lm) is None
    whole = lm.generate

    def generate(cache, logits, position, limits):
        seen.append(logits)
        return whole(cache, logits, position, limits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm, "generate", generate)
        answer = fresh(lm, method, prompt, limits)
    return answer.ids, seen[0] if seen else None


FIRST_TOKEN = "first token"
ONE_DOCUMENT = "one document"
WHOLE = "whole"  # of a prompt: its preamble, its documents
ANCHORS = [
    (variant("parallel_windows", shared_prefix=True), variant("naive"), ONE_DOCUMENT),
    (
        variant("parallel_windows", shared_prefix=True, indent="right"),
        variant("naive"),
        ONE_DOCUMENT,
    ),
    (variant("parallel_windows"), variant("naive"), FIRST_TOKEN),
    (variant("parallel_windows", shared_prefix=True, windows=1), variant("naive"), WHOLE),
    (
        variant("ape", temperature=1.0, scale=1.0),
        variant("parallel_windows", shared_prefix=True),
        WHOLE,
    ),
    (variant("parallel_experts", beta="none", gamma=0.0), variant("naive"), ONE_DOCUMENT),
    (variant("epic", tokens=10**6), variant("naive"), WHOLE),
    (variant("cache_blend", recompute=1.0), variant("naive"), WHOLE),
    (variant("cache_blend", recompute=1.0, criterion="key"), variant("naive"), WHOLE),
    (variant("prophet_kv", recompute=1.0), variant("naive"), WHOLE),
    (variant("prophet_kv", recompute=0.0), variant("naive_reuse"), WHOLE),
    (variant("cache_clip", recompute=1.0), variant("naive"), WHOLE),
    (variant("cache_clip", recompute=0.0), variant("naive"), ONE_DOCUMENT),
    (variant("prefix_tree"), variant("naive"), WHOLE),
    (variant("context_pilot"), variant("naive"), WHOLE),
    (parts(prefix=True), variant("epic", tokens=0), WHOLE),
    (parts(), variant("naive_reuse"), WHOLE),
    (parts(recompute=0.2), variant("cache_blend", recompute=0.2, criterion="key"), WHOLE),
    (parts(recompute=1.0, criterion="value"), variant("naive"), WHOLE),
    (
        parts(temperature=0.8, scale=0.7, prefix=True),
        variant("ape", temperature=0.8, scale=0.7),
        FIRST_TOKEN,
    ),
    (variant("superposition", factor=1), variant("naive"), WHOLE),
    *[(compressed(inner, ratio=0.0), variant(inner), WHOLE) for inner in INNER],
    *[
        (compressed(inner, ratio=0.0, compressor=name), variant(inner), WHOLE)
        for inner in INNER
        for name in ("kvzip", "attention_matching")
    ],
]


def shortened(prompt, part):
    """The prompt that an anchor is about."""
    if part == WHOLE:
        return prompt
    one = {name: getattr(prompt, name)[:1] for name in ("documents", "document_texts", "sources")}
    prompt = replace(prompt, gold=(), **one)
    return replace(prompt, preamble=prompt.preamble[:1]) if part == FIRST_TOKEN else prompt
