"""The closed forms count exactly what fvcore and torch's counter count, and their parameters are
transformers'.

The counters see more and less than the matrix products of the model: fvcore counts norms and misses
`baddbmm` (BLOOM's query·key product), both count the outer product that builds rotary angles.
Handles and module totals put that right; eager attention is needed because both miss the fused
kernel on CPU.
"""

from collections import Counter

import pytest
import torch
from fvcore.nn import FlopCountAnalysis
from torch.utils.flop_counter import FlopCounterMode

import lm_references as tiny
from fvcore_counting import fvcore_macs
from ragauge.cost.flop import call_macs, flop, parameters, trace_macs
from ragauge.cost.tokens import TokenCounts, random_segments
from ragauge.cost.trace import Call
from ragauge.engines.checkpoint import read_shape
from ragauge.engines.protocol import Limits
from ragauge.engines.shape_lm import ShapeLM
from ragauge.methods.base.making import make
from ragauge.methods.prompts import Prompt

FAMILIES = {  # a model, and its configuration's key for the number of layers
    "llama": ("llama_linear", "num_hidden_layers"),
    "bloom": ("bloom_6_heads", "n_layer"),
    "mpt": ("mpt_4_heads", "n_layers"),
}


def _made(family, folder):
    """transformers' model of a family, of three layers, and its shape."""
    name, layers = FAMILIES[family]
    model = tiny.build(name, **{layers: 3})
    model.config.save_pretrained(folder)
    return model, read_shape(folder)


class _Step(torch.nn.Module):
    """A forward pass of `model` behind `past` cached tokens, which keeps the last `keep` positions'
    logits.
    """

    def __init__(self, model, past, keep):
        super().__init__()
        self.model = model.eval()
        self.past = past
        self.keep = keep

    @torch.no_grad()
    def forward(self, ids):
        return self.model(
            ids, past_key_values=self.cache, logits_to_keep=self.keep, use_cache=True
        ).logits

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


def _fvcore_macs(model, new, past, keep):
    step = _Step(model, past, keep)
    step.fill()
    ids = torch.ones(1, new, dtype=torch.long)
    analysis = (
        FlopCountAnalysis(step, ids)
        .unsupported_ops_warnings(False)
        .uncalled_modules_warnings(False)
    )
    analysis.set_op_handle("aten::layer_norm", _nothing, "aten::baddbmm", _baddbmm_macs)
    return analysis.total() - analysis.by_module()["model.model.rotary_emb"]


def _torch_flop(model, new, past, keep):
    step = _Step(model, past, keep)
    step.fill()
    with FlopCounterMode(display=False) as counter:
        step(torch.ones(1, new, dtype=torch.long))
    rotary = [v for k, v in counter.get_flop_counts().items() if k.endswith("rotary_emb")]
    return counter.get_total_flops() - sum(sum(v.values()) for v in rotary)


def _assert_counted_alike(model, shape, new, past, keep, layers=None):
    call = Call("prompt", (new,), (past,), logits=(keep,), layers=layers)
    assert _fvcore_macs(model, new, past, keep) == call_macs(call, shape)
    assert _torch_flop(model, new, past, keep) == flop([call], shape)


@pytest.mark.parametrize("row", [(13, 0, 13), (13, 0, 1), (5, 9, 5), (1, 17, 1)])
@pytest.mark.parametrize("family", FAMILIES)
def test_counters_agree_exactly(family, row, tmp_path):
    _assert_counted_alike(*_made(family, tmp_path), *row)


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_those_of_transformers(family, tmp_path):
    model, shape = _made(family, tmp_path)
    assert parameters(shape) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("layers", [(0, 1), (1, 3)])
def test_a_range_of_layers_is_counted_as_a_model_of_these_layers(layers, tmp_path):
    model, shape = _made("llama", tmp_path)
    model.model.layers = model.model.layers[slice(*layers)]
    for index, layer in enumerate(model.model.layers):
        layer.self_attn.layer_idx = index
    model.config.num_hidden_layers = layers[1] - layers[0]
    _assert_counted_alike(model, shape, 5, 9, 1, layers)


@pytest.mark.parametrize(
    ("method", "family"),
    [*(("superposition", family) for family in FAMILIES), ("attention_sort", "llama")],
)
def test_a_methods_trace_counts_the_same_under_fvcore(family, method, tmp_path):
    """The calls run on our decoder, whatever its family."""
    shape = _made(family, tmp_path)[1]
    prompt = Prompt(**random_segments(TokenCounts(5, (7, 9), 4, 3), shape.vocab))
    engine = ShapeLM(shape)
    made = make(method)
    with engine.tracing() as trace:
        made.answer(engine, made.prepare(engine, prompt), prompt, Limits(2, ignore_stop=True))
    assert fvcore_macs(trace, shape) == trace_macs(trace, shape) > 0
