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
    made = Runs(Path("results") / config.run / "planned", config)
    latencies = []
    for protocol in config.protocols:
        rows = [{"variant": name} for name in protocol.methods]  # without trials
        for label, model in config.models.items():
            if model.datasets is None or protocol.dataset in model.datasets:
                labels = {"model": label, "dataset": protocol.dataset}
                latencies.append({**labels, "protocol": {"device": model.device}, "rows": rows})
    variants = tuple(_planned(config, variant) for variant in made.variants)
    vars(made).update(variants=variants, latencies=tuple(latencies), predictions=tuple(predictions))
    return made


def _planned(config: Config, variant: Variant) -> Variant:
    model = config.models[variant.model]
    specification = AnswerSpecification(
        method=variant.method,
        options=dict(variant.options),
        dataset=config.datasets[variant.dataset].dataset,
        model=model.source,
        finder=FinderFacts(model=config.models[model.finder].source) if model.finder else None,
        engine=EngineFacts(device=model.device),
    )
    made = replace(variant, missing=None, specification=specification)
    vars(made)["records"] = {}
    return made
