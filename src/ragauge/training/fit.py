"""RETRO-fit: trains the weights that an attention mode adds to a frozen decoder (docs/piperag.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch
from torch import Tensor

from ragauge import registry
from ragauge.assets import resolver
from ragauge.engines.lm import LM
from ragauge.errors import UserError
from ragauge.io.digest import digest
from ragauge.io.files import os_errors_as_user_errors, replace_atomically, text_sha256
from ragauge.io.jsonl import json_lines
from ragauge.pipelines.database.database import Database
from ragauge.pipelines.modes.base import Checkpoint, mode_class
from ragauge.pipelines.reader import Tokens
from ragauge.pipelines.retrieval.retriever import Searcher
from ragauge.pipelines.sources import RandomNeighbours, RetrievalOptions
from ragauge.pipelines.windows import CHUNK, Windows, check_chunk_tokens
from ragauge.training.settings import RetrofitSettings
from ragauge.training.trainer import TimedTrainer

if TYPE_CHECKING:
    from ragauge.pipelines.job import Servers

HELD_OUT = 10  # one document in this many is not trained on
LEAST_RATE = 0.1  # of the learning rate, at the budget's end
WINDOWS = Windows()  # of training texts
MOST_STEPS = 1 << 24  # time ends a training long before


class NeighbourExample(TypedDict):
    """A text with the neighbours of its windows."""

    ids: list[int]
    neighbours: Sequence[Sequence[Tokens]]  # by window


@dataclass
class RetrofitMaterial:
    """Texts of a database with the neighbours that its retriever finds."""

    passages: Database
    searcher: Searcher
    settings: RetrofitSettings

    def text(self, start: int) -> list[int]:
        """Return the tokens of the text that begins with chunk `start`; none if its document ends
        first.
        """
        chunks = self.settings.chunks
        _, ids = self.passages.passage(start, chunks - 1)
        return ids if len(ids) == chunks * CHUNK else []

    def example(self, start: int, random: bool = False) -> NeighbourExample:
        """Return the text that begins with chunk `start`, which its document has in full."""
        chunks = self.settings.chunks
        ids = self.text(start)
        windows = range(WINDOWS.window_at(len(ids) - 2) + 1)
        if random:
            rng = np.random.default_rng([self.settings.seed, start])
            draw = RandomNeighbours(self.passages, rng, self.settings.k)
            drawn = [draw.neighbours(window, ids, False) for window in windows]
            return {"ids": ids, "neighbours": drawn}
        own_chunks = frozenset(range(start - 1, start + chunks))  # they would contain the answer
        retrieval = RetrievalOptions(self.searcher, self.settings.k, excluded_chunks=own_chunks)
        results = self.searcher.search(
            [retrieval.query(ids[WINDOWS.query(window)], 1) for window in windows]
        )
        parts = (WINDOWS.part(window) for window in windows)
        return {"ids": ids, "neighbours": list(map(retrieval.texts, results, parts))}

    def starts(self, held_out: bool) -> list[int]:
        """Return the chunks that texts start with, in documents that are held out or in the others."""
        documents = (
            (chunk, self.passages.passage(chunk, 0)[0]) for chunk in range(len(self.passages))
        )
        return [chunk for chunk, document in documents if (document % HELD_OUT == 0) == held_out]

    def draw_starts(self) -> Iterator[int]:
        """Endless chunks that training texts start with, in a random order, fixed by the seed.

        Raises:
            UserError: no document is long enough.
        """
        starts = self.starts(held_out=False)
        if not any(map(self.text, starts)):
            raise UserError(f"no document has {self.settings.chunks} chunks; use a larger database")
        draw = np.random.default_rng([self.settings.seed, 0])
        while True:
            start = starts[int(draw.integers(len(starts)))]
            if self.text(start):
                yield start

    def held_out(self, random: bool) -> list[NeighbourExample]:
        """Return the texts of the curve, spread over the held-out documents.

        Raises:
            UserError: there is none.
        """
        starts = self.starts(held_out=True)
        order = np.random.default_rng(self.settings.seed).permutation(len(starts))
        whole = (starts[i] for i in order if self.text(starts[i]))
        examples = [self.example(start, random) for start in islice(whole, self.settings.held_out)]
        if not examples:
            raise UserError(
                f"no held-out document has {self.settings.chunks} chunks; use a larger database"
            )
        return examples


class RetroFit(TimedTrainer):
    reports_every_step = False

    def __init__(
        self, lm: LM, material: RetrofitMaterial, out: Path, about: dict[str, str]
    ) -> None:
        """`out`: the folder of all files; `about`: metadata of the weights, all that they depend on
        besides the settings, by which a training that was killed is known.

        Raises:
            UserError: as `RetrofitMaterial.held_out`.
        """
        self.settings = material.settings
        self.lm = lm
        self.material = material
        self.out = out
        self.about = about
        self.upcoming_starts: Iterator[int] | None = None
        # a training may be extended
        fixed = self.settings.model_dump(exclude={"minutes", "curve_every_s"})
        folder = out / "checkpoints" / text_sha256(fixed, about)[:16]
        self.held_out = {
            name: material.held_out(random=name == "random") for name in ("retrieved", "random")
        }
        super().__init__(
            mode_class(self.settings.mode).untrained(lm, self.settings.seed),
            folder,
            self.settings.minutes,
            MOST_STEPS,
            gradient_accumulation_steps=self.settings.batch,
            max_grad_norm=1.0,
            use_cpu=lm.device.type == "cpu",
        )

    def fit(self) -> Path:
        """Train until the budget is spent, and write the curve and the weights; returns the file of
        weights.
        """
        curve = []
        loss = {}
        for point in self.run():
            if "loss" in point:
                loss = {"training": point["loss"]}  # of the step before
            else:
                del point["learning_rate"], point["epoch"]
                curve.append({**point, **loss})
        path = self.out / "adapters.safetensors"
        with os_errors_as_user_errors(path):
            replace_atomically(self.out / "curve.jsonl", json_lines(curve))
            self.model.save(path, **self.about)
            self.remove_others()
        return path

    def example(self, number: int) -> NeighbourExample:
        if self.upcoming_starts is None:  # a resumed run goes on behind the texts of those before
            self.upcoming_starts = islice(self.material.draw_starts(), number, None)
        return self.material.example(next(self.upcoming_starts))

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        groups = [
            {"params": params, "lr": self.settings.rate * share}
            for params, share in self.model.groups()
        ]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
        return self.optimizer

    def rate(self, step: int) -> float:
        """See `TimedTrainer.rate`: a linear warm-up in steps, then a cosine over the budget."""
        spent = min(1.0, self.seconds / (60 * self.settings.minutes))
        cosine = 0.5 * (1 + math.cos(math.pi * spent))
        return min(1.0, (step + 1) / self.settings.warmup) * (
            LEAST_RATE + (1 - LEAST_RATE) * cosine
        )

    def compute_loss(self, model: Any, inputs: NeighbourExample, *_: Any, **__: Any) -> Tensor:
        """See `Trainer.compute_loss`: mean negative log-likelihood of the tokens after the first
        query, in nats.
        """
        return model.nll(self.lm.decoder, inputs["ids"], inputs["neighbours"], WINDOWS).mean()

    def measure(self) -> dict[str, float]:
        return {
            f"held_out_{name}": float(
                np.mean([float(self.compute_loss(self.model, text)) for text in texts])
            )
            for name, texts in self.held_out.items()
        }

    def pauses(self, step: int) -> tuple[bool, bool]:
        is_late = self.seconds - self.measured_s >= self.settings.curve_every_s
        return is_late, is_late


def train(
    settings: RetrofitSettings, checkpoint: Checkpoint, folder: Path, servers: Servers, out: Path
) -> Path:
    """Train the weights of a mode on a database's texts; returns their file.

    Args:
        settings: of the training.
        checkpoint: the decoder that is frozen.
        folder: the chunk database.
        servers: where its index is searched.
        out: folder of the weights, the curve and the checkpoints.

    Raises:
        UserError: a file or a server is missing or of another build, a server's chunks were cut
            otherwise, or no document is long enough.
    """
    database = Database(folder)
    check_chunk_tokens(database.chunk_tokens, str(folder))
    lm = checkpoint.decoder()
    database.check_tokenizer(lm.tokenizer, checkpoint.model)
    origin = {
        "model": checkpoint.model,
        "model_sha256": resolver.describe(checkpoint.model)["sha256"],
        "database_sha256": database.sha256,
        "code": digest("ragauge.training.fit", registry.module_name("mode", settings.mode)),
    }
    with ExitStack() as opened:
        servers = servers.started(opened)
        searcher = servers.connect(database, opened)
        origin["index_sha256"] = servers.index_sha256()
        material = RetrofitMaterial(database, searcher, settings)
        return RetroFit(lm, material, out, origin).fit()
