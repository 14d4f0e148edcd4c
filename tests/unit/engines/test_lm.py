"""The engine's calls: what they return, how long rows and many rows are split up, when a response
ends.
"""

import dataclasses
from types import SimpleNamespace

import pytest
import torch

from lm_references import VOCAB, row, tokens
from ragauge.cost.shape import Shape
from ragauge.engines import decoder, passes
from ragauge.engines.loading import random_lm
from ragauge.engines.protocol import Limits
from ragauge.engines.steps import StepsByCapacity
from ragauge.errors import UserError

ROPE = Shape("llama", VOCAB, 32, (4, 4), (2, 1), 8, (48, 48), True, 300, "rope")
ALIBI = Shape(
    "mpt",
    VOCAB,
    32,
    (4,),
    (4,),
    8,
    (48,),
    False,
    300,
    "alibi",
    "layer",
    alibi_slopes=(0.5, 0.2, 0.1, 0.01),
)


class Words:
    """A tokenizer whose token i is the letter chr(32 + i)."""

    def decode(self, ids, skip_special_tokens):
        assert skip_special_tokens
        return "".join(chr(32 + i) for i in ids)


@pytest.fixture(params=[ROPE, ALIBI], ids=["rope", "alibi"])
def shape(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["", "fixed_steps"])
def lm(shape, request):
    """With steps of growing caches, and with those that CUDA graphs are made of."""
    lm = random_lm(shape)
    lm.steps = StepsByCapacity(lm.decoder) if request.param else None
    return lm


def respond(lm, limits):
    cache = lm.new_cache(12)
    read = lm.extend(cache, [row(tokens(12))], stage="prompt", last_logits=True)
    return lm.generate(cache, read.last_logits[0], 12, limits)


def test_a_response_times_its_tokens(lm):
    for limits in (Limits(6, stop=(), ignore_stop=True), Limits(6, stop=())):
        response = lm.respond(tokens(12), limits)
        assert response.ids == respond(lm, limits)
        assert len(response.token_s) == len(response.ids)
        assert list(response.token_s) == sorted(response.token_s)
        assert response.token_s[0] > 0


# ---- reading


def read_all(lm, observed):
    """A preamble, then rows of 1, 70, 23 and 41 tokens behind it, the second behind the first 5 of
    its tokens.
    """
    cache = lm.new_cache(64)
    [a] = lm.extend(cache, [row(tokens(9))], stage="preamble").spans
    pasts = [[a], [type(a)(0, 5)], [a], [a]]
    rows = [
        row(tokens(n, n), 9.5, past, 0.9) for n, past in zip((1, 70, 23, 41), pasts, strict=True)
    ]
    return lm.extend(
        cache, rows, stage="documents", last_logits=True, logp=True, attention=observed
    )


@pytest.mark.parametrize("observed", ["all", "last"])
@pytest.mark.parametrize("chunks", [(8, 8, 8, 8), (64, 16, 16, 10), (30, 300, 300, 1)])
def test_chunks_and_batches_change_nothing(chunks, observed, lm, monkeypatch):
    whole = read_all(lm, observed)
    names = ("BATCH_TOKENS", "ROPE_CHUNK", "MASK_CHUNK", "LOGIT_CHUNK")
    for name, value in zip(names, chunks, strict=True):
        monkeypatch.setattr(passes, name, value)
    parts = read_all(lm, observed)
    torch.testing.assert_close(parts.last_logits, whole.last_logits, atol=1e-5, rtol=0)
    for mine, theirs in zip(
        parts.logp + parts.attention, whole.logp + whole.attention, strict=True
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=0)
    assert [len(s) for s in parts.spans] == [1, 70, 23, 41]


# ---- bad input


def test_a_segment_without_tokens(lm):
    with pytest.raises(UserError, match="a segment of the prompt has no tokens"):
        lm.extend(lm.new_cache(4), [row([4]), row([])], stage="query")


@pytest.mark.parametrize(
    ("start", "fits"), [(295.0, True), (295.9, True), (296.0, False), (1e6, False)]
)
def test_the_context_ends_at_its_last_position(start, fits, lm):
    cache = lm.new_cache(4)
    if fits:
        lm.extend(cache, [row(tokens(5), start)], stage="query")
        return
    with pytest.raises(
        UserError, match=rf"reaches position {start + 4:.0f}; the model's context is 300 tokens"
    ):
        lm.extend(cache, [row([4]), row(tokens(5), start)], stage="query")
    assert cache.length == 0


# ---- generating


def test_blank_lines_before_a_text_end_it_only_where_they_are_not_skipped(lm, monkeypatch):
    texts = dict(enumerate(("\n", "\n\n ", "\n\n a", "\n\n a b", "\n\n a b\n"), 1))
    monkeypatch.setattr(lm, "tokenizer", SimpleNamespace(decode=lambda ids, **_: texts[len(ids)]))
    assert len(respond(lm, Limits(9))) == 1
    assert len(respond(lm, Limits(9, skip_blanks=True))) == 5


def test_an_end_of_text_is_left_out(shape):
    full = respond(random_lm(shape), Limits(20, ignore_stop=True))
    for at in (0, 4):
        ending = random_lm(dataclasses.replace(shape, eos=(0, full[at])))
        expected = full[: full.index(full[at])]
        assert respond(ending, Limits(20, stop=())) == expected
        assert respond(ending, Limits(len(expected) + 1, stop=())) == expected
        assert respond(ending, Limits(20, ignore_stop=True)) == full


def test_a_stop_string_is_found_across_tokens_and_kept(lm):
    full = respond(lm, Limits(20, ignore_stop=True))
    lm.tokenizer = Words()
    text = lm.tokenizer.decode(full, True)
    stop = text[3:5]
    end = text.index(stop) + 2
    assert respond(lm, Limits(20, stop=("never", stop))) == full[:end]
    assert respond(lm, Limits(20, stop=("never",))) == full
    assert respond(lm, Limits(20, stop=(stop,), ignore_stop=True)) == full


@torch.inference_mode()
@pytest.mark.parametrize("weights", ["full", "int8"])
@pytest.mark.parametrize("words", [1, 10, 96, 97])
def test_log_probabilities_by_parts_of_the_vocabulary(words, weights, monkeypatch):
    """Those of the whole softmax, wherever a word lies in its part."""
    monkeypatch.setattr(decoder, "VOCAB_CHUNK", words)
    lm = random_lm(ROPE, weights=weights)
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(VOCAB, ROPE.d_model, generator=draw)
    targets = torch.randperm(VOCAB, generator=draw)
    exact = lm.decoder.logits(hidden).double().log_softmax(-1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(
        lm.decoder.log_probabilities(hidden, targets).double(), exact, atol=1e-5, rtol=1e-5
    )
