"""Sliding windows: a token sees the latest positions alone, however it is read, and methods that
cannot say so.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch

import lm_references as tiny
import tiny_models
from ragauge import registry
from ragauge.cost.flop import attention_macs
from ragauge.cost.roofline import call_bytes, weight_bytes
from ragauge.cost.trace import Call
from ragauge.engines.kernels import compiled
from ragauge.engines.kernels.choice import Choice, Operation, using
from ragauge.engines.loading import random_lm
from ragauge.engines.protocol import Limits
from ragauge.engines.spans import Row, Span
from ragauge.engines.steps import StepsByCapacity
from ragauge.methods.base import making
from reuse_anchors import fresh

WINDOW = 7
STEPS = Choice("test", {"float32": {Operation.ONE_TOKEN: {"kernel": "compiled"}}})
SHAPE = replace(tiny_models.LLAMA, windows=(WINDOW, 0), local_theta=50.0, eos=(2,))
IDS = tiny.tokens(41)
LIMITS = Limits(max_new_tokens=6, ignore_stop=True)


@pytest.fixture(scope="module")
def lm():
    return tiny_models.tiny_lm(SHAPE)


@pytest.fixture(scope="module")
def expected(lm):
    """The logits of a plain prompt, which the equivalence tests compare with transformers'."""
    return tiny.all_logits(lm, IDS)


def read(lm, rows, cache=None, **options):
    """The logits of all tokens of the rows of a call."""
    at = [range(len(row.ids)) for row in rows]
    return list(
        lm.extend(
            cache or lm.new_cache(len(IDS)), rows, stage="prompt", logits_at=at, **options
        ).logits
    )


@pytest.mark.parametrize("tree", [False, True])
def test_paths_behind_one_preamble(tree, lm):
    cache = lm.new_cache(64)
    rows = [tiny.tokens(n, n) for n in (9, 3, 12)]
    [start] = lm.extend(cache, [tiny.row(IDS[:10])], stage="preamble").spans
    together = read(lm, [tiny.row(ids, 10, [start]) for ids in rows], cache, tree=tree)
    for ids, logits in zip(rows, together, strict=True):
        torch.testing.assert_close(
            logits, tiny.all_logits(lm, IDS[:10] + ids)[10:], atol=1e-5, rtol=0
        )


def test_rows_in_place(lm, expected):
    """Tokens that are read again over what was there, and the next ones, from behind."""
    cache = lm.new_cache(64)
    lm.extend(cache, [tiny.row([*IDS[:12], 5, 6, 7, *IDS[15:30]])], stage="prompt")
    again = [*range(12, 30), *range(30, 41)]
    row = Row([IDS[i] for i in again], [float(i) for i in again], (Span(0, 30),), slots=again)
    [logits] = read(lm, [row], cache)
    torch.testing.assert_close(logits, expected[12:], atol=1e-5, rtol=0)


def respond(lm, ids):
    return lm.respond(ids, LIMITS).ids


def test_responses_by_steps_of_one_shape_and_side_by_side(lm):
    prompts = [tiny.tokens(n, n) for n in (3, 17, 30, 6)]
    alone = [respond(lm, ids) for ids in prompts]
    fixed = tiny_models.tiny_lm(SHAPE)
    fixed.steps = StepsByCapacity(fixed.decoder)
    assert [respond(fixed, ids) for ids in prompts] == alone
    tasks = tiny_models.side_by_side(lm, [partial(respond, ids=ids) for ids in prompts], 4)
    assert [task.result() for task in tasks] == alone


@pytest.mark.parametrize("how", [{"weights": "int8"}, {"dtype": "bfloat16"}], ids=str)
def test_other_storage_is_as_close_as_without_a_window(how):
    """The same weights in all of them; a chunk's keys are read from the cache."""
    errors = []
    for shape in (SHAPE, replace(SHAPE, windows=())):
        reference = tiny.all_logits(random_lm(shape), IDS)
        found = tiny.all_logits(random_lm(shape, **how), IDS, chunk=8).float()
        errors.append(float((found - reference).abs().max() / reference.std()))
    assert errors[0] < 2 * errors[1] < 0.6


@pytest.mark.skipif(compiled.library() is None, reason="no C compiler")
def test_one_compiled_call_reads_what_no_window_hides(monkeypatch):
    """As long as a prompt is shorter than the window; afterwards operators do."""
    lm = random_lm(replace(SHAPE, windows=(WINDOW, WINDOW), local_theta=None, head_dim=16))
    fused = lm.decoder._fused
    lengths = []
    own = fused.read
    monkeypatch.setattr(fused, "read", lambda x, *rest: lengths.append(len(x)) or own(x, *rest))
    expected = tiny.all_logits(lm, IDS[:12])
    with using(STEPS):
        logits = tiny.all_logits(lm, IDS[:12], chunk=1)
    assert lengths == [1] * WINDOW
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


# ---- what does not run on a window

ANY = {
    "naive",
    "closed_book",
    "oracle",
    "full_article",
    "bm25",
    "tfidf",
    "dense",
    "chunks",
    "top",
    "shortest",
    "sentence_pruning",
}
CACHED = {
    "prefix_tree",
    "context_pilot",
    "parallel_experts",
    "long_llmlingua",
    "cfic",
    "free_extraction",
}


@pytest.mark.parametrize("name", registry.names("method"))
def test_a_method_runs_on_a_window_or_says_in_one_line_that_it_does_not(name, lm):
    method = making.make(name, **(tiny_models.LINKS if name == "kv_link" else {}))
    reason = method.refusal(lm)
    if name in ANY | CACHED:
        assert reason is None
    else:
        assert reason == (
            "requires an engine with layers that attend to the whole context; this model has a sliding window of "
            f"{WINDOW} tokens (with max_context {WINDOW} it has none)"
        )
        assert method.refusal(tiny_models.tiny_lm(replace(SHAPE, max_context=WINDOW))) is None


@pytest.mark.parametrize("name", ["prefix_tree", "parallel_experts", "bm25"])
def test_a_method_that_caches_answers_as_from_plain_prompts(name, lm):
    """Of one document each, whose experts are that prompt."""
    prompt = tiny_models.tiny_prompt([20])
    method = making.make(
        name, **({"beta": "none", "scores": "equal"} if name == "parallel_experts" else {})
    )
    answer = fresh(lm, method, prompt, LIMITS)
    assert answer.ids == fresh(lm, making.make("naive"), prompt, LIMITS).ids


# ---- costs


def by_hand(shape, new, past, steps):
    """Multiply-accumulates of attention, and keys and values that are read or written, of one row,
    one by one.
    """
    macs = tokens = 0
    for layer in range(shape.layers):
        window = shape.windows[layer] or 10**9
        for step in range(steps):
            before = past + step * new
            macs += new * min(before + new, window) * 2 * shape.heads[layer] * shape.head_dim
            seen = {
                key
                for i in range(new)
                for key in range(max(0, before + i - window + 1), before + i + 1)
            }
            tokens += (len(seen) + new) * shape.kv_heads[layer]
    return macs, tokens * 2 * shape.head_dim


@pytest.mark.parametrize(
    ("new", "past", "steps"), [(5, 0, 1), (30, 0, 1), (4, 20, 1), (1, 3, 9), (1, 40, 3), (3, 2, 4)]
)
@pytest.mark.parametrize("windows", [(7, 0), (7, 7), (9, 4), ()])
def test_costs_by_hand(windows, new, past, steps):
    shape = replace(SHAPE, windows=windows)
    macs, numbers = by_hand(replace(shape, windows=windows or (0, 0)), new, past, steps)
    call = Call("prompt", (new,), (past,), steps=steps)
    assert attention_macs(shape, new, past, steps) == macs
    assert sum(attention_macs(shape, new, past, steps, (i, i + 1)) for i in range(2)) == macs
    assert (
        call_bytes(call, shape, "float32") - steps * weight_bytes(call, shape, "float32")
        == 4 * numbers
    )
