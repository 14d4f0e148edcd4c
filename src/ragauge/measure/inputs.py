"""The inputs of a run: questions and models, located, read and identified by their hashes."""

import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ragauge.assets import resolver
from ragauge.assets.pins import Pin
from ragauge.assets.store import check_sha256
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.config.experiment import specify
from ragauge.config.model import ModelEntry
from ragauge.datasets.base import loader
from ragauge.datasets.base.dataset import Dataset, Example
from ragauge.datasets.base.examples import conversations, read_examples
from ragauge.errors import UserError
from ragauge.io.files import file_sha256
from ragauge.io.specifications import AnswerSpecification
from ragauge.measure.prompting import prompt_of
from ragauge.methods.base.method import Method
from ragauge.methods.base.served import fingerprint
from ragauge.methods.evidence.account import read_account
from ragauge.methods.evidence.chat import LocalChat
from ragauge.methods.prompts import corpus_spacing
from ragauge.methods.prompts.templates import set_template_arguments

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class QuestionSource:
    """The questions of a data set, from its official records or a file that `ragauge fetch
    --dataset` wrote.
    """

    name: str  # the data set's, in the registry
    options: dict[str, Any]  # of the data set, its seed included
    official: Path | None = None  # a file in the official format; None: the data set's own source
    # file written by `ragauge fetch --dataset`; takes precedence over the official records
    written: Path | None = None
    pin: Pin | None = None  # what the official file must be, where a configuration says
    skip: int = 0  # first official records left out
    turns: int = 1  # questions of a conversation, which have those before them in front

    @cached_property
    def dataset(self) -> Dataset:
        """The data set with its options.

        Raises:
            UserError: unknown ones.
        """
        return loader.make(self.name, **self.options)

    @cached_property
    def path(self) -> Path:
        """The questions' file, made or downloaded if the data set has a source.

        Raises:
            UserError: not as pinned.
        """
        if self.written:
            return self.written
        if self.official:
            if self.pin and self.official.is_file():
                check_sha256(self.official, self.pin.sha256, "disk")
            return self.official
        return self.dataset.official(self.pin)

    def examples(self, limit: int | None = None) -> list[Example]:
        """The first `limit` questions (None: all) that are not skipped.

        Raises:
            UserError: invalid records, or none.
        """
        if self.written:
            read = read_examples(self.written)[:limit]
        else:
            last = None if limit is None else self.skip + limit
            official = loader.load(self.name, data=self.path, limit=last, **self.options)
            if self.skip >= len(official):
                raise UserError(
                    f"{self.path}: has {len(official)} questions, and skip is {self.skip}"
                )
            read = official[self.skip :]
        return conversations(read, self.turns)


def specification(
    method: Method,
    questions: QuestionSource,
    model: ModelEntry,
    max_new_tokens: int,
    finder: ModelEntry | None = None,
) -> AnswerSpecification:
    """Specify everything that the answers of a method depend on, the hashes of files included."""
    if not questions.path.is_file():
        raise UserError(f"{questions.path}: no such file")
    specified = specify(method, questions.dataset, model, max_new_tokens, finder)
    hashed: dict[str, Any] = {"data_sha256": file_sha256(questions.path), **facts(model)}
    hashed["assets"] = {asset: fingerprint(asset) for asset in method.assets()}
    if finder:
        hashed["finder"] = finder.finder_facts.model_copy(
            update=_weights(finder) | {"template": _template(finder)}
        )
    specified = specified.model_copy(update=hashed)
    if not method.reads_corpus():
        return specified
    tokenizer = load_tokenizer(resolver.resolve(model.source))
    set_template_arguments(tokenizer, specified.template_arguments, specified.template_date)
    corpus = (prompt_of(example, specified, tokenizer) for example in questions.examples())
    return specified.model_copy(update={"corpus_spacing": corpus_spacing(corpus)})


def facts(model: ModelEntry) -> dict[str, Any]:
    """The part of a specification that is about the model: its weights, how prompts are written,
    its engine.
    """
    tokenization = model.tokenization or (
        None if model.served else resolver.describe(model.source)["tokenization"]
    )
    return {
        "template": _template(model),
        "tokenization": tokenization or "whole",
        **model.template_facts,
        **_weights(model),
        "engine": model.engine_facts,
    }


def _template(model: ModelEntry) -> str:
    read_account(model.source).check(vars(model), model.source)
    return model.template or ("chat" if model.served else template_of(model.source))


def _weights(model: ModelEntry) -> dict[str, Any]:
    """A model's source and the hash of its weights, which a server does not tell."""
    if model.served:
        return {"model": model.source}
    resolver.resolve(model.source)
    return {"model": model.source, "model_sha256": resolver.describe(model.source)["sha256"]}


def template_of(source: str) -> str:
    """The template that the catalog names, or that a training here used; else `chat`, or `plain`
    without one. A copy of a model of the catalog is known by its weights. A choice that nothing but
    the tokenizer tells is said.
    """
    folder = resolver.resolve(source)
    trained_in = read_account(source).wrapping.get("template")
    if known := resolver.describe(source)["template"] or trained_in:
        return str(known)
    guessed, why = (
        ("chat", "has one")
        if load_tokenizer(folder).chat_template
        else ("plain", "has no chat template")
    )
    logger.info(
        "%s: prompts in the template %r, as its tokenizer %s; `template` chooses another",
        source,
        guessed,
        why,
    )
    return guessed


def local_chat(source: str, **engine_options: Any) -> LocalChat:
    """Load a model on this machine that replies to requests."""
    from ragauge.engines.loading import load_lm

    return LocalChat(load_lm(source, **engine_options), template_of(source), source)
