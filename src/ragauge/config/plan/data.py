"""Jobs that write the questions of data sets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragauge import datasets, registry
from ragauge.config.plan.part import Labels, PlanPart, code_of, manifest


class DataPlan(PlanPart):
    """Label: dataset."""

    def sources(self) -> Iterator[str]:
        """The assets that these jobs read."""
        yield from (asset for label in self.config.datasets for asset in self.kind(label).assets)

    def kind(self, dataset: str) -> type[datasets.Dataset]:
        """The class behind a data set's label."""
        return registry.component("dataset", self.config.datasets[dataset].dataset, datasets.Dataset)

    def file(self, labels: Labels) -> str | list[str]:
        """The official file that the configuration names, or the questions that the package ships; else nothing."""
        entry = self.config.datasets[labels.dataset]
        shipped = Path(os.path.relpath(datasets.__file__)).parent / "questions" / f"{entry.dataset}.jsonl"
        return entry.data or ([str(shipped)] if shipped.is_file() else [])

    def assets(self, labels: Labels) -> list[str]:
        """The manifests of the assets that a data set without a file of its own is made from."""
        has_file = self.config.datasets[labels.dataset].data
        return [] if has_file else list(map(manifest, self.kind(labels.dataset).assets))

    def settings(self, labels: Labels) -> dict[str, Any]:
        """The keys that the questions depend on."""
        entry = self.config.datasets[labels.dataset]
        keys = entry.model_dump(include={"dataset", "data", "options", "revision", "sha256"}, exclude_none=True)
        return {**keys, "seed": self.config.dataset_seed(labels.dataset)}

    def code(self, labels: Labels) -> str:
        """The code that reads the official file and turns a record into a question."""
        dataset = registry.module_name("dataset", self.config.datasets[labels.dataset].dataset)
        return code_of("datasets._examples", components=[dataset])
