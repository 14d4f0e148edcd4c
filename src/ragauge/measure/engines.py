"""The engines of one process, each model loaded once for all variants, and the shapes of models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import torch

from ragauge.assets import resolver
from ragauge.config.code import engine_code
from ragauge.config.model import Served
from ragauge.cost.machine import cpu_model
from ragauge.cost.shape import Shape
from ragauge.engines import backend
from ragauge.engines.backends.openai import ServedEngine
from ragauge.engines.checkpoint import read_shape
from ragauge.engines.kernels import choice
from ragauge.engines.protocol import Capability, Engine
from ragauge.engines.recorded import RecordedEngine
from ragauge.engines.store import DocumentStore
from ragauge.errors import UserError
from ragauge.io.specifications import AnswerSpecification
from ragauge.measure.concurrency import BatchSize
from ragauge.methods.base.method import Method
from ragauge.methods.prompts.templates import set_template_arguments, wrapper


class Engines:
    """The engines of one process: a model is loaded for its first question, and once for all
    variants.
    """

    def __init__(
        self,
        threads: int | None = None,
        documents: DocumentFolder | None = None,
        batch: BatchSize = 1,
        served: Served | None = None,
    ) -> None:
        """
        Args:
            threads: of a CPU; None: torch's own choice.
            documents: where keys and values computed offline are stored for other runs; answers do
                not change.
            batch: questions answered together; auto: as many as memory allows and the processor
                gains from.
            served: how a model behind a server is reached.
        """
        self.threads = threads
        self.documents = documents
        self.batch = batch
        self.served = {"served": served.engine_options} if served else {}
        self._loaded: dict[tuple[str, bool], Engine] = {}

    def ready(self, specification: AnswerSpecification, method: Method) -> Engine:
        """The engine that answers, with the one that finds evidence if the specification has a
        finder.

        Raises:
            UserError: a model cannot be loaded, or cannot run the method.
        """
        engine = self.of(specification)
        # one that does not fit fails every question
        wrapper(specification.template, engine.tokenizer, repeats=True)
        if specification.finder and not method.finds:
            raise UserError(
                f"{specification.method}: does not search for evidence, so it cannot have a finder"
            )
        engine = self.pair(specification)
        served = specification.engine.served
        if served and served.own_cache:
            cast(ServedEngine, engine).nonce = partial(str, f"[{specification.digest[:8]}]\n")
        reason = method.refusal(engine)
        if reason:
            raise UserError(f"{specification.method} on {specification.model}: {reason}")
        return engine

    def pair(self, specification: AnswerSpecification) -> Engine:
        """The engine that answers, with the specification's finder or none.

        Raises:
            UserError: as `of`; the finder has another vocabulary, or the engine cannot have one.
        """
        engine = self.of(specification)
        if Capability.SPANS in engine.capabilities:
            searcher = None
            finder = specification.finder
            if finder:
                facts = specification.engine.model_copy(update={"max_context": finder.max_context})
                model = finder.model_dump(exclude={"max_context", "template"}) | {
                    "engine": facts,
                    "finder": None,
                }
                searcher = cast(
                    RecordedEngine, self.of(specification.model_copy(update=model), finds=True)
                )
            template = finder.template if finder else None
            try:
                cast(RecordedEngine, engine).set_finder(searcher, template)
            except UserError as error:
                models = f"{finder and finder.model} and {specification.model}"
                raise UserError(f"{models}: {error}") from None
        elif specification.finder:
            raise UserError(
                f"{specification.engine.name}: an engine without key-value caches cannot have a finder"
            )
        return engine

    def of(self, specification: AnswerSpecification, finds: bool = False) -> Engine:
        """The engine of a model, loaded once. `finds`: it is the one that finds evidence, whose
        calls stand in another engine's trace.

        Raises:
            UserError: the model cannot be loaded.
        """
        facts = {**specification.engine.model_dump(exclude={"name", "served"}), **self.served}
        key = (
            f"{specification.model} {specification.model_sha256} {specification.engine!r}",
            finds,
        )
        if key not in self._loaded:
            engine = backend.load(
                specification.model, specification.engine.name, threads=self.threads, **facts
            )
            if self.documents and Capability.SPANS in engine.capabilities:
                cast(RecordedEngine, engine).documents = self.documents.store(specification)
            self._loaded[key] = engine
        tokenizer = self._loaded[key].tokenizer
        if tokenizer is not None:
            set_template_arguments(
                tokenizer, specification.template_arguments, specification.template_date
            )
        return self._loaded[key]


@dataclass(frozen=True)
class DocumentFolder:
    """A folder that keeps the keys and values of documents for later runs, up to a size."""

    path: Path
    max_bytes: int

    def store(self, specification: AnswerSpecification) -> DocumentStore:
        """The store for the decoder that answers. Call it once the number of threads is set."""
        weights = specification.model_sha256 or specification.model
        engine = specification.engine
        stored = f"{engine.dtype} {engine.weights} {engine.kv} {engine.max_context}"
        decoder = f"{weights} {engine.name} {stored} {engine.device} {engine_code(engine.name)}"
        decoder += choice.active().digest(getattr(torch, engine.dtype or "float32"))
        # to the last bit, only there
        decoder += f" {cpu_model()} {torch.backends.cpu.get_cpu_capability()}"
        return DocumentStore(self.path, decoder, self.max_bytes)


def shape_of(specification: AnswerSpecification) -> Shape | None:
    """The decoder's shape; None for an engine without caches on a family that this package does not
    have, and for a served model.
    """
    if specification.engine.served:
        return None
    try:
        return read_shape(Path(resolver.resolve(specification.model)))
    except UserError:
        if Capability.SPANS in backend.capabilities(specification.engine.name):
            raise
        return None
