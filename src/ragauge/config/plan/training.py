"""Jobs of the fine-tunings: what they are trained on, and the training itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ragauge.config import resources
from ragauge.config.plan.part import ALONE, Labels, PlanPart, manifest
from ragauge.config.plan.retrieval import corpus_files
from ragauge.retrieval.corpus import is_asset
from ragauge.training.settings import ENDPOINT, TrainingSettings


class TrainingPlan(PlanPart):
    """Labels: training."""

    def sources(self) -> Iterator[str]:
        """The assets that these jobs read."""
        for entry in self.config.training.values():
            yield entry.model
            yield from (corpus for corpus in entry.corpora if is_asset(corpus))
            if entry.writer != ENDPOINT:
                yield entry.writer

    def data_settings(self, labels: Labels) -> dict[str, Any]:
        """What the training data depends on."""
        return self._entry(labels).data().model_dump()

    def corpora(self, labels: Labels) -> list[str]:
        """The files that articles are read from, of catalogued corpora the manifests; the hub's are streams."""
        return corpus_files(self._entry(labels).corpora)

    def writer(self, labels: Labels) -> str | list[str]:
        """The manifest of the model that writes questions, unless an endpoint does."""
        writer = self._entry(labels).writer
        return [] if writer == ENDPOINT else manifest(writer)

    def evaluation(self, labels: Labels) -> list[str]:
        """The questions that models of this training are asked: it must not see their documents."""
        return [self.paths.data.format(dataset=dataset) for dataset in self.limits(labels)]

    def limits(self, labels: Labels) -> dict[str, int | None]:
        """How many of them, a change of which changes what may be trained on."""
        return self.config.evaluation(labels.training)

    def gpus(self, labels: Labels) -> int:
        entry = self._entry(labels)
        return entry.processes if entry.device == "cuda" else 0

    def mem_mb(self, labels: Labels, attempt: int) -> int:
        """More in a further attempt."""
        return attempt * resources.memory_mb(self._entry(labels))

    def runtime(self, labels: Labels) -> int:
        """Minutes."""
        return resources.minutes(self._entry(labels))

    def threads(self, labels: Labels) -> int:
        """All cores of a CPU; on GPUs a core a process feeds it."""
        entry = self._entry(labels)
        return self.cores if entry.device == "cpu" else entry.processes

    def node(self, labels: Labels) -> str:
        """A whole machine for a CPU's training, which takes all of its cores."""
        return ALONE if self._entry(labels).device == "cpu" else ""

    def _entry(self, labels: Labels) -> TrainingSettings:
        return self.config.training[labels.training]
