"""Fine-tuning: one pass for all requests of a document, DeepSpeed as plain torch, killed runs, what comes out."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sft_material import built, settings

from preloaded import Preloaded
from ragauge.cli import main
from ragauge.engines import Row, load_lm
from ragauge.errors import UserError
from ragauge.evidence.sft import Encoded
from ragauge.prompts import unit_steps
from ragauge.training import engine, finetuning
from ragauge.training.batches import ResponseLoss, apart, pack
from ragauge.training.settings import TrainingSettings
from tiny_checkpoint import write_checkpoint

LIBRARIES = ("deepspeed", "transformers.models.llama.modeling_llama", "transformers.tokenization_utils_fast")
ENCODED = Encoded([5, 6, 7, 8], (([9, 10], [11, 12, 13]), ([14], [15, 16]), ([17, 18, 19], [20])))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, a corpus and the training data."""
    built(tmp_path, monkeypatch)
    return tmp_path


def trained(folder: Path, out: str, **changes: Any) -> dict[str, Any]:
    written = finetuning.train(
        settings(folder, **changes), folder / "data", folder / f"{out}-steps", folder / out, threads=1
    )
    assert written == folder / f"{out}.json"
    account: dict[str, Any] = json.loads(written.read_bytes())
    return account


def losses(account: dict[str, Any]) -> list[tuple[int, str, float]]:
    return [(point["step"], point["split"], point["loss"]) for point in account["curve"]]


def tensors(model: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return dict(load_file(model / "model.safetensors"))


# ---- batches


def test_requests_in_one_pass_are_requests_in_passes_of_their_own(folder: Path) -> None:
    model = finetuning.Material(settings(folder, gradient_checkpointing=False), folder / "data").model()
    together = pack(ENCODED)
    model(together).backward()
    shared = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    labels = sum(len(response) for _, response in ENCODED.requests)
    alone = sum(model(pack(one)) * len(one.requests[0][1]) / labels for one in apart(ENCODED))
    alone.backward()
    torch.testing.assert_close(model(together), alone)
    for a, p in zip(shared, model.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, atol=1e-6, rtol=1e-4)


def test_the_source_is_masked_and_the_response_is_not() -> None:
    batch = pack(ENCODED)
    assert batch.labels.tolist() == [11, 12, 13, 15, 16, 20]
    assert batch.ids[0].tolist() == [5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 17, 18, 19]
    assert batch.positions[0].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 4, 5, 6]
    assert batch.ids[0, batch.places].tolist() == [10, 11, 12, 14, 15, 19]
    assert pack(apart(ENCODED)[0]).mask is None  # memory of a long document does not grow with its square


def test_the_loss_is_that_of_the_decoder_that_will_be_asked(folder: Path) -> None:
    lm = load_lm(str(folder / "model"), threads=1)
    [one] = apart(ENCODED)[:1]
    request, response = one.requests[0]
    ids = [*one.document, *request, *response]
    read = lm.extend(lm.new_cache(len(ids)), [Row(ids, unit_steps(0, len(ids)))], stage="prompt", logp=True)
    expected = -read.logp[0][-len(response) :].mean()
    model = finetuning.Material(settings(folder), folder / "data").model()
    torch.testing.assert_close(model(pack(one)).detach(), expected, atol=1e-5, rtol=1e-5)


def test_documents_longer_than_the_checkpoints_positions_are_trained_whole_under_linear_scaling(
    folder: Path,
) -> None:
    """As LongAlpaca is: `max_position_embeddings` says less than its scaled positions reach."""
    scaled = {"rope_type": "linear", "factor": 16.0, "rope_theta": 10000.0}
    write_checkpoint(folder / "model", max_position_embeddings=64, rope_parameters=scaled)
    material = finetuning.Material(settings(folder), folder / "data")
    one = apart(max(material.train, key=lambda e: len(e.document)))[0]
    request, response = one.requests[0]
    ids = [*one.document, *request, *response]
    assert len(one.document) > 5 * 64
    lm = load_lm(str(folder / "model"), threads=1, max_context=len(ids))
    read = lm.extend(lm.new_cache(len(ids)), [Row(ids, unit_steps(0, len(ids)))], stage="prompt", logp=True)
    model = material.model()
    torch.testing.assert_close(model(pack(one)).detach(), -read.logp[0][-len(response) :].mean(), atol=1e-5, rtol=1e-5)
    curve = [loss for _, split, loss in losses(trained(folder, "long")) if split == "train"]
    assert curve[-1] < curve[0]


def test_a_decoder_that_cannot_pick_its_logits_has_the_same_loss(folder: Path) -> None:
    model = finetuning.Material(settings(folder), folder / "data").model()
    expected = model(pack(ENCODED))
    model.picks = False
    torch.testing.assert_close(model(pack(ENCODED)), expected)


def test_a_decoder_without_rotary_positions_reads_requests_apart(folder: Path) -> None:
    material = finetuning.Material(settings(folder), folder / "data")
    assert {len(e.requests) for e in material.train} == {2}
    material = finetuning.Material(settings(folder), folder / "data")
    material.shape = replace(material.shape, position="alibi")
    assert {len(e.requests) for e in material.train} == {1}


# ---- order, warm-up, budget


def test_every_document_comes_once_before_any_comes_again() -> None:
    order = finetuning.Order(7, seed=0)
    first, second = [order[i] for i in range(7)], [order[7 + i] for i in range(7)]
    assert sorted(first) == sorted(second) == list(range(7))
    assert first != second
    assert [finetuning.Order(7, seed=0)[i] for i in range(3, 7)] == first[3:]
    assert [finetuning.Order(7, seed=1)[i] for i in range(7)] != first


def test_the_learning_rate_rises_and_stays() -> None:
    given = TrainingSettings(model="m", lr=1.0, warmup_steps=3)
    assert [finetuning.warmed_up(given, step) for step in (0, 1, 2, 3, 4, 500)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert finetuning.warmed_up(TrainingSettings(model="m", lr=0.5, warmup_steps=0), 0) == 0.5


def test_time_ends_a_training(folder: Path) -> None:
    account = trained(folder, "m", steps=10**6, minutes=0.02)
    assert 0 < account["steps"] < 10**4
    assert account["steps"] == max(step for step, _, _ in losses(account))
    assert account["seconds"] > 1


# ---- what comes out


def test_the_loss_falls_and_the_checkpoint_is_the_model(folder: Path) -> None:
    account = trained(folder, "m", steps=20)
    held_out = [loss for _, split, loss in losses(account) if split == "held_out"]
    assert held_out[-1] < held_out[0] - 0.5
    assert [step for step, split, _ in losses(account) if split == "train"] == list(range(1, 21))
    rows = list(csv.DictReader((folder / "m.loss.csv").read_text().splitlines()))
    assert [(int(r["step"]), r["split"], float(r["loss"])) for r in rows] == losses(account)
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder / "m", dtype=torch.float32)
    encoded = finetuning.Material(settings(folder), folder / "data").held_out
    after = [float(ResponseLoss(theirs)(pack(e)).detach()) for e in encoded]
    assert sum(after) / len(after) == pytest.approx(held_out[-1], rel=1e-4)
    before, now = load_lm(str(folder / "model")), load_lm(f"path:{folder / 'm'}")
    assert now.shape == before.shape
    assert now.tokenizer.chat_template == before.tokenizer.chat_template
    assert account["sha256"]["train.jsonl"]
    assert account["provenance"]["time"]


def test_checkpointed_activations_change_nothing(folder: Path) -> None:
    with_, without = (trained(folder, f"m{on}", gradient_checkpointing=on, steps=3) for on in (True, False))
    assert losses(with_) == losses(without)


# ---- killed runs


def test_a_killed_training_goes_on_with_the_next_documents(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = trained(folder, "whole")
    step = engine.Torch.step

    def killed(self: engine.Torch, batches: Any, lr: float) -> float:
        if len(done) == 5:  # after the checkpoint of step 4
            raise KeyboardInterrupt
        done.append(step(self, batches, lr))
        return done[-1]

    done: list[float] = []
    monkeypatch.setattr(engine.Torch, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        trained(folder, "cut")
    assert not (folder / "cut").exists()
    (folder / "cut-steps/step-6").mkdir()  # and killed in the middle of its next checkpoint
    monkeypatch.setattr(engine.Torch, "step", step)
    assert losses(trained(folder, "cut")) == losses(undisturbed)
    for name, tensor in tensors(folder / "whole").items():
        assert torch.equal(tensor, tensors(folder / "cut")[name]), name
    assert [p.name for p in (folder / "cut-steps").iterdir() if p.is_dir()] == ["step-6"]


def test_a_finished_training_is_not_done_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = trained(folder, "m")
    monkeypatch.setattr(engine.Torch, "step", None)
    shutil.rmtree(folder / "m")
    assert losses(trained(folder, "m")) == losses(first)
    assert (folder / "m/model.safetensors").exists()


def test_more_steps_go_on_and_other_settings_begin_anew(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="ragauge"):
        longer = trained(folder, "m", steps=2) and trained(folder, "m", steps=4)
        assert "resuming after step 2" in caplog.text
        assert longer["steps"] == 4
        other = trained(folder, "m", steps=2, lr=0.01)
    assert "former: of other settings, data or code; training starts from the beginning" in caplog.text
    assert other["steps"] == 2
    assert (folder / "m-steps/former/step-4/state.pt").is_file()


def test_what_no_training_made_is_never_removed(folder: Path) -> None:
    (folder / "m-steps/thesis").mkdir(parents=True)
    (folder / "m-steps/thesis/text").write_text("a year of work")
    trained(folder, "m", steps=2)
    trained(folder, "m", steps=4)
    assert sorted(p.name for p in (folder / "m-steps").iterdir()) == ["state.json", "step-4", "thesis"]
    (folder / "other").mkdir()
    (folder / "other/text").write_text("a year of work")
    with pytest.raises(UserError, match="other: holds files that ragauge did not make"):
        trained(folder, "other", steps=2)
    (folder / "third-steps").mkdir()
    (folder / "third-steps/state.json").write_text('{"of": "another program"}')
    with pytest.raises(UserError, match="not of a training"):
        trained(folder, "third", steps=2)
    (folder / "third-steps/state.json").unlink()
    (folder / "third-steps/step-2").mkdir()
    (folder / "third-steps/step-2/text").write_text("a year of work")
    with pytest.raises(UserError, match="step-2: holds files that ragauge did not make"):
        trained(folder, "third", steps=2)
    assert len(list(folder.rglob("text"))) == 3


def test_a_damaged_checkpoint_is_told(folder: Path) -> None:
    trained(folder, "m", steps=2)
    state = folder / "m-steps/step-2/state.pt"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    with pytest.raises(UserError, match=r"state.pt: missing or damaged; remove .* to train anew"):
        trained(folder, "m", steps=4)
    (folder / "m-steps/state.json").write_text("{")
    with pytest.raises(UserError, match=r"state.json: damaged"):
        trained(folder, "m", steps=4)


def test_a_checkpoint_of_a_newer_version_is_refused_by_name(folder: Path) -> None:
    trained(folder, "m", steps=2)
    path = folder / "m-steps/state.json"
    state = json.loads(path.read_bytes())
    assert state.pop("version") == 1
    path.write_text(json.dumps({**state, "version": 99}))
    told = "state.json: a state of version 99, and this ragauge reads up to 1; use a newer one, or another folder"
    with pytest.raises(UserError, match=told):
        trained(folder, "m", steps=4)
    path.write_text(json.dumps(state))  # of before there were versions
    assert trained(folder, "m", steps=4)["steps"] == 4


# ---- bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"processes": 2}, "engine torch trains on one process in float32"),
        ({"dtype": "bfloat16"}, "engine torch trains on one process in float32"),
        ({"max_length": 64}, "no document is shorter than max_length"),
    ],
)
def test_what_cannot_be_trained_is_told(folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        trained(folder, "m", **changes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "lrr=1"], "unknown key 'lrr'; did you mean 'lr'?"),
        (["--set", "model=nobody"], "unknown model 'nobody'"),
        (["--set", "steps=0"], "must be greater than or equal to 1, not 0"),
        ([], "train.jsonl: no such file; `ragauge sft data` writes it"),
        (["--config", "configs/papers/gpu.yaml"], "has no section `training`"),
    ],
)
def test_the_command_line_names_mistakes(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    given = [str(root / part) if part.startswith("configs/") else part for part in arguments]
    folders = ["--data", str(tmp_path), "--checkpoints", str(tmp_path), "--out", str(tmp_path / "m")]
    model = [] if "--config" in arguments else ["--set", f"model={write_checkpoint(tmp_path / 'base')}"]
    assert main(["sft", "train", *model, *given, *folders]) == 2
    assert message in capsys.readouterr().err


# ---- DeepSpeed


@pytest.fixture(scope="module")
def deepspeed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preloaded]:
    """Commands that need not import DeepSpeed again, and a lock that a killed build of its kernel left behind."""
    pytest.importorskip("deepspeed", reason="needs deepspeed (pip install 'ragauge[training]')")
    folder = tmp_path_factory.mktemp("deepspeed")
    (folder / "extensions/deepspeed_shm_comm").mkdir(parents=True)
    (folder / "extensions/deepspeed_shm_comm/lock").touch()
    with Preloaded(folder, LIBRARIES) as commands:
        yield commands


def command(deepspeed: Preloaded, folder: Path, out: str, **changes: Any) -> dict[str, Any]:
    """The account of a training by the command line, in processes of its own, which compile nothing."""
    keys = settings(folder, engine="deepspeed", **changes).model_dump(exclude_none=True)
    pairs = [part for key, value in keys.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    folders = ["--data", str(folder / "data"), "--checkpoints", str(folder / f"{out}-steps")]
    arguments = [*pairs, *folders, "--threads", "1", "--out", str(folder / out)]
    extensions = deepspeed.folder / "extensions"
    deepspeed.run("ragauge", "sft", "train", *arguments, TORCH_EXTENSIONS_DIR=str(extensions))
    assert [path.name for path in extensions.rglob("*")] == ["deepspeed_shm_comm", "lock"]
    account: dict[str, Any] = json.loads((folder / f"{out}.json").read_bytes())
    return account


def check_same(account: dict[str, Any], reference: dict[str, Any], folder: Path, *outs: str) -> None:
    for (*place, loss), (*there, expected) in zip(losses(account), losses(reference), strict=True):
        assert place == there
        assert loss == pytest.approx(expected, rel=1e-5)
    mine, theirs = (tensors(folder / out) for out in outs)
    for name in theirs:
        torch.testing.assert_close(mine[name], theirs[name], atol=2e-5, rtol=1e-4)


@pytest.mark.slow
def test_deepspeed_is_plain_torch_and_goes_on_where_it_was(folder: Path, deepspeed: Preloaded) -> None:
    reference = trained(folder, "plain")
    command(deepspeed, folder, "zero", steps=4)
    account = command(deepspeed, folder, "zero", steps=6)
    check_same(
        account | {"curve": [p for p in account["curve"] if (p["step"], p["split"]) != (4, "held_out")]},
        reference,
        folder,
        "zero",
        "plain",
    )


class Hostile:
    """What a pickle runs as it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.mark.slow
def test_a_checkpoint_of_deepspeed_runs_no_code(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed", reason="needs deepspeed (pip install 'ragauge[training]')")
    from ragauge.training.engine import FORCED, _tensors_only

    torch.save({"optimizer_state_dict": Hostile(tmp_path / "ran")}, tmp_path / "optim_states.pt")
    with pytest.raises(UserError, match="holds more than tensors"), _tensors_only(tmp_path):
        torch.load(tmp_path / "optim_states.pt", weights_only=False)  # as DeepSpeed's readers do
    assert not (tmp_path / "ran").exists()
    assert FORCED not in os.environ


@pytest.mark.slow
def test_two_processes_share_what_one_accumulates(folder: Path, deepspeed: Preloaded) -> None:
    reference = trained(folder, "plain")
    account = command(deepspeed, folder, "zero", processes=2, accumulation=1)
    check_same(account, reference, folder, "zero", "plain")


@pytest.mark.slow
def test_bfloat16_passes_update_float32_weights(folder: Path, deepspeed: Preloaded) -> None:
    account = command(deepspeed, folder, "zero", dtype="bfloat16", lr=1e-5, steps=3)
    assert account["curve"][-1]["loss"] == pytest.approx(
        trained(folder, "p", lr=1e-5, steps=3)["curve"][-1]["loss"], rel=0.01
    )
    after, before = tensors(folder / "zero"), tensors(folder / "model")
    for name, tensor in after.items():
        assert tensor.dtype == torch.float32
        moved = (tensor - before[name].bfloat16().float()).abs().max()  # the masters begin with what the passes see
        assert 0 < moved < 4e-5, name  # less than bfloat16 can tell of a weight near 1


def test_processes_are_started_however_this_one_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m ragauge.cli`, as a job of several threads runs, has a file as its name that nothing can execute."""
    from ragauge.verbs import sft

    started = list[str]()

    def execute(_: str, command: list[str]) -> None:
        started.extend(command)
        raise SystemExit(0)  # this process is that command from then on

    given = ["--set", "model=smollm2-135m-instruct", "--set", "engine=deepspeed", "--set", "processes=2"]
    command = ["sft", "train", *given, "--data", "d", "--checkpoints", "c", "--out", "model"]
    monkeypatch.setattr(sft.os, "execv", execute)
    monkeypatch.setattr(sys, "argv", ["/nowhere/ragauge/cli.py", *command])
    with pytest.raises(SystemExit):
        main(command)
    assert "/nowhere/ragauge/cli.py" not in started
    assert "--nproc-per-node=2" in started
    assert started[-len(command) - 2 :] == ["--module", "ragauge.cli", *command]
