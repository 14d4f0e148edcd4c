"""Methods of reuse that are another method under some options, and what a method answers."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from ragauge.engines.protocol import Limits
from ragauge.methods.base import making
from tables import rows

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


def named(name, options):
    return parts(**options) if name == "parts" else (name, options)


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
WHOLE = "whole"  # of a prompt: its preamble, its documents
ANCHORS = [
    *[
        (named(mine, options), named(theirs, others), part)
        for mine, options, theirs, others, part in rows("""
parallel_windows, {shared_prefix: true}, naive, {}, one document
parallel_windows, {shared_prefix: true, indent: right}, naive, {}, one document
parallel_windows, {}, naive, {}, first token
parallel_windows, {shared_prefix: true, windows: 1}, naive, {}, whole
ape, {temperature: 1.0, scale: 1.0}, parallel_windows, {shared_prefix: true}, whole
parallel_experts, {beta: none, gamma: 0.0}, naive, {}, one document
epic, {tokens: 1000000}, naive, {}, whole
cache_blend, {recompute: 1.0}, naive, {}, whole
cache_blend, {recompute: 1.0, criterion: key}, naive, {}, whole
prophet_kv, {recompute: 1.0}, naive, {}, whole
prophet_kv, {recompute: 0.0}, naive_reuse, {}, whole
cache_clip, {recompute: 1.0}, naive, {}, whole
cache_clip, {recompute: 0.0}, naive, {}, one document
prefix_tree, {}, naive, {}, whole
context_pilot, {}, naive, {}, whole
parts, {prefix: true}, epic, {tokens: 0}, whole
parts, {}, naive_reuse, {}, whole
parts, {recompute: 0.2}, cache_blend, {recompute: 0.2, criterion: key}, whole
parts, {recompute: 1.0, criterion: value}, naive, {}, whole
parts, {temperature: 0.8, scale: 0.7, prefix: true}, ape, {temperature: 0.8, scale: 0.7}, first token
superposition, {factor: 1}, naive, {}, whole
""")
    ],
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
