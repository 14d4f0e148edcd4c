"""Supervised fine-tuning for CFIC: the order of the documents, the loss, and the written model."""

import json
import random
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.utils.logging import disable_progress_bar

from ragauge.assets import gguf_weights, resolver, store
from ragauge.assets.tokenizer import check_rows, load_tokenizer
from ragauge.cost.machine import provenance
from ragauge.engines.checkpoint import read_shape
from ragauge.errors import UserError
from ragauge.io.digest import digest
from ragauge.io.files import file_sha256, locked, replace_atomically, text_sha256
from ragauge.io.folders import check_replaceable, replace
from ragauge.methods.evidence import sft
from ragauge.methods.evidence.account import FINE_TUNED, read_account
from ragauge.methods.evidence.request import REQUESTS
from ragauge.methods.evidence.sft import Encoded
from ragauge.methods.prompts.templates import after_response, token_ids
from ragauge.training import data as sft_data
from ragauge.training import deepspeed
from ragauge.training.settings import MAX_GRADIENT_NORM, TrainingSettings
from ragauge.training.trainer import TimedTrainer

DecoderInputs = dict[str, Any]
"""What a decoder of transformers takes: tensors, or a mask by kind of layer; and the labels of the
tokens that `logits_to_keep` names: (label,).
"""
LossCurve = list[dict[str, Any]]
"""By point: steps done, split ("train": the documents of the step, before its update; "held_out"),
loss in nats per token of all their responses, learning rate, and seconds of training until then, in
all runs.
"""


def train(
    settings: TrainingSettings,
    folder: Path,
    checkpoints: Path,
    out: Path,
    threads: int | None = None,
) -> Path | None:
    """Fine-tune the settings' decoder on the data in a folder that `data.build` wrote
    (docs/training.md).

    Writes the decoder to the folder `out`, its loss curve, and last `<out>.json`, whose path the
    first of all processes returns. A killed run resumes from its last checkpoint; `minutes` bounds
    the time of all runs together.

    Raises:
        UserError: data or model cannot be read, the engine cannot run here, no document is short
            enough, no training made the folder at `out`, a damaged checkpoint, or another training
            that writes its checkpoints there.
    """
    disable_progress_bar()  # of loading and writing weights
    if threads is not None:
        torch.set_num_threads(threads)
    material = Material(settings, folder)
    check_replaceable(out, store.has_manifest)
    training = FineTuning(settings, material, checkpoints / material.digest[:16])
    is_first = training.is_world_process_zero()
    with locked(checkpoints, wait=False) if is_first else nullcontext():
        curve = [_point(entry) for entry in training.run()]
        parameters = training.model.named_parameters()
        if settings.engine == "deepspeed":  # every process takes part
            from deepspeed.utils import safe_get_full_fp32_param

            weights = {
                name: safe_get_full_fp32_param(parameter).cpu() for name, parameter in parameters
            }
        else:
            weights = {name: tensor.detach().cpu() for name, tensor in parameters}
        training.accelerator.end_training()
        if not is_first:
            return None
        replace(out, lambda target: _write_model(material, weights, target), store.has_manifest)
        training.remove_others()
        return _write_account(material, curve, round(training.seconds, 1), out)


class Material:
    """The input of a training: the initial decoder, and the documents as token ids."""

    def __init__(self, settings: TrainingSettings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        for path in (folder / sft_data.TRAIN, folder / sft_data.HELD_OUT):
            if not path.is_file():
                raise UserError(f"{path}: no such file; `ragauge sft data` writes it")
        self.base = gguf_weights.float_checkpoint(resolver.resolve(settings.model))
        # positions continue beyond those that it was trained on
        self.shape = read_shape(self.base, settings.max_length)
        if settings.rope_scale:
            reason = ""
            if self.shape.position != "rope" or self.shape.rope_divisors:
                reason = "only rotary positions without Llama 3's scaling can be divided"
            elif self.shape.family == "phi3":
                reason = "transformers has no linear scaling for Phi-3; leave rope_scale out"
            if reason:
                raise UserError(f"rope_scale {settings.rope_scale:g}: {settings.model}: {reason}")
        self.tokenizer = load_tokenizer(self.base)
        check_rows(self.tokenizer, self.shape.vocab, settings.model)
        if not self.shape.eos:
            raise UserError(f"{settings.model}: has no end-of-text token, which ends evidence")
        # a decoder that was fine-tuned before goes on as it was
        before = read_account(settings.model).wrapping.get("template")
        stated = settings.template or resolver.describe(settings.model)["template"] or before
        self.template = stated or ("chat" if self.tokenizer.chat_template else "plain")
        closing = token_ids(self.tokenizer, after_response(self.template, self.tokenizer))
        # the model may have several end tokens, of which the template writes one after a turn
        self.end_token = next(filter(self.shape.eos.__contains__, closing), self.shape.eos[0])

    @cached_property
    def train(self) -> list[Encoded]:
        """The documents that are trained on.

        Raises:
            UserError: none is short enough.
        """
        longest = self.settings.max_length
        examples = self._encoded(sft_data.TRAIN)
        if not examples:
            raise UserError(
                f"{self.folder}: no document is shorter than max_length ({longest} tokens)"
            )
        return examples

    @cached_property
    def held_out(self) -> list[Encoded]:
        """The documents of the held-out loss."""
        return self._encoded(sft_data.HELD_OUT)

    def _encoded(self, name: str) -> list[Encoded]:
        """Each document's requests in one pass, or one pass per request where positions cannot be
        given (ALiBi).
        """
        settings = self.settings
        options = (
            REQUESTS[settings.request],
            self.end_token,
            settings.max_length,
            settings.sentences,
        )
        documents = sft_data.read(self.folder / name)
        encoded = [
            sft.encode(document, self.tokenizer, self.template, *options) for document in documents
        ]
        shared = self.shape.position == "rope"
        return [one for e in encoded if e.requests for one in ([e] if shared else separate(e))]

    def model(self) -> Any:
        """Return the initial decoder, in fp32; with `rope_scale` its positions are interpolated
        (arXiv 2306.15595).
        """
        from transformers import AutoConfig, AutoModelForCausalLM

        local = {"local_files_only": True, "trust_remote_code": False}
        config = AutoConfig.from_pretrained(self.base, **local)
        if scale := self.settings.rope_scale:
            rope = config.rope_parameters
            # Gemma 3 scales the positions of its layers without a window alone
            rope = rope.get("full_attention", rope)
            rope.update(rope_type="linear", factor=scale)
        return AutoModelForCausalLM.from_pretrained(
            self.base, config=config, dtype=torch.float32, attn_implementation="sdpa", **local
        )

    @cached_property
    def digest(self) -> str:
        """Of everything that the weights depend on except when training ends: settings, files and
        code.
        """
        left_out = {"steps", "minutes", "checkpoint_steps", "evaluate_steps", "threads"}
        settings = self.settings.model_dump(exclude=left_out)
        code = digest("ragauge.training.finetuning")
        return text_sha256(settings, self.hashes, code)

    @cached_property
    def hashes(self) -> dict[str, str]:
        files = {
            name: file_sha256(self.folder / name) for name in (sft_data.TRAIN, sft_data.HELD_OUT)
        }
        return {"model": resolver.describe(self.settings.model)["sha256"], **files}


def cast_parameters(decoder: Any, dtype: torch.dtype) -> Any:
    """Cast a decoder's parameters in place and return it.

    Buffers keep their precision: rotary frequencies in bfloat16 are those of other positions.
    """
    for parameter in decoder.parameters():
        parameter.data = parameter.data.to(dtype)
    return decoder


def pack(encoded: Encoded, windows: Sequence[int] = ()) -> DecoderInputs:
    """Return a document followed by all its requests: each attends to the document, at whose end it
    begins, and to itself. The loss is that of separate passes. A single request needs no mask:
    memory grows with the length alone.

    Args:
        encoded: the document and its requests as token ids.
        windows: the decoder's sliding window by layer in tokens, 0 for none; empty for none at all.
    """
    ids = list(encoded.document)
    positions = list(range(len(encoded.document)))
    response_positions: list[int] = []
    labels = []
    owner = [0] * len(ids)
    for number, (request, response) in enumerate(encoded.requests, start=1):
        first = len(ids) + len(request) - 1
        response_positions += range(first, first + len(response))
        labels += response
        added = [*request, *response[:-1]]
        ids += added
        positions += range(len(encoded.document), len(encoded.document) + len(added))
        owner += [number] * len(added)
    batch: DecoderInputs = {
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.tensor([positions]),
    }
    if len(encoded.requests) > 1:
        owners = torch.tensor(owner)
        is_visible = ((owners[None, :] == 0) | (owners[None, :] == owners[:, None])).tril()
        places = batch["position_ids"]
        # (1, 1, query, key): an earlier token of these, within the window
        masks = [
            (is_visible & (places.mT - (window or len(ids)) < places))[None, None]
            for window in sorted(set(windows) or {0})
        ]
        kinds = ("full_attention", "sliding_attention")  # transformers' names
        # a mask replaces the window of every layer, so that each kind of layer needs its own
        batch["attention_mask"] = (
            masks[0] if len(masks) == 1 else dict(zip(kinds, masks, strict=True))
        )
    return batch | {
        "logits_to_keep": torch.tensor(response_positions),
        "labels": torch.tensor(labels),
    }


def separate(encoded: Encoded) -> list[Encoded]:
    """Return a document with one request each, for decoders that cannot be given positions (ALiBi)."""
    return [Encoded(encoded.document, (request,)) for request in encoded.requests]


def response_nll(decoder: Any, batch: DecoderInputs) -> Tensor:
    """Return the cross-entropy of each token of a batch's responses by a decoder of transformers:
    (label,), in nats.
    """
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    logits = decoder(**inputs, use_cache=False).logits[0]
    return F.cross_entropy(logits.float(), batch["labels"], reduction="none")


class FineTuning(TimedTrainer):
    """Supervised fine-tuning on one process or several, by plain torch or DeepSpeed.

    The loss of a step is the mean over all tokens of its responses, as if one batch held its
    documents: a mean of the documents' means would weigh a token by how few its document has.
    """

    def __init__(self, settings: TrainingSettings, material: Material, folder: Path) -> None:
        self.settings = settings
        self.material = material
        self.documents = len(material.train)
        engine = deepspeed.arguments(settings) if settings.engine == "deepspeed" else {}
        super().__init__(
            cast_parameters(material.model(), getattr(torch, settings.dtype)),
            folder,
            settings.minutes,
            settings.steps,
            learning_rate=settings.lr,
            gradient_accumulation_steps=settings.accumulation,
            max_grad_norm=MAX_GRADIENT_NORM,
            bf16=settings.dtype == "bfloat16",
            use_cpu=settings.device == "cpu",
            activation_checkpointing=settings.gradient_checkpointing,
            activation_checkpointing_kwargs={"use_reentrant": False},
            **engine,
        )
        # Trainer counts the labels of a step over all processes, and here each is a prediction
        self.model_accepts_loss_kwargs = True
        self._loss_shifts_labels = False

    def example(self, number: int) -> DecoderInputs:
        epoch, position = divmod(number, self.documents)
        order = epoch_order(self.documents, self.settings.seed, epoch)
        return pack(self.material.train[order[position]], self.material.shape.windows)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        settings = self.settings
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(),
            lr=settings.lr,
            eps=settings.eps,
            weight_decay=0.0,
            fused=True,  # one pass over the weights, where the plain one makes several
        )
        return self.optimizer

    def rate(self, step: int) -> float:
        """See `TimedTrainer.rate`: it rises linearly, then stays constant."""
        return min(1.0, (step + 1) / (self.settings.warmup_steps + 1))

    def compute_loss(self, model: Any, inputs: DecoderInputs, *_: Any, **more: Any) -> Tensor:
        """See `Trainer.compute_loss`: the document's part of the loss of its step, of which the
        processes' mean is taken.
        """
        return response_nll(model, inputs).sum() * self.args.world_size / more["num_items_in_batch"]

    def measure(self) -> dict[str, float]:
        windows = self.material.shape.windows
        packed = [pack(encoded, windows) for encoded in self.material.held_out]
        held_out = [self._prepare_inputs(batch) for batch in packed]
        losses = [response_nll(self.model, batch) for batch in held_out]
        return {"eval_loss": float(torch.cat(losses).mean())} if losses else {}

    def pauses(self, step: int) -> tuple[bool, bool]:
        return step % self.settings.evaluate_steps == 0, step % self.settings.checkpoint_steps == 0


@lru_cache(maxsize=1)
def epoch_order(count: int, seed: int, epoch: int) -> list[int]:
    """Return the documents of an epoch in the order of training: a random permutation, fixed by the
    seed.
    """
    order = list(range(count))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


def _write_model(material: Material, weights: Mapping[str, Tensor], folder: Path) -> None:
    decoder = material.model()
    decoder.load_state_dict(weights, strict=False, assign=True)  # tied weights have one name
    decoder.tie_weights()
    decoder.save_pretrained(folder)
    material.tokenizer.save_pretrained(folder)
    store.write_manifest(folder, {"source": f"{FINE_TUNED}{material.settings.model}"})


def _point(entry: Mapping[str, float]) -> dict[str, Any]:
    """Return a point of the curve from an entry of Trainer's log."""
    split, loss = ("train", entry["loss"]) if "loss" in entry else ("held_out", entry["eval_loss"])
    point = {"step": int(entry["step"]), "split": split, "loss": loss}
    return point | {"lr": entry["learning_rate"], "seconds": entry["seconds"]}


def _write_account(material: Material, curve: LossCurve, seconds: float, out: Path) -> Path:
    """Write the loss curve and the account of a training; returns the account's path."""
    table = pd.DataFrame(curve).to_csv(index=False, na_rep="nan")
    replace_atomically(out.with_name(f"{out.name}.loss.csv"), table.encode())
    account = {
        "settings": material.settings.model_dump(),
        "template": material.template,
        "end_token": material.tokenizer.convert_ids_to_tokens(material.end_token),
        "steps": max(point["step"] for point in curve),
        "seconds": seconds,
        "documents": len(material.train),
        "questions": sum(len(encoded.requests) for encoded in material.train),
        "sha256": {**material.hashes, "weights": store.digest(store.contents(out))},
        "curve": curve,
        "provenance": provenance(),
    }
    path = out.with_name(f"{out.name}.json")
    replace_atomically(path, (json.dumps(account, indent=1) + "\n").encode())
    return path
