"""Every kernel computes the same."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from ragauge.engines.kernels import choice, compiled, operations
from ragauge.engines.kernels.choice import DEFAULT, Choice, Operation
from ragauge.engines.kernels.operations import candidates
from ragauge.engines.rope import rotate, rotation
from tiny_models import LLAMA

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# half a unit of numbers up to 4
WITHIN = {torch.float32: 1e-6, torch.bfloat16: 0.01, torch.float16: 2e-3}


def exact_attention(q, k, v, seen):
    """In float64, one head after another; zero where a query sees nothing."""
    k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q.double() @ k.transpose(-1, -2) * q.shape[3] ** -0.5
    return scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num(0) @ v


def every(*operations):
    return [
        (o, name, dtype) for o in operations for dtype in DTYPES for name in candidates(o, dtype)
    ]


def only(operation, name, dtype):
    return Choice("test", {str(dtype).removeprefix("torch."): {operation: {"kernel": name}}})


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("operation", "name", "dtype"),
    every(Operation.ONE_ROW, Operation.FEW_ROWS, Operation.MANY_ROWS),
    ids=str,
)
def test_every_product_is_the_product(operation, name, dtype):
    kernel = operations.PRODUCTS[name]
    rows = {Operation.ONE_ROW: 1, Operation.FEW_ROWS: 3, Operation.MANY_ROWS: 40}[operation]
    for out in (1, 12, 96):
        x, weight, bias = (
            torch.randn(*size).div(4).to(dtype) for size in ((rows, 33), (out, 33), (out,))
        )
        for added in (None, bias):
            exact = F.linear(x.double(), weight.double(), None if added is None else added.double())
            with torch.inference_mode():
                torch.testing.assert_close(
                    kernel(x, weight, added).double(), exact, atol=WITHIN[dtype], rtol=1e-6
                )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_kernel_that_the_processor_lacks_is_no_candidate(dtype, monkeypatch):
    monkeypatch.setattr(operations, "_has_onednn", lambda _: False)
    assert "onednn" not in candidates(Operation.MANY_ROWS, dtype)


@pytest.mark.parametrize("words", [5, 64, 1003])
@pytest.mark.parametrize(("operation", "name", "dtype"), every(Operation.LIKELIHOOD), ids=str)
def test_every_log_probability_is_that_of_the_softmax(operation, name, dtype, words):
    logits = torch.randn(7, words).mul(8).to(dtype)
    targets = torch.randint(words, (7,))
    logits[3, targets[3]] = -1000.0  # of a word that cannot be
    exact = logits.double().log_softmax(1).gather(1, targets[:, None])[:, 0]
    with torch.inference_mode(), choice.using(only(operation, name, dtype)):
        found = operations.log_probabilities(logits, targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, atol=2e-5, rtol=2e-6)


@pytest.mark.parametrize("queries", [1, 9])
@pytest.mark.parametrize(("operation", "name", "dtype"), every(Operation.ATTENTION), ids=str)
@pytest.mark.parametrize("kv_heads", [6, 2])
@pytest.mark.parametrize("mask", [False, True])
def test_every_attention_is_the_attention(operation, name, dtype, kv_heads, queries, mask):
    keys = 9 if queries > 1 else 21
    q = torch.randn(2, 6, queries, 8).to(dtype)
    k, v = (torch.randn(2, kv_heads, keys + 3, 8).to(dtype)[:, :, :keys] for _ in range(2))
    seen = torch.rand(2, 1, queries, keys) > 0.4
    seen[..., 0] = True
    given, causal = (seen, False) if mask else (None, queries > 1)
    allowed = seen if mask else torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
    with choice.using(only(operation, name, dtype)), torch.inference_mode():
        found = operations.attend(q, k, v, given, causal)
        exact = exact_attention(q, k, v, allowed)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, atol=3 * WITHIN[dtype], rtol=WITHIN[dtype])


def test_attention_takes_whatever_strides_torch_returns(monkeypatch):
    q = torch.randn(2, 6, 1, 8)
    k = torch.randn(2, 2, 21, 8)
    v = torch.randn(2, 2, 21, 8)
    exact = exact_attention(q, k, v, torch.ones(1, 21, dtype=torch.bool))
    plain = F.scaled_dot_product_attention

    def on_a_gpu(*tensors, **options):
        """CUDA's kernel for float32 has the queries before the heads in memory."""
        return plain(*tensors, **options).transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr(F, "scaled_dot_product_attention", on_a_gpu)
    torch.testing.assert_close(
        operations.attend(q, k, v, None, False).double(), exact, atol=1e-6, rtol=1e-6
    )


SIZES = {  # rows, heads, heads of keys, queries, keys, numbers of a head
    "causal over several blocks of keys": (1, 6, 2, 301, 301, 16),
    "one head of keys for all": (2, 5, 1, 40, 163, 64),
    "as many heads of keys": (2, 3, 3, 17, 31, 48),
    "wide heads": (1, 2, 1, 29, 130, 256),
}


@pytest.mark.skipif(compiled.library() is None, reason="no C compiler")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("mask", ["none", "random", "lower right", "nothing attended"])
def test_the_compiled_attention_is_the_attention(size, dtype, mask):
    rows, heads, kv_heads, queries, keys, dim = size
    q = torch.randn(rows, queries, heads, dim).to(dtype).transpose(1, 2)
    k, v = (
        torch.randn(kv_heads, rows, keys + 3, dim).to(dtype).transpose(0, 1)[:, :, :keys]
        for _ in range(2)
    )
    causal = mask == "none" and queries == keys
    seen = torch.rand(rows, 1, queries, keys) > 0.6
    if mask == "lower right":
        seen = torch.ones(1, 1, queries, keys, dtype=torch.bool).tril(keys - queries)
    seen[..., 0] = True
    if mask == "nothing attended":
        seen[:, :, 3] = False
    found = compiled.attend(q, k, v, None if mask == "none" else seen, causal)
    allowed = (
        torch.ones(queries, keys, dtype=torch.bool).tril(0 if causal else keys)
        if mask == "none"
        else seen
    )
    assert found.dtype == dtype
    torch.testing.assert_close(
        found.double(),
        exact_attention(q, k, v, allowed),
        atol=3 * WITHIN[dtype],
        rtol=WITHIN[dtype],
    )


@pytest.mark.skipif(compiled.library() is None, reason="no C compiler")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("queries", [4, 11, 30])
def test_keys_are_attended_to_where_they_lie(queries, dtype):
    """The same numbers as after gathering them, whatever order slots have and however often one is
    used.
    """
    q = torch.randn(3, queries, 6, 16).to(dtype).transpose(1, 2)
    k, v = (torch.randn(2, 500, 16).to(dtype) for _ in range(2))
    slots = torch.randint(0, 500, (3, 187))
    mask = torch.rand(3, 1, queries, 187) > 0.4
    found = compiled.attend(q, k[None], v[None], mask, slots=slots)
    gathered = [x[:, slots].transpose(0, 1) for x in (k, v)]
    exact = F.scaled_dot_product_attention(
        q.double(), *(x.double() for x in gathered), mask, enable_gqa=True
    )
    torch.testing.assert_close(found.double(), exact, atol=3 * WITHIN[dtype], rtol=WITHIN[dtype])
    few = compiled.attend(q[:, :, :3], k[None], v[None], mask[:, :, :3], slots=slots)
    assert few is None, "keys are not laid out for so few"


@pytest.mark.skipif(compiled.library() is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("dtype", "queries", "dim", "mask"),
    [
        (torch.float16, 20, 16, None),
        (torch.float32, 16, 16, None),
        (torch.float32, 20, 24, None),
        (torch.float32, 20, 272, None),
        (torch.float32, 20, 16, torch.ones(1, 2, 20, 20, dtype=torch.bool)),
        (torch.float32, 20, 16, torch.zeros(1, 1, 20, 20)),
    ],
)
def test_what_the_compiled_attention_does_not_compute_is_torchs(dtype, queries, dim, mask):
    q, k, v = (torch.randn(1, 2, queries, dim).to(dtype) for _ in range(3))
    assert compiled.attend(q, k, v, mask, False) is None


@pytest.mark.parametrize("dim", [20, 64])
@pytest.mark.parametrize(("operation", "name", "dtype"), every(Operation.ROWWISE), ids=str)
def test_heads_are_rotated_where_they_stand(operation, name, dtype, dim):
    qkv = torch.randn(7, 5, dim).to(dtype)
    positions = torch.rand(7) * 100
    cos, sin = (x.to(dtype) for x in rotation(positions, replace(LLAMA, head_dim=dim)))
    exact = rotate(qkv[:, :4].double(), cos.double(), sin.double())
    with choice.using(only(operation, name, dtype)), torch.inference_mode():
        values = qkv[:, 4:].clone()
        torch.testing.assert_close(
            operations.rotate(qkv[:, :4], cos, sin).double(), exact, atol=WITHIN[dtype], rtol=0.01
        )
        assert torch.equal(qkv[:, 4:], values)


def test_a_choice_is_followed(monkeypatch):
    called = []
    monkeypatch.setitem(
        operations.PRODUCTS,
        "spy",
        lambda x, weight, bias: called.append(x.shape[0]) or F.linear(x, weight, bias),
    )
    weight = torch.randn(4, 4)
    with choice.using(only(Operation.FEW_ROWS, "spy", torch.float32)):
        with torch.inference_mode():
            for rows in (1, 2, 16, 17):
                operations.project(torch.randn(rows, 4), weight)
            operations.project(torch.randn(2, 4).bfloat16(), weight.bfloat16())
        operations.project(torch.randn(2, 4), weight)  # with gradients: torch's own
    assert called == [2, 16]


def test_a_choice_without_a_kernel_has_the_next_fastest():
    seconds = {"plain": 4.0, "native": 1.0}
    table = {
        "bfloat16": {
            Operation.ONE_ROW: {"kernel": "native", "seconds": {**seconds, "widened": 3.0}},
            Operation.MANY_ROWS: {"kernel": "onednn"},
            Operation.FEW_ROWS: {"kernel": "native", "seconds": {**seconds, "widened": 3.9}},
        }
    }
    chosen = Choice("measured", table).without("native")
    assert chosen.named() == {
        "bfloat16": {Operation.ONE_ROW: "widened", Operation.MANY_ROWS: "onednn"}
    }
    assert chosen.origin == "measured"


def test_choices_that_differ_have_other_names_for_stored_documents():
    measured = {"float32": {operation: {"kernel": "onednn"} for operation in Operation}}
    fast, read = (
        Choice("measured", table) for table in (measured, json.loads(json.dumps(measured)))
    )
    assert fast.digest(torch.float32) == read.digest(torch.float32) != DEFAULT.digest(torch.float32)
    assert fast.digest(torch.bfloat16) == DEFAULT.digest(torch.bfloat16)
