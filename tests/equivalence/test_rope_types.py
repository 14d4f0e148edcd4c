"""Every `rope_type` that is read gives transformers' logits, wherever a config states it; keys move
under each.
"""

import pytest
import torch
from transformers import AutoModelForCausalLM

import lm_references as tiny
from ragauge.engines.checkpoint import read_shape
from ragauge.errors import UserError
from tables import cases

ORIGINAL = {"original_max_position_embeddings": 64}
FACTORS = {"short_factor": [1.0, 1.1, 1.3, 1.9], "long_factor": [1.0, 2.5, 7.0, 9.5]}
YARN = {"rope_type": "yarn", "rope_theta": 777.0, "factor": 4.0, **ORIGINAL}
LONGROPE = {"rope_type": "longrope", **FACTORS, **ORIGINAL}
PLAIN = {"rope_type": "default", "rope_theta": 777.0}
LLAMA3 = tiny.LLAMA3 | {"rope_theta": 5000.0}
STATED = {  # keys of config.json
    "theta": {"rope_theta": 777.0},
    "theta in the parameters goes first": {"rope_parameters": PLAIN, "rope_theta": 10000.0},
    "scaling goes first": {
        "rope_parameters": PLAIN,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "scaling, with a theta of its own": {
        "rope_parameters": PLAIN,
        "rope_theta": 300.0,
        "rope_scaling": tiny.LINEAR,
    },
    "mrope of text": {"rope_parameters": PLAIN | {"type": "mrope", "mrope_section": [2, 1, 1]}},
    "llama3": {
        "rope_theta": 5000.0,
        "rope_scaling": {k: v for k, v in LLAMA3.items() if k != "rope_theta"},
    },
    "llama3, original length at the top": {
        "rope_parameters": LLAMA3,
        "original_max_position_embeddings": 256,
    },
    "dynamic": {"rope_scaling": {"type": "dynamic", "factor": 2.0}, "rope_theta": 500.0},
    "yarn": {"rope_parameters": YARN},
    "yarn, no original length": {
        "rope_parameters": {"rope_type": "yarn", "factor": 8.0, "rope_theta": 777.0}
    },
    "yarn, its factor of attention": {"rope_parameters": YARN | {"attention_factor": 0.7}},
    "yarn, magnitudes": {
        "rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.9, "beta_fast": 8}
    },
    "yarn, not truncated": {
        "rope_parameters": YARN | {"truncate": False, "beta_slow": 2, "beta_fast": 16}
    },
    "longrope": {"rope_parameters": LONGROPE},
    "longrope, its factor": {"rope_scaling": LONGROPE | {"factor": 8.0}},
    "longrope, its factor of attention": {"rope_scaling": LONGROPE | {"attention_factor": 1.4}},
}


def checkpoint(folder, **stated):
    """Write a Llama whose config.json states its positions in this way; return transformers' model
    of it.
    """
    tiny.build("llama").save_pretrained(folder)
    tiny.edit(folder / "config.json", **{"rope_parameters": None} | stated)
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


@pytest.mark.parametrize("stated", STATED.values(), ids=STATED)
def test_logits(stated, tmp_path):
    model = checkpoint(tmp_path, **stated)
    ids = tiny.tokens(60)
    expected = tiny.reference_logits(model, ids)
    lm = tiny.read(tmp_path)
    for chunk in (10**9, 7):
        torch.testing.assert_close(
            tiny.all_logits(lm, ids, chunk=chunk), expected, atol=1e-4, rtol=0
        )


@pytest.mark.parametrize("name", ["llama3", "yarn, its factor of attention", "longrope"])
def test_keys_that_move(name, tmp_path):
    """A document that was read from position 0 and moved behind another is as if it had been read
    there.
    """
    checkpoint(tmp_path, **STATED[name])
    lm = tiny.read(tmp_path)
    ids = tiny.tokens(20)
    moved = lm.new_cache(20)
    there = lm.new_cache(20)
    [span] = lm.extend(moved, [tiny.row(ids)], stage="documents").spans
    moved.move(span, [30.5 + 1.5 * i for i in range(20)])
    lm.extend(there, [tiny.row(ids, 30.5, step=1.5)], stage="documents")
    # of the first layer: the others' depend on distances, which the move changed
    torch.testing.assert_close(moved.k[0], there.k[0], atol=1e-5, rtol=1e-5)


def test_longrope_beyond_its_original_length(tmp_path):
    """The long factors are taken for a context that is asked for; without one the model ends where
    they begin.
    """
    model = checkpoint(tmp_path, rope_parameters=LONGROPE)
    ids = tiny.tokens(100)
    short = tiny.read(tmp_path)
    assert short.shape.max_context == 64
    with pytest.raises(UserError, match="the model's context is 64"):
        short.extend(short.new_cache(100), [tiny.row(ids)], stage="prompt")
    lm = tiny.read(tmp_path, max_context=128)
    assert lm.shape.max_context == 128
    torch.testing.assert_close(
        tiny.all_logits(lm, ids), tiny.reference_logits(model, ids), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize(
    ("stated", "says"),
    cases("""
{rope_scaling: {type: ntk, factor: 2.0}} ->
  unknown rope type 'ntk'; known: default, dynamic, linear,
{rope_scaling: {type: linear, faktor: 2.0}} ->
  unknown key of rope type linear 'faktor'; did you mean
{rope_scaling: {type: linear}} -> the key 'factor' is missing
{rope_parameters: {rope_type: default, partial_rotary_factor: 0.5}} ->
  partial_rotary_factor: 0.5 is not supported
{partial_rotary_factor: 0.25} -> partial_rotary_factor: 0.25 is not supported for llama
{rope_interleaved: true} ->
  rope_interleaved: True is not supported; read are rope_theta, rope_scaling
{rotary_pct: 0.25} -> rotary_pct: 0.25 is not supported
{rope_scaling: {rope_type: longrope, short_factor: [1.0], long_factor: [1.0, 2.5, 7.0, 9.5],
  original_max_position_embeddings: 64}} -> short_factor: must have 4 numbers
"""),
)
def test_positions_that_cannot_be_read(stated, says, tmp_path):
    tiny.build("llama").save_pretrained(tmp_path)
    tiny.edit(tmp_path / "config.json", **{"rope_parameters": None} | stated)
    with pytest.raises(UserError) as refused:
        read_shape(tmp_path)
    assert says in str(refused.value)


def test_dynamic_scaling_ends_at_the_trained_length(tmp_path):
    checkpoint(tmp_path, **STATED["dynamic"])
    with pytest.raises(
        UserError, match="max_context 4096: frequencies of type dynamic change with the length"
    ):
        read_shape(tmp_path, 4096)
