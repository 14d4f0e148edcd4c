"""A planned run: every variant of a configuration, without records. Tables then say what will be filled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragauge.io.specifications import AnswerSpecification, EngineFacts, FinderFacts
from ragauge.results.runs import Runs, Variant

if TYPE_CHECKING:
    from ragauge.config.schema import Config


def planned(config: Config, predictions: list[dict[str, Any]]) -> Runs:
    """The runs of a configuration, as the items read them.

    Args:
        predictions: the rows of `ragauge cost --published`, which need no run.
    """
    unrun = Runs(Path("results") / config.run / "planned", config)
    made = Runs(unrun.folder, config)
    vars(made).update(
        variants=tuple(_planned(config, variant) for variant in unrun.variants),
        latencies=tuple(_latencies(config)),
        predictions=tuple(predictions),
    )
    return made


def _planned(config: Config, variant: Variant) -> Variant:
    """The variant as if it had run."""
    model = config.models[variant.model]
    finder = FinderFacts(model=config.models[model.finder].source) if model.finder else None
    made = replace(
        variant,
        missing=None,
        specification=AnswerSpecification(
            method=variant.method,
            options=dict(variant.options),
            dataset=config.datasets[variant.dataset].dataset,
            model=model.source,
            finder=finder,
            engine=EngineFacts(device=model.device),
        ),
    )
    vars(made)["records"] = {}
    return made


def _latencies(config: Config) -> list[dict[str, Any]]:
    """The files of the latency protocols, without trials."""
    return [
        {
            "model": label,
            "dataset": protocol.dataset,
            "protocol": {"device": model.device},
            "rows": [{"variant": name} for name in protocol.methods],
        }
        for protocol in config.protocols
        for label, model in config.models.items()
        if model.datasets is None or protocol.dataset in model.datasets
    ]
