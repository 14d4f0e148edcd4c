"""Fine-tuning: one pass for all requests of a document, DeepSpeed as plain torch, killed runs, what
comes out.
"""

import csv
import json
import os
import shutil
import sys
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from preloaded import Preloaded
from ragauge.cli._main import main
from ragauge.engines.loading import load_lm
from ragauge.engines.spans import Row
from ragauge.errors import UserError
from ragauge.methods.prompts import unit_steps
from ragauge.testing import byte_tokenizer, write_checkpoint
from ragauge.training import finetuning
from ragauge.training.finetuning import FineTuning, pack, response_nll, separate
from sft_material import built, settings

LIBRARIES = (
    "deepspeed",
    "transformers.models.llama.modeling_llama",
    "transformers.tokenization_utils_fast",
    "datasets",
    "pandas",
    "transformers.trainer",
    "torch.distributed.run",
    "deepspeed.runtime.zero.muon.muon_optimizer",  # which imports torch's compiler
)


@pytest.fixture(scope="module")
def material(tmp_path_factory):
    folder = tmp_path_factory.mktemp("material")
    with pytest.MonkeyPatch.context() as patch:
        built(folder, patch)
    return folder


@pytest.fixture
def folder(tmp_path, material):
    """A folder with a model, a corpus and the training data."""
    return Path(shutil.copytree(material, tmp_path, dirs_exist_ok=True))


def trained(folder, out, **changes):
    folders = folder / "data", folder / f"{out}-steps", folder / out
    assert (
        finetuning.train(settings(folder, **changes), *folders, threads=1) == folder / f"{out}.json"
    )
    return account_of(folder, out)


@pytest.fixture(scope="module")
def done(material, tmp_path_factory):
    """A folder with a whole training by plain torch, which others are compared with."""
    folder = Path(shutil.copytree(material, tmp_path_factory.mktemp("done"), dirs_exist_ok=True))
    trained(folder, "plain")
    return folder


def mean_nll(model, documents):
    """The mean over all tokens of all responses, each request read alone and all of them added up
    before they are divided.
    """
    total = tokens = 0
    for document in documents:
        for request, response in document.requests:
            ids = torch.tensor([[*document.document, *request, *response]])
            logits = model(ids).logits[0, -len(response) - 1 : -1]
            total += F.cross_entropy(logits, torch.tensor(response), reduction="sum")
            tokens += len(response)
    return total / tokens


@pytest.fixture(scope="module")
def curve(material):
    """The losses of these settings by a plain loop, whose steps are one large batch each."""
    chosen = settings(material)
    inputs = material_of(material)
    model = inputs.model()
    optimizer = torch.optim.AdamW(model.parameters(), chosen.lr, eps=chosen.eps, weight_decay=0.0)
    numbers = [n for epoch in (0, 1) for n in finetuning.epoch_order(len(inputs.train), 0, epoch)]
    assert len({sum(len(r) for _, r in document.requests) for document in inputs.train}) > 1
    losses = {}
    for step in range(chosen.steps + 1):
        if step % chosen.evaluate_steps == 0:
            with torch.no_grad():
                losses[step, "held_out"] = float(mean_nll(model, inputs.held_out))
        batch = [inputs.train[n] for n in numbers[2 * step : 2 * step + 2]]
        if step < chosen.steps:
            optimizer.param_groups[0]["lr"] = chosen.lr * min(1.0, (step + 1) / 2)
            loss = mean_nll(model, batch)
            losses[step + 1, "train"] = loss.item()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return losses


def account_of(folder, out="plain"):
    return json.loads((folder / f"{out}.json").read_bytes())


def losses(account):
    curve = account["curve"]
    found = {(point["step"], point["split"]): point["loss"] for point in curve}
    assert len(found) == len(curve)
    return found


def material_of(folder, **changes):
    return finetuning.Material(settings(folder, **changes), folder / "data")


def tensors(model):
    from safetensors.torch import load_file

    return load_file(model / "model.safetensors")


# ---- batches


def test_documents_longer_than_the_checkpoints_positions_are_read_whole_under_linear_scaling(
    folder,
):
    """As LongAlpaca is: `max_position_embeddings` says less than its scaled positions reach."""
    scaled = {"rope_type": "linear", "factor": 16.0, "rope_theta": 10000.0}
    write_checkpoint(folder / "model", max_position_embeddings=64, rope_parameters=scaled)
    material = material_of(folder)
    one = separate(max(material.train, key=lambda e: len(e.document)))[0]
    assert len(one.document) > 5 * 64
    loss = response_nll(material.model(), pack(one)).mean().detach()
    [(request, response)] = one.requests
    ids = [*one.document, *request, *response]
    lm = load_lm(str(folder / "model"), threads=1, max_context=4096)
    row = Row(ids, unit_steps(0, len(ids)))
    read = lm.extend(lm.new_cache(len(ids)), [row], stage="prompt", logp=True)
    expected = -read.logp[0][-len(response) :].mean()
    torch.testing.assert_close(loss, expected, atol=1e-5, rtol=1e-5)


def test_a_decoder_without_rotary_positions_reads_requests_apart(folder):
    material = material_of(folder)
    for position, requests in ((material.shape.position, 2), ("alibi", 1)):
        material = material_of(folder)
        material.shape = replace(material.shape, position=position)
        assert {len(e.requests) for e in material.train} == {requests}


@pytest.mark.parametrize("ends", [*permutations(("<|user|>", "<|end|>", "<|assistant|>"), 2)])
@pytest.mark.parametrize("template", ["chat", "plain", None])
def test_responses_end_as_the_template_ends_a_turn(ends, template, folder):
    """`<|end|>`, where it is among the model's end tokens; else, or without a template, with the
    first of them.
    """
    tokenizer = byte_tokenizer()
    if template is None:
        tokenizer.chat_template = tokenizer.chat_template.replace("<|end|>", "<|end|>\n") + "\n"
    ids = tokenizer.convert_tokens_to_ids(list(ends))
    write_checkpoint(folder / "model", eos_token_id=ids)
    tokenizer.save_pretrained(folder / "model")
    material = material_of(folder, template=template)
    expected = "<|end|>" if template != "plain" and "<|end|>" in ends else ends[0]
    lasts = {response[-1] for e in material.train for _, response in e.requests}
    assert tokenizer.convert_ids_to_tokens([*lasts]) == [expected]
    text = tokenizer.decode(material.train[0].requests[0][1])
    assert not any(end in text.removesuffix(expected) for end in ends)


# ---- order, warm-up, budget


def test_every_document_comes_once_before_any_comes_again():
    first, second = (finetuning.epoch_order(7, 0, epoch) for epoch in (0, 1))
    assert sorted(first) == sorted(second) == list(range(7))
    assert first != second
    assert finetuning.epoch_order(7, 0, 0) == first != finetuning.epoch_order(7, 1, 0)


def test_the_curve_is_that_of_large_batches(done, curve):
    account = account_of(done)
    assert losses(account) == pytest.approx(curve, abs=1e-5)
    assert [*losses(account)] == [*curve]
    rates = [point["lr"] for point in account["curve"] if point["split"] == "train"]
    assert rates == pytest.approx([0.0005, *[0.001] * 5])  # it rises and stays


def test_time_ends_a_training_which_is_not_done_again(folder, monkeypatch):
    account = trained(folder, "m", steps=10**6, minutes=0.005)
    assert 0 < account["steps"] < 10**4
    assert account["steps"] == max(step for step, _ in losses(account))
    assert account["seconds"] >= 0.3
    before = tensors(folder / "m")
    monkeypatch.setattr(FineTuning, "training_step", None)
    shutil.rmtree(folder / "m")
    assert losses(trained(folder, "m", steps=10**6, minutes=0.005)) == losses(account)
    torch.testing.assert_close(tensors(folder / "m"), before, rtol=0, atol=0)


# ---- what comes out


def test_the_written_checkpoint_is_the_model(done):
    from transformers import AutoModelForCausalLM

    account = account_of(done)
    rows = list(csv.DictReader((done / "plain.loss.csv").read_text().splitlines()))
    assert {(int(r["step"]), r["split"]): float(r["loss"]) for r in rows} == losses(account)
    reference = AutoModelForCausalLM.from_pretrained(done / "plain", dtype=torch.float32)
    with torch.no_grad():
        after = float(mean_nll(reference, material_of(done).held_out))
    assert after == pytest.approx(losses(account)[6, "held_out"], rel=1e-4)
    before = load_lm(str(done / "model"))
    now = load_lm(f"path:{done / 'plain'}")
    assert now.shape == before.shape
    assert now.tokenizer.chat_template == before.tokenizer.chat_template
    assert account["sha256"]["train.jsonl"]
    assert account["provenance"]["time"]


# ---- killed runs


def checkpoints(folder, out="m"):
    return sorted((folder / f"{out}-steps").glob("*/checkpoint-*"))


def test_a_killed_training_resumes_with_the_next_documents(done, folder, monkeypatch):
    compute_loss = FineTuning.compute_loss

    def killed(self, *given, **more):
        if self.state.global_step == 5:  # after the checkpoint of step 4
            raise KeyboardInterrupt
        return compute_loss(self, *given, **more)

    monkeypatch.setattr(FineTuning, "compute_loss", killed)
    with pytest.raises(KeyboardInterrupt):
        trained(folder, "cut")
    assert not (folder / "cut").exists()
    [checkpoint] = checkpoints(folder, "cut")
    torn = checkpoint.with_name("checkpoint-6")  # and killed in the middle of its next checkpoint
    torn.mkdir()
    (torn / "trainer_state.json").write_text("{")
    monkeypatch.setattr(FineTuning, "compute_loss", compute_loss)
    resumed = losses(trained(folder, "cut"))
    assert [*resumed.items()] == [*losses(account_of(done)).items()]
    torch.testing.assert_close(tensors(folder / "cut"), tensors(done / "plain"), rtol=0, atol=0)
    assert [path.name for path in checkpoints(folder, "cut")] == ["checkpoint-6"]


def test_more_steps_continue_and_other_settings_start_over_beside_files_of_others(folder, caplog):
    (folder / "m-steps/thesis").mkdir(parents=True)
    (folder / "m-steps/thesis/text").write_text("a year of work")
    with caplog.at_level("INFO", logger="ragauge"):
        longer = trained(folder, "m", steps=1) and trained(folder, "m", steps=2)
        assert "resuming after step 1" in caplog.text
        assert longer["steps"] == 2
        caplog.clear()
        other = trained(folder, "m", steps=1, lr=0.01)
    assert "resuming" not in caplog.text
    assert other["steps"] == 1
    # those of the other settings are gone
    assert [path.name for path in checkpoints(folder)] == ["checkpoint-1"]
    (folder / "other").mkdir()
    (folder / "other/text").write_text("a year of work")
    with pytest.raises(UserError, match="other: holds files that ragauge did not make"):
        trained(folder, "other", steps=2)
    assert len(list(folder.rglob("text"))) == 2


def test_a_damaged_checkpoint_is_refused(folder):
    trained(folder, "m", steps=1)
    [checkpoint] = checkpoints(folder)
    for name in ("model.safetensors", "optimizer.pt"):
        whole = (checkpoint / name).read_bytes()
        (checkpoint / name).write_bytes(whole[:1000])
        with pytest.raises(UserError, match=r"^[^\n]*checkpoint-1: damaged [^\n]*$"):
            trained(folder, "m", steps=4)
        (checkpoint / name).write_bytes(whole)


# ---- bad input


# ---- DeepSpeed


@pytest.fixture(scope="module")
def deepspeed(tmp_path_factory):
    """Commands that need not import DeepSpeed again, and a lock that a killed build of its kernel
    left behind.
    """
    pytest.importorskip("deepspeed", reason="needs deepspeed (pip install 'ragauge[training]')")
    folder = tmp_path_factory.mktemp("deepspeed")
    (folder / "extensions/deepspeed_shm_comm").mkdir(parents=True)
    (folder / "extensions/deepspeed_shm_comm/lock").touch()
    with Preloaded(folder, LIBRARIES) as commands:
        yield commands


def command(deepspeed, folder, out, **changes):
    """The account of a training by the command line, in processes of its own, which compile
    nothing.
    """
    keys = settings(folder, engine="deepspeed", **changes).model_dump(exclude_none=True)
    pairs = [
        part for key, value in keys.items() for part in ("--set", f"{key}={json.dumps(value)}")
    ]
    folders = ["--data", str(folder / "data"), "--checkpoints", str(folder / f"{out}-steps")]
    arguments = [*pairs, *folders, "--threads", "1", "--out", str(folder / out)]
    extensions = deepspeed.folder / "extensions"
    deepspeed.run("ragauge", "sft", "train", *arguments, TORCH_EXTENSIONS_DIR=str(extensions))
    assert [path.name for path in extensions.rglob("*")] == ["deepspeed_shm_comm", "lock"]
    return account_of(folder, out)


def check_same(account, folder, out):
    """The training had the losses and weights of the one by plain torch."""
    assert losses(account) == pytest.approx(losses(account_of(folder)), rel=1e-5)
    mine, theirs = (tensors(folder / name) for name in (out, "plain"))
    torch.testing.assert_close(mine, theirs, atol=2e-5, rtol=1e-4)


@pytest.fixture(scope="module")
def started(done, deepspeed):
    """The folder with the training by plain torch, and the checkpoints of two by DeepSpeed after
    four of its steps.
    """
    command(deepspeed, done, "zero", steps=4)
    shutil.copytree(done / "zero-steps", done / "hostile-steps")
    return done


@pytest.mark.slow
def test_deepspeed_is_plain_torch_and_goes_on_where_it_was(started, deepspeed):
    account = command(deepspeed, started, "zero", steps=6)
    account["curve"] = [p for p in account["curve"] if (p["step"], p["split"]) != (4, "held_out")]
    check_same(account, started, "zero")


@pytest.mark.slow
def test_deepspeed_resumes_as_if_it_had_not_stopped(done, deepspeed):
    """In bfloat16, whose passes do not hold what the optimizer does; the first epoch ends within a
    step.
    """
    options = {"dtype": "bfloat16", "accumulation": 4}
    whole = losses(command(deepspeed, done, "whole", steps=5, **options))
    command(deepspeed, done, "cut", steps=2, **options)
    resumed = losses(command(deepspeed, done, "cut", steps=5, **options))
    del resumed[2, "held_out"]  # measured where it stopped
    assert resumed == whole
    torch.testing.assert_close(tensors(done / "cut"), tensors(done / "whole"), rtol=0, atol=0)


class Hostile:
    """Code that a pickle would run as it is read."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.slow
def test_a_checkpoint_of_deepspeed_runs_no_code(started, deepspeed):
    [states] = (started / "hostile-steps").rglob("*optim_states.pt")
    torch.save({"optimizer_state_dict": Hostile(started / "ran")}, states)
    with pytest.raises(AssertionError, match=r"checkpoint-4: damaged \(Weights only load failed"):
        command(deepspeed, started, "hostile", steps=6)
    assert not (started / "ran").exists()


@pytest.mark.slow
def test_two_processes_share_what_one_accumulates(done, deepspeed):
    account = command(deepspeed, done, "two", processes=2, accumulation=1)
    check_same(account, done, "two")


@pytest.mark.slow
def test_bfloat16_passes_update_float32_weights(done, curve, deepspeed):
    account = command(deepspeed, done, "half", dtype="bfloat16", lr=1e-5, steps=3)
    # as weights move by less than its precision
    for point in ((0, "held_out"), (1, "train")):
        assert losses(account)[point] == pytest.approx(curve[point], rel=0.01)
    after = tensors(done / "half")
    before = tensors(done / "model")
    for name, tensor in after.items():
        assert tensor.dtype == torch.float32
        # the masters begin with what the passes see
        moved = (tensor - before[name].bfloat16().float()).abs().max()
        assert 0 < moved < 4e-5, name  # less than bfloat16 can tell of a weight near 1


def test_processes_are_started_however_this_one_was(monkeypatch):
    """`python -m ragauge.cli`, as a job of several threads runs, has a file as its name that
    nothing can execute.
    """
    from ragauge.cli import sft

    started = []

    def execute(_, command):
        started.extend(command)
        raise SystemExit(0)  # this process is that command from then on

    options = "--set model=smollm2-135m-instruct --set engine=deepspeed --set processes=2"
    command = f"sft train {options} --data d --checkpoints c --out model".split()
    monkeypatch.setattr(sft.os, "execv", execute)
    monkeypatch.setattr(sys, "argv", ["/nowhere/ragauge/cli.py", *command])
    with pytest.raises(SystemExit):
        main(command)
    assert "/nowhere/ragauge/cli.py" not in started
    assert "--nproc-per-node=2" in started
    assert started[-len(command) - 2 :] == ["--module", "ragauge.cli", *command]
