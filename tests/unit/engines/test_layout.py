"""Rows read as a tree over the cache in place: equal to gathered rows, logits at chosen tokens,
nothing copied.
"""

import pytest
import torch

import tiny_models
from ragauge.engines.shape_lm import ShapeLM
from ragauge.engines.spans import Row, Span

ROWS = [(3, 8.0, (0, 8)), (1, 11.5, (0, 8)), (5, 8.0, (0, 6))]  # tokens, first position, past


def ids(count, seed):
    return [(7 * i + 13 * seed) % 250 + 4 for i in range(count)]


def read(lm, tree, stale=False):
    """Rows after a document of 8 tokens; where `stale`, behind tokens of another path that none of
    them sees.
    """
    cache = lm.new_cache(64)
    [document] = lm.extend(cache, [Row(ids(8, 1), range(8))], stage="documents").spans
    if stale:
        lm.extend(cache, [Row(ids(4, 9), range(8, 12), (document,))], stage="query")
    rows = [
        Row(ids(count, seed), [first + j for j in range(count)], (Span(*past),))
        for seed, (count, first, past) in enumerate(ROWS)
    ]
    return lm.extend(
        cache,
        rows,
        stage="skip",
        last_logits=True,
        logp=True,
        logits_at=[(0, 2), (), (4,)],
        tree=tree,
    )


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("shape", tiny_models.SHAPES)
def test_a_tree_equals_gathered_rows(shape, stale):
    lm = tiny_models.tiny_lm(tiny_models.SHAPES[shape])
    tree = read(lm, True, stale)
    gathered = read(lm, False, stale)
    torch.testing.assert_close(tree.last_logits, gathered.last_logits)
    for a, b in zip(tree.logp + tree.logits, gathered.logp + gathered.logits, strict=True):
        torch.testing.assert_close(a, b)
    assert [len(part) for part in tree.logits] == [2, 0, 1]
    torch.testing.assert_close(
        torch.stack([tree.logits[0][1], tree.logits[2][0]]), tree.last_logits[[0, 2]]
    )


def test_a_trace_counts_the_logits_asked_for():
    lm = tiny_models.tiny_lm()
    for decoder in (lm, ShapeLM(lm.shape)):
        with decoder.tracing() as trace:
            read(decoder, True)
        assert trace[-1].lengths == (3, 1, 5)
        assert trace[-1].past == (8, 8, 6)
        assert trace[-1].logits == (2 + 1 + 2, 1, 4 + 1 + 1)
