"""RETRO-fit training: what a form of reading neighbours adds to a decoder is trained, the decoder stays frozen.

Training text is the database's own: three chunks of a document in a row, with the neighbours that the retriever finds
for their windows; chunks that overlap the text are passed over, or the answer would stand in the neighbour. One
document in ten is kept apart for a curve of the loss on text that was not trained on, measured with retrieved and with
random neighbours: training that lowers both alike has only learnt that more text follows.

The budget is wall-clock time, and the learning rate falls with the share of it that is spent. What was learnt is
written at every point of the curve; a training that was cut off goes on from there with the time that it has left.
"""

from __future__ import annotations

import io
import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ragauge.engines import LM
from ragauge.errors import UserError, unknown
from ragauge.generation.retrofit.adapters import Adapters
from ragauge.generation.retrofit.cross_weights import CROSS_LAYERS, ENCODER_LAYERS, CrossWeights, cross_layers
from ragauge.generation.sources import Ask, Chance, Passages
from ragauge.generation.windows import CHUNK, Windows
from ragauge.io.records import replace_atomically
from ragauge.retrieval.retriever import Searcher
from ragauge.training.retrofit.losses import cross_nll, joint_nll

logger = logging.getLogger(__name__)

HELD_OUT = 10  # one document in so many is not trained on
LEAST_RATE = 0.1  # of the learning rate, at the budget's end


@dataclass(frozen=True)
class Recipe:
    """How a form is trained."""

    minutes: float = 8.0  # of wall-clock time, all in all
    rank: int = 8  # of joint attention's adapters
    rate: float = 2e-3  # learning rate after the warm-up
    warmup: int = 10  # steps
    batch: int = 4  # texts a step
    chunks: int = 3  # of a text
    k: int = 2  # neighbours a window
    held_out: int = 16  # texts of the curve
    curve_every_s: float = 60.0
    seed: int = 0
    form: Literal["joint", "cross_attention"] = "joint"
    cross_layers: int = CROSS_LAYERS  # layers of the decoder that get cross-attention
    encoder_layers: int = ENCODER_LAYERS  # of cross-attention

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise unknown("form", self.form, FORMS)
        if min(self.cross_layers, self.encoder_layers) < 1:
            raise UserError("training: cross_layers and encoder_layers must be at least 1")
        if self.minutes <= 0 or self.rate <= 0:
            raise UserError(f"training: minutes ({self.minutes}) and rate ({self.rate}) must be above 0")
        if min(self.batch, self.k, self.held_out) < 1 or self.chunks < 2:
            raise UserError("training: batch, k and held_out must be at least 1, chunks at least 2")


@dataclass(frozen=True)
class Example:
    """A text with the neighbours of its windows."""

    ids: list[int]
    neighbours: list[list[list[int]]]  # by window


@dataclass
class Material:
    """Texts of a database with what its retriever finds for them."""

    passages: Passages
    searcher: Searcher
    recipe: Recipe
    windows: Windows = field(default_factory=Windows)

    def example(self, start: int, random: bool = False) -> Example | None:
        """The text that begins with chunk `start`; None where its document ends before it does."""
        chunks = self.recipe.chunks
        _, ids = self.passages.passage(start, chunks - 1)
        if len(ids) < chunks * CHUNK:
            return None
        windows = range(self.windows.of(len(ids) - 2) + 1)
        if random:
            draw = Chance(self.passages, self.windows, np.random.default_rng([self.recipe.seed, start]), self.recipe.k)
            return Example(ids, [[list(text) for text in draw.neighbours(window, ids, False)] for window in windows])
        own = frozenset(range(start - 1, start + chunks))
        ask = Ask(self.searcher, self.recipe.k, passed_over=own)
        queries = [ask.query(ids[self.windows.query(window)], 1) for window in windows]
        found = self.searcher.search(queries)
        return Example(ids, [ask.texts(one, self.windows.kept(w)) for w, one in zip(windows, found, strict=True)])

    def starts(self, held_out: bool) -> list[int]:
        """The chunks that texts begin with, of the documents that are trained on or of the others."""
        documents = ((chunk, self.passages.passage(chunk, 0)[0]) for chunk in range(len(self.passages)))
        return [chunk for chunk, document in documents if (document % HELD_OUT == 0) == held_out]

    def held_out(self, random: bool) -> list[Example]:
        """The texts of the curve, spread over the documents kept apart. Raises UserError where there is none."""
        starts = self.starts(held_out=True)
        order = np.random.default_rng(self.recipe.seed).permutation(len(starts))
        texts = (self.example(starts[i], random) for i in order)
        found = [text for text, _ in zip((t for t in texts if t), range(self.recipe.held_out), strict=False)]
        if not found:
            raise UserError(f"training: no document kept apart has {self.recipe.chunks} chunks; use a larger database")
        return found


Trained = Adapters | CrossWeights


@dataclass(frozen=True)
class Form:
    """What is trained, and the loss."""

    make: Callable[[LM, Recipe], Trained]
    nll: Callable[..., torch.Tensor]  # see `differentiable.joint_nll`


def _adapters(lm: LM, recipe: Recipe) -> Adapters:
    assert lm.decoder is not None
    return Adapters(lm.decoder.weights, recipe.rank, recipe.seed)


def _cross_weights(lm: LM, recipe: Recipe) -> CrossWeights:
    assert lm.decoder is not None
    layers = cross_layers(lm.shape.layers, recipe.cross_layers)
    return CrossWeights(lm.decoder, layers, min(recipe.encoder_layers, lm.shape.layers))


FORMS = {"joint": Form(_adapters, joint_nll), "cross_attention": Form(_cross_weights, cross_nll)}


@dataclass
class Trainer:
    """A form's weights in training, with all that is needed to go on after a kill: the folder's `state.pt`."""

    lm: LM
    material: Material
    folder: Path
    about: dict[str, str]  # of the file of weights: which model they belong to

    def __post_init__(self) -> None:
        assert self.lm.decoder is not None
        self.recipe = self.material.recipe
        self.form = FORMS[self.recipe.form]
        self.trained = self.form.make(self.lm, self.recipe)
        self.optimizer = torch.optim.AdamW(self.trained.groups(), lr=self.recipe.rate, weight_decay=0.0)
        self.step, self.spent_s = 0, 0.0
        self.curve: list[dict[str, float]] = []

    @property
    def path(self) -> Path:
        """What was trained."""
        return self.folder / "adapters.safetensors"

    def run(self) -> Path:
        """Train until the budget is spent; returns where the weights lie.

        Raises:
            UserError: the folder holds another training's state; the database is too small; the disk is full.
        """
        self._resume()
        if self.spent_s >= self.budget_s:
            self._write()
            return self.path
        texts = {name: self.material.held_out(random=name == "random") for name in ("retrieved", "random")}
        if not self.curve:
            self._mark(texts)
        batches, marked_s, started = self._batches(), self.spent_s, time.perf_counter() - self.spent_s
        while self.spent_s < self.budget_s:
            loss = self._learn(next(batches))
            self.spent_s = time.perf_counter() - started
            if self.spent_s - marked_s >= self.recipe.curve_every_s or self.spent_s >= self.budget_s:
                self._mark(texts, training=loss)
                self.spent_s = marked_s = time.perf_counter() - started
        self._write()  # with the seconds of the last point
        return self.path

    @property
    def budget_s(self) -> float:
        """Seconds of wall-clock time that training may take."""
        return 60 * self.recipe.minutes

    def loss(self, text: Example) -> torch.Tensor:
        """Mean negative log-likelihood of the tokens after the first query, in nats."""
        assert self.lm.decoder is not None
        windows = self.material.windows
        return self.form.nll(self.lm.decoder, self.trained, text.ids, text.neighbours, windows).mean()

    def _learn(self, batch: Sequence[Example]) -> float:
        rate = self.recipe.rate * self._schedule()
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for text in batch:
            loss = self.loss(text) / len(batch)
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(self.trained.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        return total

    def _schedule(self) -> float:
        """The share of the learning rate: a linear warm-up in steps, then a cosine over the budget."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, self.spent_s / self.budget_s)))
        return min(1.0, (self.step + 1) / self.recipe.warmup) * (LEAST_RATE + (1 - LEAST_RATE) * cosine)

    def _batches(self) -> Iterator[list[Example]]:
        """Texts without end in a random order that the step decides, so that a resumed training sees new ones."""
        starts = self.material.starts(held_out=False)
        draw, batch = np.random.default_rng([self.recipe.seed, self.step]), list[Example]()
        misses = 0
        while starts:
            text = self.material.example(starts[int(draw.integers(len(starts)))])
            misses = 0 if text else misses + 1
            if misses > 1000:
                break
            if text:
                batch.append(text)
            if len(batch) == self.recipe.batch:
                yield batch
                batch = []
        raise UserError(f"training: no document has {self.recipe.chunks} chunks; use a larger database")

    @torch.no_grad()
    def _mark(self, texts: dict[str, list[Example]], **point: float) -> None:
        """Measure the held-out loss, and put what was learnt on disk."""
        held_out = {f"held_out_{name}": float(np.mean([float(self.loss(t)) for t in ts])) for name, ts in texts.items()}
        self.curve.append({"step": self.step, "seconds": round(self.spent_s, 3), **held_out, **point})
        logger.info("%s", " ".join(f"{key} {value:.4g}" for key, value in self.curve[-1].items()))
        self._write()

    def _write(self) -> None:
        """Put weights, curve and state on disk."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.trained.save(self.path, **self.about)
        replace_atomically(self.folder / "curve.jsonl", "".join(json.dumps(p) + "\n" for p in self.curve).encode())
        replace_atomically(self.folder / "state.pt", _as_bytes(self._state()))

    def _state(self) -> dict[str, Any]:
        return {
            "fingerprint": self._fingerprint(),
            "trained": self.trained.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "spent_s": self.spent_s,
            "curve": self.curve,
        }

    def _fingerprint(self) -> str:
        """Everything but the length of the training, which may be made longer."""
        recipe = {key: value for key, value in asdict(self.recipe).items() if key not in ("minutes", "curve_every_s")}
        return json.dumps({**recipe, **self.about}, sort_keys=True)

    def _resume(self) -> None:
        path = self.folder / "state.pt"
        if not path.exists():
            return
        try:
            state = torch.load(path, map_location=self.lm.device, weights_only=True)
            fingerprint = state["fingerprint"]
        except Exception as error:  # a damaged pickle fails in any way
            raise UserError(
                f"{path}: cannot be read; remove {self.folder} to train anew ({type(error).__name__})"
            ) from None
        if fingerprint != self._fingerprint():
            raise UserError(f"{path}: of another training ({fingerprint}); remove it or choose another folder")
        self.trained.load_state_dict(state["trained"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.spent_s, self.curve = state["step"], state["spent_s"], state["curve"]


def _as_bytes(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
