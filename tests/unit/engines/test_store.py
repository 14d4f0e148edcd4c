"""Documents kept on disk: what is loaded is what computing it would have given, and nothing else
is.
"""

import logging
import os
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ragauge.cost.trace import Call
from ragauge.engines import store
from ragauge.engines.loading import random_lm
from ragauge.engines.spans import Row, Span
from ragauge.engines.store import DocumentStore, MemoryStore
from ragauge.methods.prompts import unit_steps
from tiny_models import SHAPES

ROWS = [Row([5, 6, 7], unit_steps(4, 3), (Span(0, 4),)), Row([8, 9], [4.0, 5.5], (Span(0, 4),))]


@pytest.fixture(params=sorted(SHAPES))
def lm(request, tmp_path):
    made = random_lm(SHAPES[request.param], threads=1)
    made.documents = DocumentStore(tmp_path / "documents", "this decoder", 10**9)
    return made


def read(lm, rows=ROWS):
    """A cache with an opening and rows behind it; what they gave; the trace."""
    cache = lm.new_cache(64)
    with lm.tracing() as trace:
        lm.extend(cache, [Row([1, 2, 3, 4], unit_steps(0, 4))], stage="preamble", offline=True)
        got = lm.extend(cache, rows, stage="documents", offline=True, logp=True)
    return cache, got, trace


def entries(lm):
    return sorted(lm.documents.folder.iterdir())


def same(one, other):
    """Caches and extensions equal to the last bit."""
    assert one[1].spans == other[1].spans
    assert all(torch.equal(x, y) for x, y in zip(one[1].logp, other[1].logp, strict=True))
    whole = (0, one[0].length)
    assert one[0].length == other[0].length
    same_slots((one[0], whole), (other[0], whole))


def same_slots(one, other, **within):
    """Spans of two caches hold the same keys, values and positions, to the last bit unless
    `within`.
    """
    (mine, a), (theirs, b) = one, other
    compare = {"atol": 0, "rtol": 0} | within
    for (name, x), (_, y) in zip(mine.tensors(), theirs.tensors(), strict=True):
        torch.testing.assert_close(x[:, slice(*a)], y[:, slice(*b)], **compare, msg=name)
    assert torch.equal(mine.positions[slice(*a)], theirs.positions[slice(*b)])


@pytest.mark.parametrize("kind", ["disk", "memory"])
@pytest.mark.parametrize("seed", range(4))
def test_segments_of_random_calls_are_those_computed_alone(lm, seed, kind):
    """Documents of one token to forty come back in changing company, some behind another document:
    keys, values and log-probabilities are those of a decoder without a store, but for the order of
    sums of other batch sizes; each is read once, and what is found is to the last bit the first.
    """
    draw = random.Random(seed)
    plain = random_lm(lm.shape, threads=1)
    if kind == "memory":
        lm.documents = MemoryStore("this decoder", 10**9)
    corpus = [[draw.randrange(260) for _ in range(draw.choice([1, 2, 7, 40]))] for _ in range(9)]
    starts = [draw.uniform(4, 9) for _ in corpus]
    first = {}
    tokens_read = 0
    for _ in range(8):
        numbers = draw.sample(range(9), 4)
        rows = [
            Row(corpus[i], unit_steps(starts[i], len(corpus[i])), (Span(0, 4),)) for i in numbers
        ]
        cache, got, trace = read(lm, rows)
        [call] = trace[1:]
        assert call.lengths == tuple(map(len, got.spans))
        tokens_read += call.computed_tokens
        for i, row, span, logp in zip(numbers, rows, got.spans, got.logp, strict=True):
            alone, expected, _ = read(plain, [row])
            same_slots((cache, span), (alone, expected.spans[0]), atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(logp, expected.logp[0], atol=1e-5, rtol=1e-5)
            earlier = first.setdefault(i, (cache, span, logp))
            same_slots((cache, span), earlier[:2])
            assert torch.equal(logp, earlier[2])
        behind = (Span(0, 4), got.spans[0])
        row = Row([3, 5], [60.0, 61.0], behind)
        a, b = (lm.extend(cache, [row], stage="x", offline=True).spans[0] for _ in range(2))
        same_slots((cache, a), (cache, b))
    assert tokens_read == sum(len(corpus[i]) for i in first)


def test_a_call_in_part_from_the_store_costs_what_it_costs_without(lm):
    """One call of all rows, whatever the store has; only its clock and `computed` tell."""
    read(lm)
    rows = [*ROWS, Row([9] * 5, unit_steps(4, 5), (Span(0, 4),))]
    found = read(lm, rows)[2]
    lm.documents = None
    plain = read(lm, rows)[2]
    clocks = {"seconds": None, "loading_s": None, "computed": ()}
    assert [replace(c, **clocks) for c in found] == [replace(c, **clocks) for c in plain]
    assert (found[1].computed, found[1].computed_tokens) == ((0, 0, 5), 5)
    assert Call.from_json(found[1].to_json()) == found[1]
    assert (plain[1].computed, plain[1].computed_tokens) == ((), 10)


def test_what_follows_an_unnamed_or_biased_past_is_not_kept(lm):
    cache = lm.new_cache(64)
    lm.extend(cache, [Row([1, 2, 3, 4], unit_steps(0, 4))], stage="prompt")
    lm.extend(cache, ROWS, stage="documents", offline=True)
    assert not entries(lm)
    cache, _, _ = read(lm)
    cache.add_bias(Span(0, 2), 1.0)
    assert cache.contents([Span(0, 4)]) is None


@pytest.mark.parametrize("shared", [False, True])
def test_an_entry_that_another_process_removes_while_it_is_read_counts_as_read(
    lm, tmp_path, monkeypatch, shared
):
    """On a shared file system a page of a mapped file that another node cut would be a SIGBUS."""
    computed = read(lm)
    read_entry = store.read_entry

    def removed_meanwhile(path, mapped):
        entry = read_entry(path, mapped)
        if not mapped:
            os.truncate(path, 0)
        path.unlink()
        return entry

    monkeypatch.setattr(store, "is_shared", lambda folder: shared)
    monkeypatch.setattr(store, "read_entry", removed_meanwhile)
    lm.documents = DocumentStore(tmp_path / "documents", "this decoder", 10**9)
    loaded = read(lm)
    same(computed, loaded)
    assert all(c.loading_s is not None for c in loaded[2])
    assert not entries(lm)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("damage", ["truncated", "garbage", "empty", "foreign", "flipped"])
def test_a_damaged_entry_is_made_anew(
    lm,
    damage,
    shared,
    caplog,
    monkeypatch,
):
    computed = read(lm)
    monkeypatch.setattr(store, "is_shared", lambda folder: shared)
    lm.documents = DocumentStore(entries(lm)[0].parent, "this decoder", 10**9)
    for path in entries(lm):
        whole = path.read_bytes()
        foreign = (entries(lm)[0] if path != entries(lm)[0] else entries(lm)[1]).read_bytes()
        broken = {
            "truncated": whole[:-7],
            "garbage": b"\xff" * 99,
            "empty": b"",
            "foreign": foreign[:20] + whole[20:],
        }
        broken["flipped"] = whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:]
        path.write_bytes(broken[damage])
    with caplog.at_level(logging.WARNING):
        again = read(lm)
    same(computed, again)
    assert (
        "not the bytes that were written" if damage == "flipped" else "computed again"
    ) in caplog.text
    loaded = read(lm)
    same(computed, loaded)
    assert all(c.loading_s is not None for c in loaded[2])


def test_entries_of_another_version_are_not_read(lm, monkeypatch):
    """Neither under their own names nor under those of today's."""
    computed = read(lm)
    with monkeypatch.context() as patch:
        patch.setattr(store, "VERSION", "1")
        assert all(c.loading_s is None for c in read(lm)[2])
        old = [path for path in entries(lm) if not store.damage(path)]
    assert len(entries(lm)) == 6
    assert len(old) == 3
    for path in old:
        assert "of another version" in store.damage(path)
        path.unlink()
    for path in entries(lm):
        content = path.read_bytes()
        body = content[store.CHECKSUM_BYTES :].replace(b'"version":"2"', b'"version":"1"')
        path.write_bytes(store._checksum(np.frombuffer(body, np.uint8)) + body)
    again = read(lm)
    assert all(c.loading_s is None for c in again[2])
    same(computed, again)


def test_the_least_recently_used_go_first(tmp_path):
    lm = random_lm(SHAPES["llama"], threads=1)

    def entry(token):
        row = Row([token] * 8, unit_steps(0, 8))
        cache = lm.new_cache(8)
        key = lm.documents.key(cache, row)
        lm.extend(cache, [row], stage="documents", offline=True)
        return lm.documents.folder / f"{key}.kv"

    lm.documents = DocumentStore(tmp_path, "d", 10**9)
    old = entry(1)
    older = entry(2)
    os.utime(older, ns=(0, 0))
    lm.documents = DocumentStore(tmp_path, "d", int(2.5 * old.stat().st_size))
    (tmp_path / "thesis").write_bytes(bytes(old.stat().st_size))  # it counts for nothing, and stays
    os.utime(tmp_path / "thesis", ns=(0, 0))
    (tmp_path / "folder").mkdir()
    new = entry(3)
    assert (tmp_path / "thesis").exists()
    assert (old.exists(), older.exists(), new.exists()) == (True, False, True)


def test_a_disk_that_is_full_costs_the_entry_not_the_answer(lm, monkeypatch, caplog):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    read(lm)
    assert not entries(lm)
    assert "not stored" in caplog.text
