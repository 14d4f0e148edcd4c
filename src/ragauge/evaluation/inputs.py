"""What a method is run on: the questions and the model, found, read and identified by their hashes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ragauge import assets, datasets
from ragauge.assets.tokenizer import load_tokenizer
from ragauge.datasets import Dataset, Example
from ragauge.datasets._examples import read
from ragauge.errors import UserError
from ragauge.evaluation.runner import Setting
from ragauge.experiment.schema import Model
from ragauge.io.digest import digest
from ragauge.io.folders import file_sha256
from ragauge.methods import Method


@dataclass(frozen=True)
class Questions:
    """The questions of a data set, from a file that `ragauge data` wrote or from the data set's official records."""

    name: str  # the data set's, in the registry
    options: dict[str, Any]  # of the data set, its seed included
    official: Path | None = None  # a file in the official format; None is the data set's own source
    written: Path | None = None  # what `ragauge data` wrote; comes before the official records

    @cached_property
    def dataset(self) -> Dataset:
        """The data set with its options; raises UserError on unknown ones."""
        return datasets.make(self.name, **self.options)

    @cached_property
    def path(self) -> Path:
        """The file that the questions are read from; made or downloaded where the data set has its own source."""
        return self.written or self.official or self.dataset.default_path()

    def examples(self, limit: int | None = None) -> list[Example]:
        """The first questions (all where None). Raises UserError naming the line of a record that cannot be asked."""
        if self.written:
            return read(self.written)[:limit]
        return datasets.load(self.name, data=self.path, limit=limit, **self.options)


def setting(
    name: str, method: Method, questions: Questions, model: Model, max_new_tokens: int, finder: Model | None = None
) -> Setting:
    """Everything that the answers of `method`, registered as `name`, depend on.

    Args:
        finder: the model that finds evidence, where it is not the one that answers; in the latter's dtype and place.
    """
    weights = _weights(model)
    if not questions.path.is_file():
        raise UserError(f"{questions.path}: no such file")
    return Setting(
        method=name,
        options=asdict(method),
        dataset=questions.name,
        **weights,
        template=model.template or template_of(model.source),
        instruction=questions.dataset.preamble,
        dtype=model.dtype,
        device=model.device,
        max_new_tokens=max_new_tokens,
        dataset_options=questions.options,
        data_sha256=file_sha256(questions.path),
        finder=_weights(finder) if finder else None,
        code=digest("ragauge.evaluation.runner", f"ragauge.methods.{name}"),
    )


def _weights(model: Model) -> dict[str, Any]:
    """A model's part of a setting."""
    assets.resolve(model.source)
    sha256 = assets.describe(model.source)["sha256"]
    return {"model": model.source, "model_sha256": sha256, "max_context": model.max_context}


def template_of(source: str) -> str:
    """What the catalog says of a model, else its tokenizer's own chat template where it has one."""
    catalogued = assets.describe(source)["template"]
    if catalogued:
        return str(catalogued)
    return "chat" if load_tokenizer(assets.resolve(source)).chat_template else "plain"
