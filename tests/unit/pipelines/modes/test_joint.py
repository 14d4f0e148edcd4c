"""Joint attention equals one dense pass under a mask, plain decoding without neighbours, and itself
in steps.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tiny_models
from ragauge.engines.kernels import choice
from ragauge.engines.kernels.choice import Choice, Operation
from ragauge.pipelines.modes._joint import JointDecoder
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.reader import StateCache
from ragauge.pipelines.windows import Windows
from retro_parts import logits_of, tokens

IDS = tokens(200, 1)
DOCUMENTS = [tokens(300, 2), tokens(70, 3), IDS[20:140], tokens(400, 4), tokens(5, 5)]


def dense_logits(lm, ids, found, windows):
    """Logits of the whole sequence in one pass over it and all windows' neighbours, hidden from
    other windows. With ALiBi each neighbour stands behind a copy of the sequence's first token, so
    that no key comes after its query.
    """
    alibi = lm.shape.position == "alibi"
    graph = [SimpleNamespace(ids=list(ids), positions=[float(p) for p in range(len(ids))])]
    owner = [-1] * len(ids)  # of each token: the window that it is a neighbour of
    part = [0] * len(ids)
    for window, texts in enumerate(found):
        for text in texts:
            read = [*ids[:1], *text] if alibi else text
            graph.append(
                SimpleNamespace(ids=read, positions=[float(p) for p in range(-len(read), 0)])
            )
            owner += [-3] * alibi + [window] * len(text)
            part += [len(graph)] * len(read)
    places = np.arange(len(owner))
    own = np.array(owner)
    group = np.array(part)
    causal = (group[:, None] == group) & (places[None] <= places[:, None])
    mine = np.array([windows.window_at(p) if p < len(ids) else -2 for p in places])
    causal |= (own[None] >= 0) & (own[None] == mine[:, None])
    causal[len(ids) :, 0] = not alibi
    bias = torch.zeros(len(owner), len(owner))
    return tiny_models.dense(lm, graph, bias, causal)[0][: len(ids)]  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", sorted(tiny_models.SHAPES))
def test_windows_equal_one_dense_pass(shape):
    lm = tiny_models.tiny_lm(tiny_models.SHAPES[shape])
    windows = Windows(32)
    logits, found = logits_of(JointDecoder(lm), IDS, windows, DOCUMENTS)
    torch.testing.assert_close(logits, dense_logits(lm, IDS, found, windows), atol=2e-4, rtol=1e-4)


def test_a_pipelines_decoder_does_not_switch_onednn_off(monkeypatch):
    """Else a product of neighbours that another thread reads meanwhile would be rounded in another
    way.
    """
    timed = {"kernel": "native", "seconds": {"plain": 4.0, "native": 1.0, "widened": 2.0}}

    def load(*_, **__):
        lm = tiny_models.tiny_lm()
        choice.use(Choice("test", {"bfloat16": {Operation.ONE_ROW: timed}}))
        return lm

    monkeypatch.setattr("ragauge.engines.loading.load_lm", load)
    monkeypatch.setattr(choice, "_active", choice.DEFAULT)
    monkeypatch.setattr(choice, "engines_state", {})
    Checkpoint("tiny").decoder()
    assert choice.active().named() == {"bfloat16": {Operation.ONE_ROW: "widened"}}


def test_a_neighbour_that_was_read_before_is_not_read_again():
    lm = tiny_models.tiny_lm()
    first, second, third = [tokens(length, seed) for length, seed in ((128, 5), (100, 6), (64, 7))]
    logits = []
    lengths = []
    for keeps in (True, False):
        reader = JointDecoder(lm).open(80, 256)
        with lm.tracing() as trace, pytest.MonkeyPatch.context() as patch:
            if not keeps:
                patch.setattr(StateCache, "get", lambda _, keys, make: make(range(len(keys))))
            for neighbours, ids in (([first, second], IDS[:40]), ([second, third], IDS[40:50])):
                reader.read(ids[:1])
                reader.attach(neighbours)
                found = reader.read(ids[1:])
        logits.append(found)
        lengths.append([call.lengths for call in trace if call.stage == "neighbours"])
    assert lengths == [[(128, 100), (64,)], [(128, 100), (100, 64)]]
    torch.testing.assert_close(*logits, atol=1e-5, rtol=1e-5)
