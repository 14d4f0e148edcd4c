"""The closed forms count exactly what fvcore and torch's counter count, and their parameters are transformers'.

The counters see more and less than the matrix products of the model: fvcore counts norms and misses `baddbmm` (BLOOM's
query·key product), both count the outer product that builds rotary angles. Handles and module totals put that right;
eager attention is needed because both miss the fused kernel on CPU.
"""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from fvcore.nn import FlopCountAnalysis
from torch.utils.flop_counter import FlopCounterMode
from transformers import BloomConfig, BloomForCausalLM, LlamaConfig, LlamaForCausalLM, MptConfig, MptForCausalLM

from ragauge.cost.flop import call_macs, flop, parameters, trace_macs
from ragauge.cost.shape import Shape
from ragauge.cost.shapes import alibi_slopes
from ragauge.cost.tokens import TokenCounts, random_segments
from ragauge.cost.trace import Call
from ragauge.engines import Limits, ShapeLM
from ragauge.measure.counting import fvcore_macs
from ragauge.methods import make
from ragauge.prompts import Prompt


def _llama():
    config = LlamaConfig(
        vocab_size=97, hidden_size=48, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2, head_dim=8,
        intermediate_size=80, tie_word_embeddings=False, attn_implementation="eager",
    )  # fmt: skip
    shape = Shape("llama", 97, 48, (6,) * 3, (2,) * 3, 8, (80,) * 3, True, 2048, "rope", tied=False)
    return LlamaForCausalLM(config), shape


def _bloom():
    config = BloomConfig(vocab_size=97, hidden_size=32, n_layer=2, n_head=4, attn_implementation="eager")
    shape = Shape(
        "bloom", 97, 32, (4,) * 2, (4,) * 2, 8, (128,) * 2, False, 2048, "alibi",
        norm="layer", bias=True, norm_bias=True, embedding_norm=True,
    )  # fmt: skip
    return BloomForCausalLM(config), shape


def _mpt():
    config = MptConfig(
        vocab_size=97, d_model=32, n_layers=2, n_heads=4, expansion_ratio=4, max_seq_len=64,
        attn_implementation="eager",
    )  # fmt: skip
    shape = Shape("mpt", 97, 32, (4,) * 2, (4,) * 2, 8, (128,) * 2, False, 64, "alibi", norm="layer")
    return MptForCausalLM(config), shape


FAMILIES = {"llama": _llama, "bloom": _bloom, "mpt": _mpt}


class _Step(torch.nn.Module):
    """A forward pass of `model` behind `past` cached tokens, which keeps `keep` positions' logits (0: all)."""

    def __init__(self, model, past: int, keep: int) -> None:
        super().__init__()
        self.model, self.past, self.keep = model.eval(), past, keep

    @torch.no_grad()
    def forward(self, ids):
        return self.model(ids, past_key_values=self.cache, logits_to_keep=self.keep, use_cache=True).logits

    @torch.no_grad()
    def fill(self):
        """A fresh cache of `past` tokens, uncounted."""
        ids = torch.ones(1, self.past, dtype=torch.long)
        self.cache = self.model(ids, use_cache=True).past_key_values if self.past else None


def _baddbmm_macs(inputs, outputs):
    """fvcore handle: the multiply-accumulates of a batched product added to its first argument."""
    (batch, rows, inner), (_, _, columns) = (v.type().sizes() for v in inputs[1:3])
    return Counter({"baddbmm": batch * rows * inner * columns})


def _nothing(inputs, outputs):
    """fvcore handle: an operator that is no matrix product."""
    return Counter()


def _fvcore_macs(step, ids):
    step.fill()
    analysis = FlopCountAnalysis(step, ids).unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    analysis.set_op_handle("aten::layer_norm", _nothing, "aten::baddbmm", _baddbmm_macs)
    return analysis.total() - analysis.by_module()["model.model.rotary_emb"]


def _torch_flop(step, ids):
    step.fill()
    with FlopCounterMode(display=False) as counter:
        step(ids)
    rotary = [v for k, v in counter.get_flop_counts().items() if k.endswith("rotary_emb")]
    return counter.get_total_flops() - sum(sum(v.values()) for v in rotary)


@pytest.mark.parametrize(("new", "past", "keep"), [(13, 0, 0), (13, 0, 1), (5, 9, 0), (1, 17, 1)])
@pytest.mark.parametrize("family", FAMILIES)
def test_counters_agree_exactly(family, new, past, keep):
    torch.manual_seed(0)
    model, shape = FAMILIES[family]()
    step, ids = _Step(model, past, keep), torch.ones(1, new, dtype=torch.long)
    call = Call("prompt", (new,), (past,), logits=(keep or new,))
    assert _fvcore_macs(step, ids) == call_macs(call, shape)
    assert _torch_flop(step, ids) == flop([call], shape)


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_those_of_transformers(family):
    model, shape = FAMILIES[family]()
    assert parameters(shape) == sum(p.numel() for p in model.parameters())


def test_a_decode_loop_is_the_sum_of_its_steps():
    model, shape = FAMILIES["llama"]()
    steps = []
    for past in range(11, 15):
        step = _Step(model, past, 1)
        steps.append(_fvcore_macs(step, torch.ones(1, 1, dtype=torch.long)))
    assert sum(steps) == call_macs(Call("decode", (1,), (11,), logits=(1,), steps=4), shape)


def test_a_batch_of_rows_is_counted_as_its_rows():
    model, shape = FAMILIES["llama"]()
    step = _Step(model, 0, 0)
    assert _fvcore_macs(step, torch.ones(3, 7, dtype=torch.long)) == call_macs(
        Call("documents", (7,) * 3, (0,) * 3, logits=(7,) * 3), shape
    )


@pytest.mark.parametrize("layers", [(0, 1), (1, 3)])
def test_a_range_of_layers_is_counted_as_a_model_of_these_layers(layers):
    model, shape = FAMILIES["llama"]()
    model.model.layers = model.model.layers[slice(*layers)]
    for index, layer in enumerate(model.model.layers):
        layer.self_attn.layer_idx = index
    model.config.num_hidden_layers = layers[1] - layers[0]
    step, ids = _Step(model, 9, 1), torch.ones(1, 5, dtype=torch.long)
    call = Call("prompt", (5,), (9,), logits=(1,), layers=layers)
    assert _fvcore_macs(step, ids) == call_macs(call, shape)
    assert _torch_flop(step, ids) == flop([call], shape)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", ["naive", "superposition", "attention_sort"])
def test_a_methods_trace_counts_the_same_under_fvcore(family, method):
    """`ragauge cost --counter fvcore`: the calls run on our decoder, whatever its family."""
    shape = FAMILIES[family]()[1]
    shape = replace(shape, alibi_slopes=alibi_slopes(4) if shape.position == "alibi" else ())
    prompt = Prompt(**random_segments(TokenCounts(5, (7, 9), 4, 3), shape.vocab))
    engine, made = ShapeLM(shape), make(method)
    with engine.tracing() as trace:
        made.answer(engine, made.prepare(engine, prompt), prompt, Limits(2, ignore_stop=True))
    assert fvcore_macs(trace, shape) == trace_macs(trace, shape) > 0
