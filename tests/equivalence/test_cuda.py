"""A rehearsal of CUDA: what runs on a GPU runs on a pretended one and gives what it gives on the
CPU.

A tensor that is left on the host raises there (`pretended_cuda`). Where torch finds a GPU, that is
used.
"""

import json
import threading
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import tiny_models
from house_article import ARTICLE, long_lm, prompt_of
from pretended_cuda import host, pretended
from ragauge import registry
from ragauge.cli._main import main
from ragauge.cost import machine
from ragauge.engines import steps
from ragauge.engines.batching import max_batch_size
from ragauge.engines.decoder import Decoder
from ragauge.engines.lm import LM
from ragauge.engines.loading import load_lm, random_lm
from ragauge.engines.protocol import Limits
from ragauge.engines.spans import Row, Span
from ragauge.engines.store import DocumentStore
from ragauge.methods.base import making
from ragauge.methods.prompts import unit_steps
from ragauge.pipelines.database.embed import EncoderChoice
from ragauge.pipelines.evaluation import EvaluationStretch
from ragauge.pipelines.modes import _retro
from ragauge.pipelines.modes._cross_attention import _mapped
from ragauge.pipelines.modes._joint import Adapters
from ragauge.pipelines.modes.base import Checkpoint
from ragauge.pipelines.pipeline import Pipeline
from ragauge.testing import write_questions
from ragauge.training import finetuning, fit
from ragauge.training.settings import RetrofitSettings
from retro_parts import (
    OF_ALL_LENGTHS,
    TINY,
    ExactRetriever,
    cross_weights,
    record_of,
    specified,
    tokens,
)
from reuse_anchors import fresh
from sft_material import built, settings

LIMITS = Limits(max_new_tokens=3, ignore_stop=True)
OPTIONS = {  # of methods, in two families; default: none
    "superposition": [
        {"top_k": 2, "saliency": "attention"},
        {"factor": 2, "iterations": 2, "positions": "left_aligned"},
        {"drop_first_token": True, "path_temperature": 1.0},
        {"path_caching": False, "path_parallelization": False},
    ],
    "cache_blend": [{}, {"criterion": "key"}],
    "prophet_kv": [{"score": "mean"}, {"score": "last_layer"}],
    "compressed": [
        *({"compressor": name} for name in registry.names("compressor")),
        *(
            {"inner": inner, "compressor": "kvzip"}
            for inner in ("superposition", "naive_reuse", "full_article")
        ),
        *({"compressor": "keydiff", "budget": budget} for budget in ("layer", "all")),
    ],
    "cfic": [
        {},
        {"search": "exhaustive"},
        {"search": "first_token"},
        {"prefix": False},
        {"skip": False, "d": 24},
    ],
}
BM25 = {"ranker": "bm25"}
NEEDED = {
    "chunks": BM25,
    "sentence_pruning": BM25,
    "kv_link": tiny_models.LINKS,
}
# of families that are much like another
DIFFERENT = ("naive", "superposition", "compressed", "cfic", "prefix_tree")
READ_TEXT = {"cfic", "chunks", "free_extraction", "long_llmlingua", "sentence_pruning"}


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    monkeypatch.setattr(steps, "CAPACITY_STEP", 256)
    with pretended():
        yield


def on_gpu(lm):
    return LM(
        Decoder(lm.shape, _mapped(lm.decoder.weights, lambda _, tensor: tensor.to("cuda"))),
        lm.tokenizer,
    )


# --- the rules of a GPU, and mistakes that are made on purpose


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x: x + torch.ones(3),
        lambda x: torch.ones(2, 3) @ x,
        lambda x: torch.ones(3)[x.long()],
        lambda x: x.index_put_((torch.tensor([0, 1]),), torch.ones(2)),
        lambda x: torch.zeros(()).add_(x.sum()),
        lambda x: x.numpy(),
    ],
)
def test_cuda_refuses_other_tensors_of_the_host(mistake):
    with pytest.raises((RuntimeError, TypeError), match=r"(?i)device|cpu"):
        mistake(torch.tensor([0.0, 1.0, 2.0], device="cuda"))


def test_a_decoding_step_that_waits_for_the_host_is_caught(monkeypatch):
    lm = on_gpu(tiny_models.tiny_lm())
    right = Decoder.embed
    monkeypatch.setattr(Decoder, "embed", lambda self, ids: right(self, ids[: 1 + int(ids.max())]))
    assert answer(lm, "naive", {}) == answer(tiny_models.tiny_lm(), "naive", {})
    assert lm.steps.fallback


def test_other_threads_read_and_wait_while_a_graph_is_captured(
    monkeypatch,
):
    """As the one that reads a pipeline's next neighbours does."""
    lm = on_gpu(tiny_models.tiny_lm())
    right = Decoder.embed
    threads = []
    done = []

    def work():
        done.append(torch.ones(3, device="cuda"))
        lm.synchronize()
        done.append(torch.ones(3, device="cuda"))

    def embed(self, ids):
        threads.append(threading.Thread(target=work))
        threads[-1].start()
        threads[-1].join(0.05)  # in the capture it waits for its end
        return right(self, ids)

    monkeypatch.setattr(Decoder, "embed", embed)
    answer(lm, "naive", {})
    for thread in threads:
        thread.join()
    assert lm.steps.fallback is None
    assert len(threads) == 1 + steps.WARM_UP + 1  # the prompt, the steps before and in the capture
    assert len(done) == 2 * len(threads)


# --- the decoder: methods, several questions, caches, stored documents, checkpoints


def answer(engine, name, options):
    """What a method answers."""
    prompt = prompt_of(("", ARTICLE[:240])) if name in READ_TEXT else tiny_models.tiny_prompt()
    method = making.make(name, **options | NEEDED.get(name, {}))
    assert method.refusal(engine) is None
    return fresh(engine, method, prompt, LIMITS)


def assert_alike(found, lm, name, options):
    with host():
        expected = answer(lm, name, options)
    assert (found.ids, found.kept, found.evidence) == (
        expected.ids,
        expected.kept,
        expected.evidence,
    ), name
    assert found.saliency == pytest.approx(expected.saliency, abs=1e-4), name


@pytest.fixture(scope="module")
def variants(tmp_path_factory):
    """Every method, under some options."""
    encoder = {"encoder": f"path:{tiny_models.encoder(tmp_path_factory.mktemp('encoder'))}"}
    return [
        (n, o)
        for n in registry.names("method")
        for o in ([encoder] if n == "dense" else OPTIONS.get(n, [{}]))
    ]


@pytest.mark.parametrize("family", sorted(tiny_models.FAMILIES))
def test_every_method_answers_as_on_the_cpu(family, variants):
    lm = long_lm(tiny_models.deeper(tiny_models.FAMILIES[family]))
    there = on_gpu(lm)
    # Positions are told in two ways, which compressors tell apart, as options do not.
    one_of_each = [
        (name, options) for name, options in dict(variants).items() if name != "compressed"
    ]
    compressed = [(name, options) for name, options in variants if name == "compressed"]
    chosen = {"llama": variants, "bloom": one_of_each + compressed}
    for name, options in chosen.get(family, [(name, {}) for name in DIFFERENT]):
        assert_alike(answer(there, name, options), lm, name, options)
    assert there.steps.fallback is None  # graphs were captured


def test_questions_side_by_side_are_answered_as_on_the_cpu(variants):
    lm = long_lm()
    there = on_gpu(lm)
    assert max_batch_size(there, 1000) > 1
    chosen = dict(variants)
    works = [partial(answer, name=name, options=options) for name, options in chosen.items()]
    tasks = tiny_models.side_by_side(there, works, 6)
    for task, (name, options) in zip(tasks, chosen.items(), strict=True):
        assert_alike(task.result(), lm, name, options)


@torch.inference_mode()
def moved(lm):
    """Caches after every way to change one, and what is read behind them."""
    cache = lm.new_cache(4)  # grows
    rows = [Row(tokens(n, n), unit_steps(5, n), (Span(0, 5),)) for n in (7, 4, 6)]
    [first] = lm.extend(cache, [Row(tokens(5, 1), unit_steps(0, 5))], stage="preamble").spans
    spans = [first, *lm.extend(cache, rows, stage="documents", logp=True, attention="last").spans]
    cache.move(spans[2], [20.5, 21.5, 22.0, 23.0])
    cache.shift(spans[3], [3.0] * 6)
    by_head = cache.select_by_head([[[0, 3, 4], [5, 6]]] * lm.shape.layers, extra=8)
    by_head.shift(Span(0, 2), [1.0, 1.0])
    by_head.append(cache, spans[1])
    cache.add_bias(spans[1], -2.0)
    cache.temper(spans[2], 0.7, 1.5)
    joined = lm.join(cache, [spans[0], spans[2], spans[1]], extra=2)
    joined.append(cache, spans[3])
    joined.truncate(joined.length - 1)
    contents = []
    for one in (cache, by_head, joined):
        row = Row(tokens(3, 9), unit_steps(40, 3), (Span(0, one.length),))
        read = lm.extend(one, [row], stage="query", last_logits=True)
        contents += [
            read.last_logits,
            one.positions[: one.length],
            *(t[:, : one.length] for t in (*one.k, *one.v)),
        ]
    return [tensor.cpu() for tensor in contents]


@pytest.mark.parametrize("family", sorted(tiny_models.SHAPES))
def test_caches_are_moved_as_on_the_cpu(family):
    lm = tiny_models.tiny_lm(replace(tiny_models.SHAPES[family], kv_heads=(2, 2)))
    torch.testing.assert_close(moved(on_gpu(lm)), moved(lm), atol=1e-5, rtol=1e-5)


def test_stored_documents_are_loaded_to_the_device(tmp_path):
    lm = on_gpu(tiny_models.tiny_lm())
    lm.documents = DocumentStore(tmp_path, "decoder", 10**9)
    rows = [Row(tokens(n, n), unit_steps(0, n)) for n in (7, 4)]
    for _ in ("computed", "loaded"):
        read = lm.extend(lm.new_cache(64), rows, stage="documents", offline=True, logp=True)
        assert {values.device.type for values in read.logp} == {"cuda"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_checkpoints_and_random_weights_are_read_to_the_device(dtype, model):
    given = {"device": "cuda", "dtype": dtype}
    for lm in (load_lm(str(model), **given), random_lm(tiny_models.ALIBI, **given)):
        assert lm.device.type == lm.decoder.weights.head.weight.device.type == "cuda"
        assert len(lm.respond([5, 6, 7], LIMITS).ids) == 3


def test_times_are_measured(model, tmp_path, monkeypatch, measured_quickly):
    monkeypatch.setattr(machine, "CUDA_READ_BYTES", 1 << 20)
    monkeypatch.setattr(machine, "CUDA_MATMUL_SIDE", 64)
    out = tmp_path / "time.json"
    data = write_questions(tmp_path / "nq.jsonl")
    question = f"--dataset nq_open --data {data} --model {model} --device cuda --new-tokens 3"
    timed = f"time --methods naive,superposition --trials 1 --allow-load {question} --out {out}"
    assert main(timed.split()) == 0
    protocol = json.loads(out.read_bytes())["protocol"]
    assert (protocol["device"], protocol["cuda_graphs"]) == ("cuda", "on")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_texts_are_embedded_as_on_the_cpu(dtype, tmp_path):
    name = f"path:{tiny_models.encoder(tmp_path)}"
    # of several batches' lengths
    texts = ["", "House 3 has 8 cats.", "Nobody counts them! " * 9, "é" * 700]
    expected = EncoderChoice(name, "torch", dtype=dtype).load().encode(texts)
    there = EncoderChoice(name, "torch", dtype=dtype, device="cuda").load()
    found = there.encode(texts)
    assert {parameter.device.type for parameter in there.model.parameters()} == {"cuda"}  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, expected, atol=1e-5 if dtype == "float32" else 2e-2)


# --- generation with retrieval


@pytest.mark.parametrize(
    ("mode", "schedule", "family"),
    [
        *(("joint", schedule, "llama") for schedule in registry.names("schedule")),
        ("joint", "piperag", "bloom"),
        *(("cross_attention", "piperag", family) for family in ("llama", "bloom", "openelm")),
        ("retro", "piperag", "llama"),
    ],
)
def test_pipelines_generate_and_score_as_on_the_cpu(
    mode,
    schedule,
    family,
    model,
    tmp_path,
    monkeypatch,
):
    monkeypatch.setattr(_retro, "PAPER", TINY)
    lm = tiny_models.tiny_lm(tiny_models.FAMILIES[family])
    path = tmp_path / "adapters.safetensors"
    monkeypatch.setattr(
        Checkpoint, "decoder", lambda self: lm if self.device == "cpu" else on_gpu(lm)
    )
    (Adapters(lm.decoder.weights) if mode == "joint" else cross_weights(lm)).save(path)
    trained = {} if mode == "retro" else {"retrofit_minutes": 1.0}
    interval = 64 if schedule == "retro" else 32
    text = EvaluationStretch("0", 0, tuple(tokens(150, 10)))
    records = []
    for device in ("cpu", "cuda"):
        for task in ("generate", "perplexity"):
            chosen = specified(schedule, interval, task, mode=mode, **trained)
            searcher = ExactRetriever(OF_ALL_LENGTHS)
            with host() if device == "cpu" else nullcontext():
                made = chosen.mode.load(Checkpoint(device=device, adapters=path))
                records.append(record_of(Pipeline(made, chosen, searcher, searcher), text))
            assert records[-1].status == "ok", records[-1].reason
    assert (records[2].generated, records[2].neighbours) == (
        records[0].generated,
        records[0].neighbours,
    )
    assert records[3].nll == pytest.approx(records[1].nll, abs=1e-4)


# --- training


@pytest.mark.parametrize("mode", ["joint", "cross_attention"])
def test_retrofit_has_the_losses_of_the_cpu(mode, tmp_path, monkeypatch):
    monkeypatch.setattr(fit, "MOST_STEPS", 2)
    searcher = ExactRetriever([tokens(64 * 4, seed) for seed in range(20, 31)])
    given = {"mode": mode, "minutes": 1e6, "batch": 2, "held_out": 2}
    material = fit.RetrofitMaterial(searcher, searcher, RetrofitSettings(**given))
    lm = tiny_models.tiny_lm()
    losses = []
    for one in (lm, on_gpu(lm)):
        training = fit.RetroFit(one, material, tmp_path / one.device.type, {})
        losses.append([point["loss"] for point in training.run() if "loss" in point])
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)


def test_fine_tuning_has_the_losses_of_the_cpu(tmp_path, monkeypatch):
    """Where activations are computed again, too."""
    built(tmp_path, monkeypatch)
    losses = []
    for device in ("cpu", "cuda"):
        chosen = settings(tmp_path, device=device, steps=2, gradient_checkpointing=device == "cuda")
        written = finetuning.train(
            chosen, tmp_path / "data", tmp_path / f"{device}-steps", tmp_path / device
        )
        losses.append([point["loss"] for point in json.loads(written.read_bytes())["curve"]])
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
