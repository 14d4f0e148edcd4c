"""The decoder gives transformers' logits on tiny random checkpoints of every family that both have.

In fp32 the largest difference of any logit stays below 1e-4 (the logits' standard deviation is
about 1; measured: at most 7e-6). In half precision it stays below a share of that standard
deviation, HALF, about twice what was measured, which is what transformers itself differs by.
"""

import pytest
import torch
import transformers

import lm_references as tiny
from ragauge.assets import gguf_weights, resolver
from ragauge.cost.shapes import alibi_slopes
from ragauge.engines.loading import load_lm
from ragauge.engines.protocol import Limits
from ragauge.errors import UserError

EXACT = 1e-4
HALF = {torch.bfloat16: 0.2, torch.float16: 0.025}  # of the logits' standard deviation
# transformers itself differs by 0.028: embeddings are scaled, norms are four
GEMMA_HALF = HALF | {torch.float16: 0.04}
IDS = tiny.tokens(37)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Every tiny model, and the folder that transformers saved it in."""
    made = {}
    for name in tiny.CONFIGS:
        model = tiny.build(name)
        folder = tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        made[name] = model, folder
    return made


@pytest.fixture(scope="module", params=tiny.CONFIGS)
def pair(request, folders):
    """transformers' model and our decoder of the same checkpoint."""
    model, folder = folders[request.param]
    return model, tiny.read(folder)


def assert_close(ours, theirs, tolerance=EXACT):
    difference = (ours.float() - theirs.float()).abs().max().item()
    assert difference <= tolerance


def test_logits_with_and_without_a_cache(pair):
    model, lm = pair
    expected = tiny.reference_logits(model, IDS)
    for chunk in (10**9, 7, 1):
        assert_close(tiny.all_logits(lm, IDS, chunk=chunk), expected)


def test_rows_of_different_lengths_share_past_spans(pair):
    """Three paths behind one preamble, the second behind another segment too, equal three plain
    prompts.
    """
    model, lm = pair
    shared = tiny.tokens(6, 1)
    extra = tiny.tokens(4, 2)
    rows = [tiny.tokens(n, 3 + n) for n in (5, 1, 9)]
    cache = lm.new_cache(64)
    [a] = lm.extend(cache, [tiny.row(shared)], stage="preamble").spans
    [b] = lm.extend(cache, [tiny.row(extra, 6, [a])], stage="documents").spans
    with torch.inference_mode():
        packed = tiny.hidden(
            lm,
            cache,
            [tiny.row(rows[0], 6, [a]), tiny.row(rows[1], 10, [a, b]), tiny.row(rows[2], 6, [a])],
        )
        ours = lm.decoder.logits(packed).split([5, 1, 9])
    for row, before, logits in zip(rows, [shared, shared + extra, shared], ours, strict=True):
        assert_close(logits, tiny.reference_logits(model, before + row)[len(before) :])


def test_log_probabilities_of_a_row(pair):
    model, lm = pair
    [found] = lm.extend(lm.new_cache(len(IDS)), [tiny.row(IDS)], stage="prompt", logp=True).logp
    logits = tiny.reference_logits(model, IDS)[:-1]
    assert_close(found, logits.float().log_softmax(-1)[range(len(IDS) - 1), IDS[1:]])


def test_greedy_generation(pair):
    model, lm = pair
    theirs = model.generate(
        torch.tensor([IDS]), attention_mask=torch.ones(1, 37, dtype=torch.long), max_new_tokens=24, do_sample=False,
        pad_token_id=0, eos_token_id=None,
    )  # fmt: skip
    assert generated(lm, IDS, Limits(24, ignore_stop=True)) == theirs[0, 37:].tolist()


def generated(lm, ids, limits):
    cache = lm.new_cache(len(ids))
    read = lm.extend(cache, [tiny.row(ids)], stage="prompt", last_logits=True)
    return lm.generate(cache, read.last_logits[0], len(ids), limits)


def test_attention_means(pair):
    model, lm = pair
    with torch.no_grad():
        layers = model(torch.tensor([IDS]), use_cache=False, output_attentions=True).attentions
    weights = torch.stack(layers).mean((0, 2))[0]  # (query, key)
    for observed, expected in (("last", weights[-1]), ("all", weights.mean(0))):
        read = lm.extend(lm.new_cache(37), [tiny.row(IDS)], stage="sort", attention=observed)
        assert_close(read.attention[0], expected, 1e-6)


@pytest.mark.parametrize("name", tiny.CONFIGS)
def test_half_precision_is_close(name, folders):
    model, folder = folders[name]
    expected = tiny.reference_logits(model, IDS)
    for dtype, share in (GEMMA_HALF if name == "gemma3" else HALF).items():
        lm = tiny.read(folder, dtype)
        for chunk in (10**9, 1):
            assert_close(tiny.all_logits(lm, IDS, chunk=chunk), expected, share * expected.std())


@pytest.mark.parametrize("factor", [1.5, 2.0, 3.7])
def test_fractional_positions_are_linear_rope_scaling(factor, tmp_path):
    """Position p under scaling by f is position p / f without it; given by the caller or by
    config.json.
    """
    plain = {"rope_type": "default", "rope_theta": 10000.0}
    model = tiny.build(
        "llama_linear", rope_parameters=plain | {"rope_type": "linear", "factor": factor}
    )
    model.save_pretrained(tmp_path)
    expected = tiny.reference_logits(model, IDS)
    assert_close(tiny.all_logits(tiny.read(tmp_path), IDS), expected)

    model.config.rope_parameters = plain
    model.config.save_pretrained(tmp_path)
    unscaled = tiny.read(tmp_path)
    assert unscaled.shape.rope_scale == 1.0
    for chunk in (10**9, 5):
        assert_close(
            tiny.all_logits(unscaled, IDS, [i / factor for i in range(37)], chunk), expected
        )


@pytest.mark.parametrize("name", ["bloom_4_heads", "bloom_6_heads"])
def test_alibi_at_fractional_positions(name, folders, monkeypatch):
    """BLOOM's bias is slope * position of the key, so handed such a bias its own code does real
    positions.
    """
    model, folder = folders[name]
    lm = tiny.read(folder)
    positions = [0.7 * i for i in range(37)]
    bias = torch.tensor(lm.shape.alibi_slopes)[:, None, None] * torch.tensor(positions)
    monkeypatch.setattr(model.transformer, "build_alibi_tensor", lambda *_, **__: bias)
    with torch.no_grad():
        expected = model(
            torch.tensor([IDS]), attention_mask=torch.ones(1, 37), use_cache=False
        ).logits[0]
    for chunk in (10**9, 5, 1):
        assert_close(tiny.all_logits(lm, IDS, positions, chunk), expected)


def test_alibi_slopes():
    """One formula is both BLOOM's and MPT's, whatever the number of heads."""
    for heads in (*range(1, 21), 32, 48, 71, 112):
        bloom = transformers.models.bloom.modeling_bloom._get_alibi_slopes(
            heads, torch.device("cpu")
        )
        mpt = -transformers.models.mpt.modeling_mpt.build_mpt_alibi_tensor(heads, 2)[:, 0, 0]
        ours = torch.tensor(alibi_slopes(heads))
        torch.testing.assert_close(ours, bloom, rtol=1e-5, atol=0)
        torch.testing.assert_close(ours, mpt, rtol=1e-5, atol=0)


def test_mpt_with_another_largest_bias(tmp_path):
    """MosaicML's own code heeds `alibi_bias_max`, as ours does; transformers' port takes 8 whatever
    the config says.
    """
    model = tiny.build("mpt_6_heads")
    model.config.attn_config.alibi_bias_max = 16
    model.save_pretrained(tmp_path)
    build = transformers.models.mpt.modeling_mpt.build_mpt_alibi_tensor
    model.transformer.build_mpt_alibi_tensor = lambda heads, length, device=None: build(
        heads, length, 16, device
    )
    assert_close(tiny.all_logits(tiny.read(tmp_path), IDS), tiny.reference_logits(model, IDS))


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
@pytest.mark.parametrize("name", ["bloom_6_heads", "mpt_4_heads"])
def test_alibi_far_from_the_start(name, dtype, folders):
    """Around position 1,900, where bf16 positions would err by up to 4, half precision is as close
    as at 0.
    """
    _, folder = folders[name]
    # keys at the start, and a path far from it
    far = [*range(8), *(1900.3 + 0.9 * i for i in range(29))]
    expected = tiny.all_logits(tiny.read(folder), IDS, far)
    lm = tiny.read(folder, dtype)
    tolerance = HALF.get(dtype, EXACT) * expected.std()
    for chunk in (10**9, 8, 1):
        assert_close(tiny.all_logits(lm, IDS, far, chunk), expected, tolerance)
    moved = [1900.0 + i for i in range(37)]
    # distances alone matter
    assert torch.equal(tiny.all_logits(lm, IDS, moved), tiny.all_logits(lm, IDS))


@pytest.mark.network
def test_smollm2():
    """Real weights, whole and in chunks."""
    try:
        folder = gguf_weights.float_checkpoint(resolver.resolve("smollm2-135m-instruct"))
    except (UserError, OSError) as error:
        pytest.skip(f"needs SmolLM2's weights: {error}")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    lm = load_lm("smollm2-135m-instruct")
    ids = lm.tokenizer(
        "Rain falls mainly on the western slopes. Its highest peak was climbed in 1913 by"
    ).input_ids
    expected = tiny.reference_logits(model, ids)
    for chunk in (10**9, 7):
        assert_close(tiny.all_logits(lm, ids, chunk=chunk), expected)
    theirs = model.generate(torch.tensor([ids]), max_new_tokens=6, do_sample=False)
    assert generated(lm, ids, Limits(6, stop=())) == theirs[0, len(ids) :].tolist()
