"""Supervised fine-tuning for CFIC: the order of the documents, the budget, checkpoints, and the written model."""

from __future__ import annotations

import csv
import io
import json
import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ragauge import assets
from ragauge.assets import store
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.cost.machine import provenance
from ragauge.engines.checkpoint import read_shape
from ragauge.errors import UserError
from ragauge.evidence import sft
from ragauge.evidence.request import REQUESTS
from ragauge.evidence.sft import Encoded, TrainingDocument
from ragauge.io.digest import digest
from ragauge.io.files import file_sha256, replace_atomically
from ragauge.io.folders import check_replaceable, replace
from ragauge.training import data as sft_data
from ragauge.training import engine as engines
from ragauge.training.batches import ResponseLoss, TrainingBatch, apart, pack
from ragauge.training.checkpoints import Checkpoints
from ragauge.training.loop import Progress, Training
from ragauge.training.settings import TrainingSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CurvePoint:
    """A point of the loss curve."""

    step: int  # optimizer steps done
    split: str  # "train": the mean of the step's documents, before its update; "held_out"
    loss: float  # nats a token of the response
    lr: float
    seconds: float  # of training until then, all runs together


def train(
    settings: TrainingSettings, folder: Path, checkpoints: Path, out: Path, threads: int | None = None
) -> Path | None:
    """Fine-tune the settings' decoder on the data in a folder that `data.build` wrote.

    Writes the decoder in the hub's layout to the folder `out`, `<out>.loss.csv` (the loss curve), and last
    `<out>.json` (settings, data hashes, steps, seconds, machine, the curve again). A killed run resumes from its
    last checkpoint with the next documents; `minutes` bounds the time of all runs together.

    Returns: `<out>.json`; None on all processes but the first.

    Raises:
        UserError: the data or the model cannot be read, the engine cannot run here, no document is short enough; a
            folder at `out` or in `checkpoints` that no training made; a damaged checkpoint; another training that
            writes its checkpoints there.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    material = Material(settings, folder)
    check_replaceable(out, _is_trained)
    training = FineTuning(settings, material, engines.start(material.model(), settings), Checkpoints(checkpoints))
    with nullcontext() if training.engine.rank else training.checkpoints.alone():
        training.resume()
        training.run()
        training.engine.leave()
        if training.engine.rank:
            return None
        _write_model(material, training.weights(), out)
        return _write_account(settings, material, training.progress, out)


class Material:
    """The input of a training: the initial decoder, and the documents as token ids."""

    def __init__(self, settings: TrainingSettings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        if missing := [n for n in (sft_data.TRAIN, sft_data.HELD_OUT) if not (folder / n).is_file()]:
            raise UserError(f"{folder / missing[0]}: no such file; `ragauge sft data` writes it")
        self.base = Path(assets.resolve(settings.model))
        self.shape = read_shape(
            self.base, settings.max_length
        )  # positions continue beyond those that it was trained on
        self.tokenizer = load_tokenizer(self.base)
        if not self.shape.eos:
            raise UserError(f"{settings.model}: has no end-of-text token, which ends evidence")

    @cached_property
    def template(self) -> str:
        """How prompts are wrapped, as for any model of the source."""
        catalogued = self.settings.template or assets.describe(self.settings.model)["template"]
        return catalogued or ("chat" if self.tokenizer.chat_template else "plain")

    @cached_property
    def train(self) -> list[Encoded]:
        found = self._encoded(sft_data.read(self.folder / sft_data.TRAIN))
        if not found:
            raise UserError(
                f"{self.folder}: no document is shorter than max_length ({self.settings.max_length} tokens)"
            )
        return found

    @cached_property
    def held_out(self) -> list[Encoded]:
        path = self.folder / sft_data.HELD_OUT
        return self._encoded(sft_data.read(path)) if path.stat().st_size else []

    def _encoded(self, documents: Sequence[TrainingDocument]) -> list[Encoded]:
        """Each document's requests in one pass, or one pass per request where positions cannot be given (ALiBi)."""
        wording, longest = REQUESTS[self.settings.request], self.settings.max_length
        encoded = [sft.encode(d, self.tokenizer, self.template, wording, self.shape.eos[0], longest) for d in documents]
        shared = self.shape.position == "rope"
        return [one for e in encoded if e.requests for one in ([e] if shared else apart(e))]

    def model(self) -> ResponseLoss:
        """The decoder under training, in fp32."""
        from transformers import AutoModelForCausalLM

        decoder = AutoModelForCausalLM.from_pretrained(
            self.base, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True, trust_remote_code=False
        )
        decoder.train()
        if self.settings.gradient_checkpointing:
            decoder.activation_checkpointing_enable({"use_reentrant": False})
        return ResponseLoss(decoder)

    @cached_property
    def fingerprint(self) -> str:
        """Everything that the weights depend on except when training ends: settings, hashes of the files, and code."""
        settings = self.settings.model_dump(exclude={"steps", "minutes", "checkpoint_steps", "evaluate_steps"})
        code = digest("ragauge.training.finetuning", without={"ragauge.cost.machine"})  # nothing is timed
        state = [settings, self.hashes, code]
        return json.dumps(state, sort_keys=True)

    @cached_property
    def hashes(self) -> dict[str, str]:
        names = (sft_data.TRAIN, sft_data.HELD_OUT)
        return {"model": assets.describe(self.settings.model)["sha256"]} | {
            name: file_sha256(self.folder / name) for name in names
        }


class FineTuning(Training[CurvePoint]):
    """Supervised fine-tuning by steps over documents, on one process or several."""

    def __init__(
        self, settings: TrainingSettings, material: Material, engine: engines.TrainingEngine, checkpoints: Checkpoints
    ) -> None:
        super().__init__(material.fingerprint)
        self.settings, self.material, self.engine, self.checkpoints = settings, material, engine, checkpoints
        self.dtype = torch.bfloat16 if settings.dtype == "bfloat16" else torch.float32
        self.order = Order(len(material.train), settings.seed)

    def resume(self) -> None:
        """Resume from the current checkpoint; one of other settings, data or code is moved aside."""
        kept = self.checkpoints.state()
        if kept.get("fingerprint") == self.progress.fingerprint:
            self.engine.load(self.checkpoints.verified(), self.checkpoints.tag(kept["step"]))
            self.progress = Progress(**{**kept, "curve": [CurvePoint(**point) for point in kept["curve"]]})
            logger.info("resuming after step %d", self.progress.step)
        elif kept and self.engine.rank == 0:
            aside = self.checkpoints.move_aside()
            logger.warning("%s: of other settings, data or code; training starts from the beginning", aside)

    def learn(self) -> float:
        """See `Training.learn`."""
        lr = warmed_up(self.settings, self.progress.step)
        return self.engine.step([self._batch(i) for i in range(self.settings.accumulation)], lr)

    def measure(self, loss: float | None = None) -> None:
        """See `Training.measure`; every step's own loss is a point of the curve as well."""
        settings, step = self.settings, self.progress.step
        if loss is not None:
            self._note("train", loss, warmed_up(settings, step - 1))
        held_out = self.material.held_out
        if held_out and (loss is None or self._ends or step % settings.evaluate_steps == 0):
            losses = [self.engine.loss(pack(encoded, self.dtype)) for encoded in held_out]
            self._note("held_out", sum(losses) / len(losses), warmed_up(settings, step))

    def weights(self) -> dict[str, Any]:
        """The decoder's fp32 weights by name."""
        return self.engine.weights(self.checkpoints.folder, self.checkpoints.tag(self.progress.step))

    def is_over(self) -> bool:
        """See `Training.is_over`; one step is taken, however short the time."""
        settings, progress = self.settings, self.progress
        late = settings.minutes is not None and progress.seconds >= 60 * settings.minutes
        self._ends = self.engine.agree(progress.step >= settings.steps or (late and progress.step > 0))
        return self._ends

    def is_measured(self) -> bool:
        """See `Training.is_measured`."""
        return True

    def is_saved(self) -> bool:
        """See `Training.is_saved`."""
        return self.progress.step % self.settings.checkpoint_steps == 0

    def save(self) -> None:
        """Write a checkpoint; the previous one is removed once this one is current."""
        tag = self.checkpoints.tag(self.progress.step)
        if self.engine.rank == 0:
            self.checkpoints.claim(tag)
        self.engine.save(self.checkpoints.folder, tag)
        if self.engine.rank == 0:
            self.checkpoints.keep(tag, asdict(self.progress))

    def _batch(self, place: int) -> TrainingBatch:
        """This process's batch at a place of the next step."""
        width = self.engine.processes
        number = (self.progress.step * self.settings.accumulation + place) * width + self.engine.rank
        return pack(self.material.train[self.order[number]], self.dtype)

    def _note(self, split: str, loss: float, lr: float) -> None:
        progress = self.progress
        progress.curve.append(CurvePoint(progress.step, split, loss, lr, round(progress.seconds, 3)))
        if self.engine.rank == 0:
            step, steps = progress.step, self.settings.steps
            logger.info("step %d of %d: %s loss %.4f, %.0f s", step, steps, split, loss, progress.seconds)


class Order:
    """The documents in the order of training: one random permutation after another, fixed by the seed."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self._epochs: dict[int, list[int]] = {}

    def __getitem__(self, number: int) -> int:
        epoch, place = divmod(number, self.count)
        if epoch not in self._epochs:
            drawn = list(range(self.count))
            random.Random(f"{self.seed}/{epoch}").shuffle(drawn)
            self._epochs = {epoch: drawn}
        return self._epochs[epoch][place]


def warmed_up(settings: TrainingSettings, step: int) -> float:
    """The learning rate of a step, counted from 0: it rises linearly to `lr`, then stays constant."""
    return settings.lr * min(1.0, (step + 1) / (settings.warmup_steps + 1))


# --- the trained model ---


def _write_model(material: Material, weights: dict[str, Any], out: Path) -> None:
    """Write the decoder in the hub's layout, whole or not at all."""

    def fill(folder: Path) -> None:
        decoder: Any = material.model().decoder
        decoder.load_state_dict(weights, assign=True)
        decoder.save_pretrained(folder)
        material.tokenizer.save_pretrained(folder)
        store.write_manifest(folder, {"source": f"fine-tuned from {material.settings.model}"})

    replace(out, fill, _is_trained)


def _is_trained(folder: Path) -> bool:
    """Whether a training made a folder."""
    return store.has_manifest(folder)


def _write_account(settings: TrainingSettings, material: Material, progress: Progress[CurvePoint], out: Path) -> Path:
    replace_atomically(out.with_name(f"{out.name}.loss.csv"), _csv(progress.curve))
    account = {
        "settings": settings.model_dump(),
        "template": material.template,
        "steps": progress.step,
        "seconds": round(progress.seconds, 1),
        "documents": len(material.train),
        "questions": sum(len(encoded.requests) for encoded in material.train),
        "sha256": {**material.hashes, "weights": store.digest(store.contents(out))},
        "curve": [asdict(point) for point in progress.curve],
        "provenance": provenance(),
    }
    path = out.with_name(f"{out.name}.json")
    replace_atomically(path, (json.dumps(account, indent=1) + "\n").encode())
    return path


def _csv(curve: Sequence[CurvePoint]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(CurvePoint.__dataclass_fields__), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_rows(curve))
    return text.getvalue().encode()


def _rows(curve: Sequence[CurvePoint]) -> Iterator[dict[str, Any]]:
    return (asdict(point) for point in curve)
