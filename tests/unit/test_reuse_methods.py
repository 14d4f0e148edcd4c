"""Methods that reuse keys and values: anchors where one equals another, and dense passes by hand of what each reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny_models
from ragauge import methods
from ragauge.engines import LM, Limits
from ragauge.prompts import PREAMBLE, TASK, Prompt, PromptGraph, Segment, unit_steps
from tiny_models import dense, tiny_prompt

LIMITS = Limits(max_new_tokens=4, ignore_stop=True)
TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}
DEEP: dict[str, Any] = {"heads": (4, 4, 4), "kv_heads": (2, 2, 2), "ffn": (48, 48, 48)}
FAMILIES = {
    "llama": replace(tiny_models.LLAMA, **DEEP),
    "bloom": replace(tiny_models.ALIBI, **DEEP | {"kv_heads": (4, 4, 4)}),
    "mpt": replace(tiny_models.FAMILIES["mpt"], **DEEP),
    "openelm": replace(tiny_models.FAMILIES["openelm"], **DEEP | {"heads": (4, 6, 4), "kv_heads": (2, 3, 2)}),
}
ONE = tiny_prompt([12])
Variant = tuple[str, dict[str, Any]]


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def lm(request: pytest.FixtureRequest) -> LM:
    return tiny_models.tiny_lm(FAMILIES[request.param])


@pytest.fixture(scope="module", params=["llama", "bloom"])
def plain_lm(request: pytest.FixtureRequest) -> LM:
    """The families that `tiny_models.dense` reads by hand."""
    return tiny_models.tiny_lm(FAMILIES[request.param])


def variant(name: str, **options: Any) -> Variant:
    return name, options


def answered(lm: LM, asked: Variant, prompt: Prompt) -> tuple[list[int], Tensor]:
    """The response, and the logits (vocab,) of its first token."""
    method, seen = methods.make(asked[0], **asked[1]), []
    assert method.refusal(lm) is None
    whole = lm.generate

    def generate(cache: Any, logits: Tensor, position: float, limits: Limits) -> list[int]:
        seen.append(logits)
        return whole(cache, logits, position, limits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm, "generate", generate)
        answer = method.answer(lm, method.prepare(lm, prompt), prompt, LIMITS)
    return answer.ids, seen[0]


@pytest.mark.parametrize(
    ("one", "other", "prompt"),
    [
        (variant("parallel_windows", shared_prefix=True), variant("naive"), ONE),
        (variant("parallel_windows", shared_prefix=True, indent="right"), variant("naive"), ONE),
        (variant("parallel_windows"), variant("naive"), replace(ONE, preamble=ONE.preamble[:1])),
        (variant("parallel_windows", shared_prefix=True, windows=1), variant("naive"), tiny_prompt()),
        (
            variant("ape", temperature=1.0, scale=1.0),
            variant("parallel_windows", shared_prefix=True),
            tiny_prompt(),
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_anchors(lm: LM, one: Variant, other: Variant, prompt: Prompt) -> None:
    """Under these options a method is another one."""
    (mine, logits), (theirs, expected) = (answered(lm, asked, prompt) for asked in (one, other))
    torch.testing.assert_close(logits, expected, **TOLERANCE)
    assert mine == theirs


# ---- parallel windows


def windows(prompt: Prompt, indent: str, shared_prefix: bool) -> PromptGraph:
    """What parallel windows read, with every window's own copy of what stands before it."""
    longest, start = max(map(len, prompt.documents)), len(prompt.preamble)
    graph = PromptGraph([Segment(PREAMBLE, prompt.preamble, unit_steps(0, start))])
    for i, ids in enumerate(prompt.documents):
        before = prompt.preamble if shared_prefix else prompt.preamble[:1]
        graph.add(Segment(("begin", i), before, unit_steps(0, len(before))))
        at = start + (longest - len(ids) if indent == "right" else 0)
        graph.add(Segment(("document", i), ids, unit_steps(at, len(ids)), (("begin", i),)))
    ids = [*prompt.query, *prompt.task]
    graph.add(Segment(TASK, ids, unit_steps(start + longest, len(ids)), (PREAMBLE, *documents_of(prompt))))
    return graph


def documents_of(prompt: Prompt) -> tuple[tuple[str, int], ...]:
    return tuple(("document", i) for i in range(len(prompt.documents)))


def hide_begins(graph: PromptGraph) -> Tensor:
    """A bias that keeps the question from the windows' own beginnings: (query, key)."""
    names = [s.name for s in graph for _ in s.ids]
    hidden = [[q == TASK and k[0] == "begin" for k in names] for q in names]
    return torch.zeros(len(names), len(names)).masked_fill(torch.tensor(hidden), -torch.inf)


@pytest.mark.parametrize("shared_prefix", [False, True])
@pytest.mark.parametrize("indent", ["left", "right"])
def test_windows_are_read_alone_and_seen_together(plain_lm: LM, indent: str, shared_prefix: bool) -> None:
    prompt = tiny_prompt()
    graph = windows(prompt, indent, shared_prefix)
    expected, _ = dense(plain_lm, graph, hide_begins(graph))
    _, logits = answered(plain_lm, variant("parallel_windows", indent=indent, shared_prefix=shared_prefix), prompt)
    torch.testing.assert_close(logits, expected[-1], **TOLERANCE)


# ---- APE


def test_ape_merges_two_attentions(lm: LM) -> None:
    """A layer's output is that of the documents' and that of all other keys' attention, merged by their sums."""
    prompt, temperature, scale = tiny_prompt(), 0.7, 1.3
    method = methods.make("ape", temperature=temperature, scale=scale)
    state = method.prepare(lm, prompt)
    cache, seen = state.reading.cache, []
    start, stop = state.spans[0].start, state.spans[-1].stop
    outputs: list[Tensor] = []
    cache.watch = lambda layer, q, k, bias: seen.append((layer, q[0], k[0], bias))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ragauge.engines.decoder.tempered_attention", recorded(outputs))
        method.answer(lm, state, prompt, Limits(2, ignore_stop=True))
    for (layer, q, k, bias), mine in zip(seen, outputs, strict=True):
        v = cache.v[layer][:, : k.shape[1]]
        k, v = (x.repeat_interleave(q.shape[0] // x.shape[0], 0) for x in (k, v))
        s = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + bias[0]
        context = torch.zeros(k.shape[1], dtype=torch.bool)
        context[start:stop] = True
        inside, outside = s[..., context] / temperature, s[..., ~context]
        weights = torch.stack([scale * temperature * inside.logsumexp(-1), outside.logsumexp(-1)], -1).softmax(-1)
        merged = (
            weights[..., :1] * (inside.softmax(-1) @ v[:, context])
            + weights[..., 1:] * (outside.softmax(-1) @ v[:, ~context])
        )  # fmt: skip
        torch.testing.assert_close(mine[0], merged, **TOLERANCE)
    assert len(seen) == 2 * lm.shape.layers


def recorded(outputs: list[Tensor]) -> Callable[..., Tensor]:
    from ragauge.engines.decoder import tempered_attention

    def attend(*arguments: Any) -> Tensor:
        outputs.append(tempered_attention(*arguments))
        return outputs[-1]

    return attend
