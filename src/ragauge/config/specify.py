"""States what the records of a method variant depend on, as far as the configuration says it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ragauge.io.specifications import AnswerSpecification, EngineFacts, FinderFacts, ServedFacts

if TYPE_CHECKING:
    from ragauge.config.schema import ModelEntry
    from ragauge.datasets import Dataset
    from ragauge.methods import Method


def specify(
    name: str,
    method: Method,
    dataset_name: str,
    dataset: Dataset,
    model: ModelEntry,
    max_new_tokens: int,
    finder: ModelEntry | None = None,
) -> AnswerSpecification:
    """The specification without the hashes of files, which are read where a job runs.

    Args:
        name, dataset_name: of the method and of the data set in the registry.
        finder: the model that finds evidence, if it is a different one.
    """
    return AnswerSpecification(
        method=name,
        options=asdict(method),
        dataset=dataset_name,
        dataset_options=asdict(dataset),
        instruction=dataset.preamble,
        max_new_tokens=max_new_tokens,
        model=model.source,
        template=model.template or "",
        engine=engine_facts(model),
        finder=finder_facts(finder) if finder else None,
    )


def engine_facts(model: ModelEntry) -> EngineFacts:
    """The engine of a model, as far as its answers depend on it; a served model runs as its server decides."""
    served = model.served and ServedFacts(tokenizer=model.served.tokenizer, body=model.served.body)
    return EngineFacts(
        name=model.engine,
        dtype=None if served else model.dtype,
        device=None if served else model.device,
        max_context=model.max_context,
        weights=model.weights,
        kv=model.kv,
        served=served,
    )


def finder_facts(model: ModelEntry) -> FinderFacts:
    """The model that finds evidence; it runs in the data type and on the device of the one that answers."""
    return FinderFacts(model=model.source, max_context=model.max_context, template=model.template)
