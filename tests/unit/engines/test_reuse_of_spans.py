"""Keys and values moved, written in place, kept by head and read by ranges of layers: equal to
dense passes by hand.
"""

import random
from dataclasses import replace

import pytest
import torch

import tiny_models
from ragauge.engines.spans import Row, Span

FAMILIES = {
    "llama": replace(
        tiny_models.LLAMA, rope_scale=1.5, heads=(4, 4, 4), kv_heads=(2, 2, 2), ffn=(48, 48, 48)
    ),
    "bloom": tiny_models.ALIBI,
    "mpt": replace(tiny_models.FAMILIES["mpt"], kv_heads=(2, 2)),
    "openelm": tiny_models.FAMILIES["openelm"],
}
WITHIN = {"atol": 2e-5, "rtol": 1e-4}
DOCUMENTS = (9, 6, 7)
"""(layer, head) -> which keys each query sees: (query, key) bool."""


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def lm(request):
    return tiny_models.tiny_lm(FAMILIES[request.param])


def ids(count, seed=0):
    draw = random.Random(seed)
    return [draw.randrange(4, tiny_models.VOCAB) for _ in range(count)]


def line(start, count, step=1.0):
    return [start + step * j for j in range(count)]


def read(lm, cache, row, **options):
    return lm.extend(cache, [row], stage="prompt", **options)


def documents(lm, room=0):
    """Documents read without sight of each other, each from position 0, then moved to stand one
    after another.
    """
    cache = lm.new_cache(sum(DOCUMENTS) + room)
    spans = []
    at = 0
    for seed, count in enumerate(DOCUMENTS):
        spans += read(lm, cache, Row(ids(count, seed), line(0, count))).spans
        cache.move(spans[-1], line(at, count))
        at += count
    return cache, spans


# ---- the reference: every layer by hand, over stored keys and values


def by_hand(
    lm, x, positions, own, cache, seen,
    layers = None,
):  # fmt: skip
    """States (token, d_model) after the layers, each head's attention computed by itself; the
    tokens' keys and values are written to the slots `own` of a copy.
    """
    decoder = lm.decoder
    shape = lm.shape
    places = torch.tensor(positions, dtype=torch.float32)
    rotations = decoder.rotations(places)
    slots = torch.tensor(own)

    def attend(index, normed):
        qkv = decoder.weights.layers[index].qkv(normed)
        q, k, v = decoder.split(index, qkv, rotations[index])
        keys = cache.k[index].clone()
        values = cache.v[index].clone()
        keys[:, slots] = k.transpose(0, 1)
        values[:, slots] = v.transpose(0, 1)
        mixed = []
        for head in range(shape.heads[index]):
            shared = head // (shape.heads[index] // shape.kv_heads[index])
            mask = seen(index, shared)
            length = mask.shape[1]
            raw = q[:, head] @ keys[shared, :length].T / shape.head_dim**0.5
            if shape.position == "alibi":
                key_places = cache.positions[:length].clone()
                key_places[slots] = places.to(key_places.dtype)
                raw = raw + shape.alibi_slopes[head] * (key_places[None] - places[:, None]).float()
            mixed.append(raw.masked_fill(~mask, -torch.inf).softmax(-1) @ values[shared, :length])
        return torch.cat(mixed, -1)

    return decoder.run_layers(x, attend, layers=layers)


def embedded(lm, tokens):
    return lm.decoder.embed(torch.tensor(tokens))


def logits(lm, states):
    return lm.decoder.logits(lm.decoder.weights.norm(states))


# ---- moving


@pytest.mark.parametrize("start", [0.0, 5.0, 230.75])
def test_moved_keys_are_those_read_there(lm, start):
    moved = lm.new_cache(20)
    there = lm.new_cache(20)
    tokens = ids(9)
    read(lm, moved, Row(ids(3, 1), line(0, 3)))
    [span] = read(lm, moved, Row(tokens, line(40, 9, 0.5))).spans
    [placed] = read(lm, there, Row(tokens, line(start, 9, 0.5))).spans
    moved.move(span, line(start, 9, 0.5))
    for mine, theirs in zip(moved.k + moved.v, there.k + there.v, strict=True):
        torch.testing.assert_close(
            mine[:, span.start : span.stop], theirs[:, placed.start : placed.stop], **WITHIN
        )
    assert moved.positions[span.start : span.stop].tolist() == line(start, 9, 0.5)
    assert moved.positions[:3].tolist() == line(0, 3)


def test_a_move_rounds_once():
    lm = tiny_models.tiny_lm(FAMILIES["llama"])
    half = tiny_models.random_lm(lm.shape, dtype="bfloat16")
    cache = half.new_cache(8)
    read(half, cache, Row(ids(8), line(0, 8)))
    k = [x.float() for x in cache.k]
    cache.move(Span(0, 8), line(100, 8))
    for mine, stored in zip(cache.k, k, strict=True):
        exact = tiny_models.rotated(
            stored.transpose(0, 1), torch.full((8,), 100.0).double() / 1.5, 10000.0
        ).transpose(0, 1)
        torch.testing.assert_close(mine.float(), exact.bfloat16().float(), atol=0, rtol=2**-7)


def test_moved_slots_have_no_name(lm):
    cache = lm.new_cache(9)
    read(lm, cache, Row(ids(9), line(0, 9)))
    cache.name_span(Span(0, 9), "document")
    cache.move(Span(3, 5), line(50, 2))
    assert cache.contents([Span(0, 3), Span(5, 9)]) == [("document", 0, 3), ("document", 5, 9)]
    assert cache.contents([Span(2, 4)]) is None
    read(lm, cache, Row(ids(1), [8.0], (Span(0, 9),), [8]))
    assert cache.contents([Span(8, 9)]) is None


# ---- written in place


@pytest.mark.parametrize("chosen", [(), (0, 9, 10, 15), (3, 8, 11, 21), tuple(range(22))])
def test_tokens_read_again_in_place_and_new_ones_behind_them(lm, chosen):
    cache, spans = documents(lm, room=5)
    context = [t for seed, n in enumerate(DOCUMENTS) for t in ids(n, seed)]
    total = sum(DOCUMENTS)
    tokens = [context[i] for i in chosen] + ids(5, 7)
    slots = [*chosen, *range(total, total + 5)]
    places = [float(s) for s in slots]
    before = cache.select([Span(0, total)], 5)
    before.positions[total : total + 5] = torch.tensor(line(total, 5))
    mask = torch.arange(total + 5)[None] <= torch.tensor(slots)[:, None]
    expected = by_hand(lm, embedded(lm, tokens), places, slots, before, lambda layer, head: mask)
    found = read(
        lm,
        cache,
        Row(tokens, places, tuple(spans), slots),
        last_logits=True,
        logits_at=[range(len(slots))],
    )
    torch.testing.assert_close(found.logits[0], logits(lm, expected), **WITHIN)
    assert cache.length == total + 5
    rest = [i for i in range(total) if i not in chosen]
    for mine, theirs in zip(cache.k + cache.v, before.k + before.v, strict=True):
        assert torch.equal(mine[:, rest], theirs[:, rest])


def test_slots_that_are_neither_past_nor_free_are_refused(lm):
    cache, spans = documents(lm, room=5)
    for past, slots in ((spans[:1], [12]), (spans, [23]), (spans, [22, 22]), (spans, [0, 0])):
        with pytest.raises(ValueError, match="slots"):
            read(lm, cache, Row(ids(len(slots)), line(40, len(slots)), tuple(past), slots))
    with pytest.raises(ValueError, match="ascend"):
        read(lm, cache, Row(ids(2), [5.0, 3.0], tuple(spans), [5, 3]))
    for options in ({"attention": "all"}, {"tree": True}):
        with pytest.raises(ValueError, match="in place"):
            read(lm, cache, Row(ids(1), [5.0], tuple(spans), [5]), **options)


# ---- ranges of layers


def test_first_layer_fresh_then_chosen_tokens(lm):
    """CacheBlend's: all tokens in the first layer, some of them and the question in the others."""
    cache, spans = documents(lm, room=4)
    tokens = [t for seed, n in enumerate(DOCUMENTS) for t in ids(n, seed)] + ids(4, 7)
    stored = cache.select([Span(0, 22)], 4)
    stored.positions[22:26] = torch.tensor(line(22, 4))
    first = read(
        lm, cache, Row(tokens, line(0, 26), tuple(spans), range(26)), layers=(0, 1)
    ).states[0]
    chosen = [2, 9, 17, 22, 23, 24, 25]
    blended = read(
        lm, cache, Row([tokens[i] for i in chosen], [float(i) for i in chosen], (Span(0, 26),), chosen, first[chosen]),
        layers=(1, lm.shape.layers), last_logits=True,
    )  # fmt: skip
    causal = torch.ones(26, 26, dtype=torch.bool).tril()
    by_first = by_hand(
        lm, embedded(lm, tokens), line(0, 26), range(26), stored, lambda *_: causal, (0, 1)
    )
    torch.testing.assert_close(first, by_first, **WITHIN)
    expected = by_hand(
        lm, by_first[chosen], [float(i) for i in chosen], chosen, stored, lambda *_: causal[chosen],
        (1, lm.shape.layers),
    )  # fmt: skip
    torch.testing.assert_close(blended.last_logits[0], logits(lm, expected)[-1], **WITHIN)


# ---- slots by head


def choice(lm, ragged):
    draw = random.Random(1)
    return [
        [
            sorted(draw.sample(range(22), draw.randrange(3, 12) if ragged else 8))
            for _ in range(heads)
        ]
        for heads in lm.shape.kv_heads
    ]


@pytest.mark.parametrize("room", [1, 40])
@pytest.mark.parametrize("ragged", [False, True])
def test_heads_that_keep_other_tokens(lm, ragged, room):
    """The question over what each head keeps is a dense pass in which each head sees that of the
    context alone.
    """
    cache, spans = documents(lm, room=5)
    selected = choice(lm, ragged)
    small = lm.track(cache.select_by_head(selected, room))
    length = max(len(slots) for heads in selected for slots in heads)
    assert small.length == length
    question = ids(5, 7)
    places = line(22.5, 5)
    found = read(
        lm, small, Row(question, places, (Span(0, length),)), last_logits=True, attention="all"
    )
    tokens = torch.arange(27)

    def seen(layer, head):
        new = (tokens[None] >= 22) & (tokens[None] <= 22 + torch.arange(5)[:, None])
        return new | torch.isin(tokens, torch.tensor(selected[layer][head]))[None]

    whole = cache.select(spans, 5)
    expected = by_hand(lm, embedded(lm, question), places, range(22, 27), whole, seen)
    torch.testing.assert_close(found.last_logits[0], logits(lm, expected)[-1], **WITHIN)
    torch.testing.assert_close(found.attention[0].sum(), torch.tensor(1.0))
    again = lm.join(small, [Span(0, small.length)], 3)
    one = Row(ids(1, 9), [27.5], (Span(0, small.length),))
    tail = read(lm, again, one, last_logits=True).last_logits
    pair = lm.extend(
        small, [one, Row(ids(3, 4), line(30, 3), (Span(2, 9),))], stage="query", last_logits=True
    )
    torch.testing.assert_close(pair.last_logits[0], tail[0], **WITHIN)
    assert torch.isfinite(pair.last_logits).all()
