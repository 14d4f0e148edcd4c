"""Superposition prompting gives what the paper's released code gave on tiny random models."""

import json
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from ragauge.engines.checkpoint import read_shape, read_weights
from ragauge.engines.decoder import Decoder
from ragauge.engines.lm import LM
from ragauge.engines.protocol import Limits
from ragauge.methods.base.making import make
from ragauge.methods.prompts import Prompt
from reuse_anchors import fresh

RELEASED = Limits(max_new_tokens=8)  # of the released answers
MODELS = ("bloom4", "mpt8")
PRUNED = [
    (positions, saliency, top_k, temperature)
    for positions in ("equilibrium", "left_aligned")
    for saliency in ("bayesian", "attention")
    for top_k in (1, 2, 4)
    for temperature in (None, 0.01, 1.0)
]


@pytest.fixture(scope="module")
def released(released_folder):
    return json.loads((released_folder / "superposition.json").read_bytes())


@pytest.fixture(scope="module")
def arrays(released_folder):
    return np.load(released_folder / "superposition.npz", allow_pickle=False)


@pytest.fixture(scope="module", params=MODELS)
def model(request, released_folder):
    folder = released_folder / "tiny_superposition" / request.param
    weights = read_weights(folder, torch.float32, torch.device("cpu"), "full")
    tokenizer = SimpleNamespace(decode=lambda ids, **_: "", eos_token_id=None)  # only ids count
    return request.param, LM(Decoder(read_shape(folder, None), weights), tokenizer)


def answer(lm, released, method="superposition", limits=RELEASED, **options):
    made = make(method, **options)
    inputs = released["inputs"]
    names = ("preamble", "documents", "query", "task")
    return fresh(lm, made, Prompt([], *(inputs[name] for name in names)), limits)


@pytest.mark.parametrize(("positions", "saliency", "top_k", "temperature"), PRUNED)
def test_kept_documents_and_answers_are_the_released_ones(
    model,
    released,
    arrays,
    positions,
    saliency,
    top_k,
    temperature,
):
    name, lm = model
    expected = released["models"][name][f"{positions}/{saliency}/k{top_k}/T{temperature}"]
    options = {"reduce": "sum"} if saliency == "attention" else {}
    given = answer(
        lm,
        released,
        positions=positions,
        saliency=saliency,
        top_k=top_k,
        path_temperature=temperature,
        **options,
    )
    assert list(given.kept) == expected["kept"]
    assert list(given.ids) == expected["ids"]
    if saliency == "attention":
        scores = arrays[f"{name}/{positions}/attention"]
    else:
        scores = arrays[f"{name}/{positions}/logp_documents"]
        scores = scores + arrays[f"{name}/{positions}/logp_queries"]
    assert list(given.saliency) == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("positions", ["equilibrium", "left_aligned"])
def test_without_pruning_the_answer_is_the_released_one(model, released, positions):
    name, lm = model
    given = answer(lm, released, positions=positions, saliency="none")
    assert list(given.kept) == list(range(len(released["inputs"]["documents"])))
    assert list(given.ids) == released["models"][name][f"{positions}/unpruned"]


@pytest.mark.parametrize(("hops", "top_k"), [(1, 2), (2, 1), (3, 1)])
def test_iterative_superposition_is_the_released_one(model, released, arrays, hops, top_k):
    """Scores are compared with those of the positions that generation uses: the released code
    scores the last pass before it writes its positions.
    """
    name, lm = model
    expected = released["models"][name][f"hops{hops}_k{top_k}"]
    given = answer(lm, released, hops="one", top_k=top_k, iterations=hops + (top_k > 1))
    assert list(given.kept) == [*expected["selected"], *expected["kept"]]
    assert list(given.ids) == expected["ids"]
    scores = arrays[f"{name}/hops{hops}_k{top_k}/last_scores_overwritten"]
    assert [given.saliency[i] for i in expected["remaining"]] == pytest.approx(scores, abs=1e-4)


def test_prompt_cache_is_the_released_one(model, released):
    name, lm = model
    given = answer(lm, released, "prompt_cache", replace(RELEASED, ignore_stop=True))
    assert list(given.ids) == released["models"][name]["prompt_cache"]


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_attention_sort_is_the_released_one_but_for_the_mask_that_it_lacks_on_mpt(
    model, released, released_folder, steps
):
    name, lm = model
    given = answer(lm, released, "attention_sort", Limits(1), rounds=steps + 1, observed="query")
    expected = released["models"][name][f"attention_sort{steps}"]
    if name.startswith("mpt"):
        folder = released_folder / "tiny_superposition" / name
        assert sorted_by_attention(folder, released["inputs"], steps, causal=False) == expected
        expected = sorted_by_attention(folder, released["inputs"], steps, causal=True)
    assert list(given.kept) == expected


def sorted_by_attention(folder, inputs, steps, *, causal):
    """The order of the documents by transformers' attention; as released, the prompt ends with the
    question twice, and all tokens of the first one count.
    """
    mpt = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    order = list(range(len(inputs["documents"])))
    for _ in range(steps):
        documents = [inputs["documents"][i] for i in order]
        ids = [*inputs["preamble"], *chain(*documents), *inputs["query"], *inputs["query"]]
        mask = None if causal else torch.zeros(1, 1, len(ids), len(ids))
        with torch.no_grad():
            read = mpt(torch.tensor([ids]), attention_mask=mask, output_attentions=True)
        edges = list(accumulate(map(len, documents), initial=len(inputs["preamble"])))
        query = slice(edges[-1], edges[-1] + len(inputs["query"]))
        paid = torch.stack(read.attentions).mean((0, 1, 2))[query].sum(0)
        weights = [float(paid[start:stop].sum()) for start, stop in pairwise(edges)]
        order = [order[i] for i in sorted(range(len(order)), key=weights.__getitem__)]
    return order
