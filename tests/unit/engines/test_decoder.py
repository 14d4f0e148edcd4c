"""OpenELM at real positions against a plain decoder written out here, one head and one query at a time."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

import lm_references as tiny
from lm_references import DIM, FFN, HEADS, KV_HEADS, WIDTH
from ragauge.engines import LM
from ragauge.engines.families.openelm import make_divisible

IDS = tiny.tokens(23)
POSITIONS = [0.37 * i for i in range(23)]


@pytest.fixture
def tensors() -> dict[str, Tensor]:
    return tiny.openelm_tensors()


@pytest.fixture
def openelm(tensors: dict[str, Tensor], tmp_path: Path) -> LM:
    (tmp_path / "config.json").write_text(json.dumps(tiny.OPENELM))
    save_file(tensors, tmp_path / "model.safetensors")
    return tiny.read(tmp_path)


# ---- the plain decoder


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * weight


def rope(x: Tensor, position: float) -> Tensor:
    """Each pair (i, i + dim/2) of a vector turned by position / 10000^(2i/dim)."""
    turned, half = x.clone(), len(x) // 2
    for i in range(half):
        angle = position / 10000 ** (2 * i / len(x))
        a, b = float(x[i]), float(x[i + half])
        turned[i] = a * math.cos(angle) - b * math.sin(angle)
        turned[i + half] = b * math.cos(angle) + a * math.sin(angle)
    return turned


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Queries, keys, values (token, dim) of one head, causal, one query after another."""
    out = torch.zeros_like(q)
    for t in range(len(q)):
        out[t] = (k[: t + 1] @ q[t] / math.sqrt(q.shape[1])).softmax(0) @ v[: t + 1]
    return out


def plain_openelm(tensors: dict[str, Tensor], ids: Sequence[int], positions: Sequence[float]) -> Tensor:
    embedding = tensors["transformer.token_embeddings.weight"]
    x = embedding[list(ids)]
    for i in range(2):
        w = {n.removeprefix(f"transformer.layers.{i}.").removesuffix(".weight"): t for n, t in tensors.items()}
        x = x + openelm_attention(w, rms(x, w["attn_norm"]), i, positions)
        gate, value = (rms(x, w["ffn_norm"]) @ w["ffn.proj_1"].T).split(FFN[i], -1)
        x = x + (F.silu(gate) * value) @ w["ffn.proj_2"].T
    return rms(x, tensors["transformer.norm.weight"]) @ embedding.T


def openelm_attention(w: dict[str, Tensor], x: Tensor, layer: int, positions: Sequence[float]) -> Tensor:
    heads, kv = HEADS[layer], KV_HEADS[layer]
    parts = (x @ w["attn.qkv_proj"].T).view(len(x), -1, DIM)
    out = []
    for head in range(heads):
        shared = heads + head // (heads // kv)
        q, k = rms(parts[:, head], w["attn.q_norm"]), rms(parts[:, shared], w["attn.k_norm"])
        q, k = (torch.stack([rope(t, p) for t, p in zip(side, positions, strict=True)]) for side in (q, k))
        out.append(attend(q, k, parts[:, shared + kv]))
    return torch.cat(out, -1) @ w["attn.out_proj"].T


# ---- tests


@pytest.mark.parametrize("positions", [[float(i) for i in range(23)], POSITIONS], ids=["unit steps", "fractional"])
@pytest.mark.parametrize("chunk", [10**9, 6, 1], ids=["whole", "chunks", "token by token"])
def test_openelm(positions: list[float], chunk: int, openelm: LM, tensors: dict[str, Tensor]) -> None:
    assert openelm.shape.ffn == FFN
    expected = plain_openelm(tensors, IDS, positions)
    assert (tiny.all_logits(openelm, IDS, positions, chunk) - expected).abs().max() <= 1e-4


def test_openelm_with_an_output_matrix_of_its_own(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(tiny.OPENELM | {"share_input_output_layers": False}))
    head = torch.randn(tiny.VOCAB, WIDTH, generator=torch.Generator().manual_seed(1))
    save_file(tensors | {"lm_head.weight": head}, tmp_path / "model.safetensors")
    hidden = plain_openelm(tensors, IDS, POSITIONS) @ torch.linalg.pinv(
        tensors["transformer.token_embeddings.weight"].T
    )
    assert (tiny.all_logits(tiny.read(tmp_path), IDS, POSITIONS) - hidden @ head.T).abs().max() <= 1e-3


def test_mlp_widths_of_the_released_models() -> None:
    """OpenELM-270M (width 1280) and 3B (width 3072): the first, a middle and the last layer."""
    assert [make_divisible(m * 1280, 256) for m in (0.5, 2.23, 4.0)] == [768, 2816, 5120]
    assert [make_divisible(m * 3072, 256) for m in (0.5, 2.2, 4.0)] == [1536, 6656, 12288]
    assert make_divisible(358, 256) == 512  # 256 is nearer, but more than 10% below
