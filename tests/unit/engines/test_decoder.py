"""OpenELM, which transformers does not have, at real positions against a plain decoder written out
here.
"""

import pytest
import torch
import torch.nn.functional as F

import lm_references as tiny
from lm_references import DIM, FFN, HEADS, KV_HEADS
from ragauge.engines.families.openelm import make_divisible
from tiny_models import rotated

IDS = tiny.tokens(23)
POSITIONS = [0.37 * i for i in range(23)]


@pytest.fixture
def tensors():
    return tiny.openelm_tensors()


def rms(x, weight):
    return F.rms_norm(x, weight.shape, weight, 1e-6)


def plain_openelm(tensors, ids, positions):
    embedding = tensors["transformer.token_embeddings.weight"]
    x = embedding[list(ids)]
    for i in range(2):
        w = {
            n.removeprefix(f"transformer.layers.{i}.").removesuffix(".weight"): t
            for n, t in tensors.items()
        }
        x = x + openelm_attention(w, rms(x, w["attn_norm"]), i, positions)
        gate, value = (rms(x, w["ffn_norm"]) @ w["ffn.proj_1"].T).split(FFN[i], -1)
        x = x + (F.silu(gate) * value) @ w["ffn.proj_2"].T
    return rms(x, tensors["transformer.norm.weight"]) @ embedding.T


def openelm_attention(w, x, layer, positions):
    counts = [HEADS[layer], KV_HEADS[layer], KV_HEADS[layer]]
    q, k, v = (x @ w["attn.qkv_proj"].T).view(len(x), -1, DIM).split(counts, 1)
    at = torch.tensor(positions, dtype=torch.float64)
    q, k = (
        rotated(rms(side, w[f"attn.{name}_norm"]), at, 10000.0)
        for side, name in ((q, "q"), (k, "k"))
    )
    heads = (side.transpose(0, 1)[None] for side in (q, k, v))
    mixed = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
    return mixed[0].transpose(0, 1).flatten(1) @ w["attn.out_proj"].T


@pytest.mark.parametrize(
    "positions", [[float(i) for i in range(23)], POSITIONS], ids=["unit steps", "fractional"]
)
@pytest.mark.parametrize("chunk", [10**9, 6, 1], ids=["whole", "chunks", "token by token"])
def test_openelm(positions, chunk, tensors, tmp_path):
    openelm = tiny.read(tiny.write_openelm(tmp_path, tensors))
    assert openelm.shape.ffn == FFN
    expected = plain_openelm(tensors, IDS, positions)
    assert (tiny.all_logits(openelm, IDS, positions, chunk) - expected).abs().max() <= 1e-4


def test_mlp_widths_of_the_released_models():
    """OpenELM-270M (width 1280) and 3B (width 3072): the first, a middle and the last layer."""
    assert [make_divisible(m * 1280, 256) for m in (0.5, 2.23, 4.0)] == [768, 2816, 5120]
    assert [make_divisible(m * 3072, 256) for m in (0.5, 2.2, 4.0)] == [1536, 6656, 12288]
    assert make_divisible(358, 256) == 512  # 256 is nearer, but more than 10% below
