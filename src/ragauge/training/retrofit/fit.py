"""RETRO-fit training: the weights that a form of reading neighbours adds to a decoder; the decoder is frozen.

Training text is the database's own: three chunks of a document in a row, with the neighbours that the retriever finds
for their windows; chunks that overlap the text are skipped, as they would contain the answer. One
document in ten is kept apart for a curve of the loss on text that was not trained on, measured with retrieved and with
random neighbours: training that lowers both alike has only learnt to read more text.

The budget is wall-clock time, and the learning rate falls with the share of it that is spent. The weights are written
at every point of the curve; an interrupted training resumes from there with the time that it has left.
"""

from __future__ import annotations

import io
import json
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ragauge.engines import LM
from ragauge.errors import UserError
from ragauge.generation.sources import Ask, Chance, Passages
from ragauge.generation.windows import CHUNK, Windows
from ragauge.io.files import replace_atomically
from ragauge.retrieval.retriever import Searcher
from ragauge.training.engine import update
from ragauge.training.loop import Progress, Training
from ragauge.training.settings import RetrofitSettings

logger = logging.getLogger(__name__)

HELD_OUT = 10  # one document in this many is not trained on
LEAST_RATE = 0.1  # of the learning rate, at the budget's end


@dataclass(frozen=True)
class NeighbourExample:
    """A text with the neighbours of its windows."""

    ids: list[int]
    neighbours: list[list[list[int]]]  # by window


@dataclass
class RetrofitMaterial:
    """Texts of a database with the neighbours that its retriever finds."""

    passages: Passages
    searcher: Searcher
    settings: RetrofitSettings
    windows: Windows = field(default_factory=Windows)

    def example(self, start: int, random: bool = False) -> NeighbourExample | None:
        """The text that begins with chunk `start`; None if its document ends first."""
        chunks = self.settings.chunks
        _, ids = self.passages.passage(start, chunks - 1)
        if len(ids) < chunks * CHUNK:
            return None
        windows = range(self.windows.of(len(ids) - 2) + 1)
        if random:
            draw = Chance(
                self.passages, self.windows, np.random.default_rng([self.settings.seed, start]), self.settings.k
            )
            return NeighbourExample(
                ids, [[list(text) for text in draw.neighbours(window, ids, False)] for window in windows]
            )
        own = frozenset(range(start - 1, start + chunks))
        ask = Ask(self.searcher, self.settings.k, passed_over=own)
        queries = [ask.query(ids[self.windows.query(window)], 1) for window in windows]
        found = self.searcher.search(queries)
        return NeighbourExample(
            ids, [ask.texts(one, self.windows.kept(w)) for w, one in zip(windows, found, strict=True)]
        )

    def starts(self, held_out: bool) -> list[int]:
        """The chunks that texts start with, in documents that are trained on or in the others."""
        documents = ((chunk, self.passages.passage(chunk, 0)[0]) for chunk in range(len(self.passages)))
        return [chunk for chunk, document in documents if (document % HELD_OUT == 0) == held_out]

    def held_out(self, random: bool) -> list[NeighbourExample]:
        """The texts of the curve, spread over the held-out documents. Raises UserError if there is none."""
        starts = self.starts(held_out=True)
        order = np.random.default_rng(self.settings.seed).permutation(len(starts))
        texts = (self.example(starts[i], random) for i in order)
        found = [text for text, _ in zip((t for t in texts if t), range(self.settings.held_out), strict=False)]
        if not found:
            raise UserError(f"no held-out document has {self.settings.chunks} chunks; use a larger database")
        return found


Point = dict[str, float]
"""A point of the curve: step, seconds, held-out losses, and the loss of the step before."""


class RetroFit(Training[Point]):
    """Training of one form's weights; the folder's `state.pt` holds all that a killed run needs to resume."""

    def __init__(self, lm: LM, material: RetrofitMaterial, folder: Path, about: dict[str, str]) -> None:
        """
        Args:
            about: metadata for the file of weights: the model that they belong to.
        """
        self.settings = material.settings
        kept = self.settings.model_dump(exclude={"minutes", "curve_every_s"})  # a training may be extended
        super().__init__(json.dumps({**kept, **about}, sort_keys=True))
        self.lm, self.material, self.folder, self.about = lm, material, folder, about
        self.form = self.settings.training
        self.trained = self.form.make(lm, self.settings.seed)
        self.optimizer = torch.optim.AdamW(self.trained.groups(), lr=self.settings.rate, weight_decay=0.0)
        self._batches: Iterator[list[NeighbourExample]] | None = None
        self._measured_s = 0.0  # when the curve got its last point

    @property
    def path(self) -> Path:
        """The file of trained weights."""
        return self.folder / "adapters.safetensors"

    def train(self) -> Path:
        """Train until the budget is spent; returns the file of weights.

        Raises:
            UserError: the folder holds another training's state; the database is too small; the disk is full.
        """
        self.resume()
        if not self.is_over():
            if not self.progress.curve:
                self.measure()
                self.save()
            self.held_out  # noqa: B018 (its texts are found before the clock starts)
            self.run()
        self.save()  # the file of weights may have been removed since the training
        return self.path

    def loss(self, text: NeighbourExample) -> torch.Tensor:
        """Mean negative log-likelihood of the tokens after the first query, in nats."""
        windows = self.material.windows
        return self.form.nll(self.lm.decoder, self.trained, text.ids, text.neighbours, windows).mean()

    def learn(self) -> float:
        """See `Training.learn`."""
        if self._batches is None:
            self._batches = self._drawn()
        return self.learn_from(next(self._batches))

    def learn_from(self, batch: Sequence[NeighbourExample]) -> float:
        """Take a step on these texts; returns their mean loss."""
        rate = self.settings.rate * self._schedule()
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"]
        return update(self.optimizer, map(self.loss, batch), len(batch), clip=1.0)

    def is_over(self) -> bool:
        """See `Training.is_over`."""
        return self.progress.seconds >= 60 * self.settings.minutes

    def is_measured(self) -> bool:
        """See `Training.is_measured`."""
        return self.progress.seconds - self._measured_s >= self.settings.curve_every_s

    def is_saved(self) -> bool:
        """See `Training.is_saved`: whenever the curve has a new point."""
        return bool(self.progress.curve[-1]["step"] == self.progress.step)

    def _schedule(self) -> float:
        """The share of the learning rate: a linear warm-up in steps, then a cosine over the budget."""
        spent = min(1.0, self.progress.seconds / (60 * self.settings.minutes))
        cosine = 0.5 * (1 + math.cos(math.pi * spent))
        return min(1.0, (self.progress.step + 1) / self.settings.warmup) * (LEAST_RATE + (1 - LEAST_RATE) * cosine)

    def _drawn(self) -> Iterator[list[NeighbourExample]]:
        """Endless texts in a random order that depends on the step, so that a resumed training sees new ones."""
        starts = self.material.starts(held_out=False)
        draw, batch = np.random.default_rng([self.settings.seed, self.progress.step]), list[NeighbourExample]()
        misses = 0
        while starts:
            text = self.material.example(starts[int(draw.integers(len(starts)))])
            misses = 0 if text else misses + 1
            if misses > 1000:
                break
            if text:
                batch.append(text)
            if len(batch) == self.settings.batch:
                yield batch
                batch = []
        raise UserError(f"no document has {self.settings.chunks} chunks; use a larger database")

    @cached_property
    def held_out(self) -> dict[str, list[NeighbourExample]]:
        """The texts of the curve, with retrieved and with random neighbours."""
        return {name: self.material.held_out(random=name == "random") for name in ("retrieved", "random")}

    @torch.no_grad()
    def measure(self, loss: float | None = None) -> None:
        """See `Training.measure`: the loss on texts held out."""
        point = {"step": self.progress.step, "seconds": round(self.progress.seconds, 3)}
        for name, texts in self.held_out.items():
            point[f"held_out_{name}"] = float(np.mean([float(self.loss(text)) for text in texts]))
        self.progress.curve.append(point if loss is None else {**point, "training": loss})
        logger.info("%s", " ".join(f"{key} {value:.4g}" for key, value in self.progress.curve[-1].items()))

    def save(self) -> None:
        """See `Training.save`: weights, curve and state."""
        self._measured_s = self.progress.seconds
        self.folder.mkdir(parents=True, exist_ok=True)
        self.trained.save(self.path, **self.about)
        curve = "".join(json.dumps(point) + "\n" for point in self.progress.curve)
        replace_atomically(self.folder / "curve.jsonl", curve.encode())
        replace_atomically(self.folder / "state.pt", _as_bytes(self._state()))

    def _state(self) -> dict[str, Any]:
        progress = asdict(self.progress)
        weights = {"trained": self.trained.state_dict(), "optimizer": self.optimizer.state_dict()}
        return {**weights, "spent_s": progress.pop("seconds"), **progress}

    def resume(self) -> None:
        """Resume from the folder's state. Raises UserError if it is damaged or belongs to another training."""
        path = self.folder / "state.pt"
        if not path.exists():
            return
        try:
            state = torch.load(path, map_location=self.lm.device, weights_only=True)
            fingerprint = state["fingerprint"]
        except Exception as error:  # a damaged pickle fails in any way
            raise UserError(
                f"{path}: cannot be read; remove {self.folder} to start again ({type(error).__name__})"
            ) from None
        if fingerprint != self.progress.fingerprint:
            raise UserError(f"{path}: of another training ({fingerprint}); remove it or choose another folder")
        self.trained.load_state_dict(state["trained"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.progress = Progress(fingerprint, state["step"], state["spent_s"], state["curve"])
        self._measured_s = self.progress.seconds


def _as_bytes(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
