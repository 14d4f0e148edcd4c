"""What is trained is what answers: the loss of packed requests, that of this package's decoder, and
transformers' own of each request.
"""

import random

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from ragauge.engines.loading import load_lm
from ragauge.engines.spans import Row
from ragauge.errors import UserError
from ragauge.methods.evidence.sft import Encoded
from ragauge.methods.prompts import unit_steps
from ragauge.testing import byte_tokenizer
from ragauge.training import finetuning
from ragauge.training.finetuning import FineTuning, Material, separate
from sft_material import built, settings, write_corpus

WINDOW = 24
FAMILIES = {
    "llama": {},
    "mistral": {"sliding_window": WINDOW},
    "qwen2": {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    "qwen3": {"head_dim": 8},
    "phi3": {"sliding_window": WINDOW, "pad_token_id": 0, "partial_rotary_factor": 0.5},
    "gemma3_text": {
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
        "tie_word_embeddings": True,
        "pad_token_id": 0,
    },
    "smollm3": {"pad_token_id": 0, "no_rope_layers": [1, 0]},
    "olmo2": {"pad_token_id": 0},
    "granite": {"pad_token_id": 0, "attention_multiplier": 0.35},
}
# relative, to transformers' loss and to the decoder's, which rounds at other places
TOLERANCES = {"float32": (1e-5, 1e-5), "bfloat16": (1e-3, 5e-3)}
CASES = [
    (family, dtype, scale)
    for family in FAMILIES
    for dtype in TOLERANCES
    for scale in (None, 4.0)
    if (family, scale) != ("phi3", 4.0)  # refused
]


def write_model(folder, family):
    """Write a decoder of two layers whose scores are large, so that positions matter."""
    tokenizer = byte_tokenizer()
    sizes = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|end|>"),
        "initializer_range": 0.3,
    }
    config = AutoConfig.for_model(family, **sizes | FAMILIES[family])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def mean_of_requests(encoded, loss):
    """Average over all tokens of responses a loss of each request alone, given its ids."""
    total = 0.0
    for one in separate(encoded):
        [(request, response)] = one.requests
        total += float(loss([*one.document, *request, *response], len(response)).sum())
    return total / sum(len(response) for _, response in encoded.requests)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with training data and a Gemma 3, one of whose two layers has a window."""
    write_model(tmp_path / "model", "gemma3_text")
    write_corpus(tmp_path / "corpus.jsonl")
    built(tmp_path, monkeypatch)
    return tmp_path


@pytest.mark.parametrize(("family", "dtype", "scale"), CASES)
def test_the_trained_loss_is_that_of_the_decoder_and_of_transformers(
    family, dtype, scale, tmp_path
):
    source = str(write_model(tmp_path / "model", family))
    for name in ("train.jsonl", "held_out.jsonl"):
        (tmp_path / name).touch()
    chosen = settings(tmp_path, model=source, rope_scale=scale)
    # of passes alone, without DeepSpeed, which a training in bfloat16 needs
    chosen = chosen.model_copy(update={"dtype": dtype})
    material = Material(chosen, tmp_path)
    draw = random.Random(family)
    document, *parts = (draw.choices(range(3, 250), k=count) for count in (600, 9, 8, 3, 5, 6, 7))
    encoded = Encoded(document, tuple(zip(parts[::2], parts[1::2], strict=True)))
    material.train = material.held_out = [encoded]
    training = FineTuning(chosen, material, tmp_path / "steps")
    with torch.no_grad():
        loss = training.measure()["eval_loss"]
    target = tmp_path / "trained"
    finetuning._write_model(material, dict(material.model().named_parameters()), target)
    reference = AutoModelForCausalLM.from_pretrained(target, dtype=getattr(torch, dtype))
    lm = load_lm(str(target), dtype=dtype, threads=1)

    def of_transformers(ids, count):
        with torch.no_grad():
            logits = reference(torch.tensor([ids])).logits[0, -count - 1 : -1].float()
        return F.cross_entropy(logits, torch.tensor(ids[-count:]), reduction="none")

    def of_decoder(ids, count):
        rows = [Row(ids, unit_steps(0, len(ids)))]
        read = lm.extend(lm.new_cache(len(ids)), rows, stage="prompt", logp=True)
        return -read.logp[0][-count:]

    to_transformers, to_decoder = TOLERANCES[dtype]
    assert loss == pytest.approx(mean_of_requests(encoded, of_transformers), rel=to_transformers)
    assert loss == pytest.approx(mean_of_requests(encoded, of_decoder), rel=to_decoder)


def test_one_step_trains_a_decoder_with_two_kinds_of_layers(folder):
    material = Material(settings(folder), folder / "data")
    assert all(len(encoded.document) > WINDOW for encoded in material.train)
    paths = folder / "data", folder / "steps", folder / "trained"
    finetuning.train(settings(folder, steps=1, gradient_checkpointing=True), *paths, threads=1)
    assert load_lm(str(folder / "trained"), threads=1).shape.windows == (WINDOW, 0)


def test_positions_that_transformers_cannot_divide_are_refused(tmp_path):
    source = str(write_model(tmp_path / "model", "phi3"))
    for name in ("train.jsonl", "held_out.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"rope_scale 4: .*model: .*Phi-3"):
        Material(settings(tmp_path, model=source, rope_scale=4.0), tmp_path)
