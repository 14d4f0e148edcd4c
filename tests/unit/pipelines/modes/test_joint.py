"""Joint attention equals one dense pass under a mask, plain decoding without neighbours, and itself
in steps.
"""

import torch

import tiny_models
from ragauge.engines.kernels import choice
from ragauge.engines.kernels.choice import Choice, Operation
from ragauge.pipelines.modes._joint import JointDecoder
from ragauge.pipelines.modes.base import Checkpoint
from retro_parts import tokens

IDS = tokens(200, 1)


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
        with lm.tracing() as trace:
            for neighbours, ids in (([first, second], IDS[:40]), ([second, third], IDS[40:50])):
                reader.read(ids[:1])
                if not keeps:
                    reader._states = {}
                reader.attach(neighbours)
                found = reader.read(ids[1:])
        logits.append(found)
        lengths.append([call.lengths for call in trace if call.stage == "neighbours"])
    assert lengths == [[(128, 100), (64,)], [(128, 100), (100, 64)]]
    torch.testing.assert_close(*logits, atol=1e-5, rtol=1e-5)
