"""All layers in one compiled call: what the decoder's own operators compute, for every type, family
and layout.
"""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import tiny_models
from ragauge.engines import batching, decoder, tuning
from ragauge.engines.fused import FusedLayers, fuse
from ragauge.engines.int8 import has_onednn, int8, quantized_rows
from ragauge.engines.kernels import compiled
from ragauge.engines.kernels.choice import DEFAULT, Choice, Operation, use, using
from ragauge.engines.kernels.operations import candidates, gate
from ragauge.engines.loading import random_lm
from ragauge.engines.protocol import Limits
from ragauge.engines.spans import Row, Span
from ragauge.engines.weights import Linear, Norm

COMPILED = Choice(
    "test",
    {
        d: {
            c: {"kernel": "compiled"}
            for c in (
                Operation.ONE_ROW,
                Operation.FEW_ROWS,
                Operation.ONE_TOKEN,
                Operation.FEW_TOKENS,
            )
        }
        for d in ("float32", "bfloat16", "int8")
    },
)
# Widths that are no multiple of a vector, several vectors a head, more heads in one layer than in
# the other.
SHAPE = replace(
    tiny_models.LLAMA,
    d_model=44,
    head_dim=80,
    heads=(4, 6),
    kv_heads=(2, 3),
    ffn=(70, 48),
    attention_bias=True,
)
LIMITS = Limits(max_new_tokens=6, ignore_stop=True)
WITHIN = {"float32": 1e-5, "bfloat16": 0.02}  # of the largest logit

pytestmark = pytest.mark.skipif(compiled.library() is None, reason="no C compiler")


COMPILED_ROWS = Choice(
    "test",
    {name: {Operation.ROWWISE: {"kernel": "compiled"}} for name in ("float32", "bfloat16")},
)


@pytest.fixture(autouse=True)
def restored():
    torch.manual_seed(0)
    yield
    use(DEFAULT)


def model(shape=SHAPE, **how):
    """A decoder that has its 8-bit matrices in both forms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "choose_kernels", lambda *_, **__: COMPILED)
        return random_lm(shape, threads=2, **how)


def logits(lm, choice):
    """Of a prompt too long for a compiled pass, of a few tokens after it, and of one, with the keys
    of them all.
    """
    use(choice)
    cache = lm.new_cache(158)  # which grows between two compiled passes
    found = []
    for tokens in (150, 7, 1, 16):
        start = cache.length
        row = Row(
            [5] * tokens,
            [start + 0.5 * i for i in range(tokens)],
            (Span(0, start),) if start else (),
        )
        read = lm.extend(cache, [row], stage="prompt", last_logits=True)
        found.append(read.last_logits[0].float())
    return torch.stack(found)


@pytest.mark.parametrize("how", [{}, {"dtype": "bfloat16"}, {"weights": "int8"}], ids=str)
def test_a_compiled_pass_computes_what_the_operators_compute(how, monkeypatch):
    passes = []
    read = FusedLayers.read
    monkeypatch.setattr(
        FusedLayers, "read", lambda self, x, *rest: passes.append(len(x)) or read(self, x, *rest)
    )
    lm = model(**how)
    slow = logits(lm, DEFAULT)
    assert not passes
    fast = logits(lm, COMPILED)
    assert passes == [7, 1, 16]
    error = (slow - fast).abs().max() / slow.abs().max()
    assert error <= WITHIN[how.get("dtype", "float32")]


def test_tokens_are_the_same_one_by_one_and_side_by_side(monkeypatch):
    """And responses stay in their own caches, as the compiled pass takes them so."""
    monkeypatch.setattr(batching, "add_row", lambda *_: pytest.fail("keys were copied"))
    lm = model()
    prompts = [[3 + i for i in range(n)] for n in (5, 40, 17)]
    use(DEFAULT)
    slow = [lm.respond(ids, LIMITS).ids for ids in prompts]
    use(COMPILED)
    assert [lm.respond(ids, LIMITS).ids for ids in prompts] == slow
    works = [lambda engine, ids=ids: engine.respond(ids, LIMITS).ids for ids in prompts]
    assert [task.result() for task in tiny_models.side_by_side(lm, works, 3)] == slow


def test_layers_that_it_does_not_compute_stay_with_the_operators():
    for family, shape in tiny_models.FAMILIES.items():
        lm = random_lm(replace(shape, head_dim=16))
        taken = fuse(lm.decoder.weights.layers, lm.shape) is not None
        assert taken == (lm.shape.position == "rope" and family != "olmo2"), family
    half = random_lm(SHAPE, dtype="float16")
    assert fuse(half.decoder.weights.layers, half.shape) is None


@pytest.mark.parametrize("tokens", range(1, compiled.MOST_ROWS + 1))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_any_few_tokens_are_those_of_the_operators(dtype, tokens):
    """Rows and widths that fill neither blocks nor vectors."""
    draw = torch.Generator().manual_seed(tokens)
    x, weight, bias = (
        torch.randn(*size, generator=draw).to(dtype) for size in ((tokens, 147), (67, 147), (67,))
    )
    matrix = compiled.Matrix.of(weight, bias)
    expected = F.linear(x.double(), weight.double(), bias.double())
    close = 1e-5 if dtype == torch.float32 else 0.01  # the result is rounded once
    torch.testing.assert_close(
        compiled.multiply(matrix, x).double(), expected, rtol=close, atol=close
    )


@pytest.mark.parametrize("size", [(67, 147), (96, 64), (1, 1)])
@pytest.mark.parametrize(
    ("kernel", "tokens"),
    [*(("compiled", tokens) for tokens in (1, 3, 16, 17, 250)), ("onednn", 17), ("onednn", 250)],
)
def test_products_of_integers_are_those_of_the_operators(kernel, tokens, size):
    if kernel == "onednn" and not has_onednn():
        pytest.skip("oneDNN's 8-bit product is not exact on this processor")
    draw = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, size[1], generator=draw).mul_(torch.arange(tokens)[:, None] + 1)
    x[tokens // 2] = 0
    linear = Linear(torch.randn(size, generator=draw), torch.randn(size[0], generator=draw))
    chosen = Choice("test", {"int8": {name: {"kernel": kernel} for name in Operation}})
    with using(chosen):
        stored = int8(linear)
    for dtype, within in ((torch.float32, 1e-3), (torch.bfloat16, 1e-2), (torch.float16, 1e-2)):
        with using(chosen):
            found = stored(x.to(dtype))
        exact = quantized_rows(linear).by_torch(x.to(dtype).float())
        assert found.isfinite().all()
        # an activation may be rounded otherwise
        assert (found.float() - exact).norm() <= within * exact.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_compiled_gate_is_that_of_the_operators(dtype):
    inner = torch.randn(19, 2 * 67, generator=torch.Generator().manual_seed(0)).mul_(20)
    inner[0, :4] = torch.tensor([-200.0, 200.0, 0.0, -0.0])
    gates, values = inner.to(dtype).double().chunk(2, -1)
    with using(COMPILED_ROWS):
        found = gate(inner.to(dtype), "silu")
        assert torch.equal(gate(inner, "gelu"), F.gelu(inner[:, :67]) * inner[:, 67:])
    close = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 2e-3}[dtype]
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), F.silu(gates) * values, rtol=close, atol=close)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [(19, 67), (5, 3, 80)])
def test_a_compiled_norm_is_that_of_the_operators(dtype, size):
    draw = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(some, generator=draw).to(dtype) for some in (size, size[-1:]))
    x[0] = 0
    with using(COMPILED_ROWS):
        found = Norm(weight)(x)
    assert found.dtype == dtype
    close = 1e-5 if dtype == torch.float32 else 1e-2
    exact = F.rms_norm(x.double(), weight.shape, weight.double(), 1e-5)
    torch.testing.assert_close(found.double(), exact, rtol=close, atol=close)


def test_an_mlp_in_pieces_is_the_whole(monkeypatch):
    lm = random_lm(SHAPE)
    ids = [*range(1, 41)]
    rows = [Row(ids, [float(i) for i in range(40)])]
    read = []
    for size in (1 << 30, 7 * 4 * 2 * SHAPE.ffn[0]):
        monkeypatch.setattr(decoder, "MLP_BYTES", size)
        read.append(lm.extend(lm.new_cache(40), rows, stage="prompt", last_logits=True).last_logits)
    torch.testing.assert_close(*read, rtol=1e-5, atol=1e-5)


def test_integers_are_kept_once_where_one_kernel_takes_all_tokens():
    table = {
        "int8": {
            name: {"kernel": "compiled"}
            for name in (Operation.ONE_ROW, Operation.FEW_ROWS, Operation.MANY_ROWS)
        }
    }
    weight = torch.randn(50, 64)
    x = torch.randn(40, 64)
    use(Choice("all", table))
    alone = int8(Linear(weight))
    del table["int8"][Operation.MANY_ROWS]
    use(Choice("few", table))
    both = int8(Linear(weight))
    assert alone.layout == "panels" != both.layout
    assert alone.weight.numel() == 64 * 64  # whole panels
    use(DEFAULT)  # what is kept decides then
    torch.testing.assert_close(alone(x), both(x), rtol=1e-3, atol=1e-2)


@pytest.fixture
def fresh_library():
    assert "compiled" in candidates(Operation.ONE_ROW, torch.float32)
    compiled.library.cache_clear()
    yield
    compiled.library.cache_clear()


@pytest.mark.usefixtures("fresh_library")
def test_without_a_compiler_there_is_one_candidate_less(monkeypatch):
    monkeypatch.setattr(compiled, "COMPILERS", ("no-such-compiler",))
    assert "compiled" not in candidates(Operation.ONE_ROW, torch.float32)
    assert tuning.machine()["compiled"] is None


@pytest.mark.usefixtures("fresh_library")
def test_a_compiler_that_fails_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGAUGE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled, "OPTIONS", ("--no-such-option",))
    assert compiled.library() is None
    assert not list(tmp_path.rglob("*.so"))
