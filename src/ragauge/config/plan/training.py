"""Jobs of the fine-tunings: what they are trained on, and the training itself."""

from collections.abc import Iterator
from math import ceil
from typing import Any

from ragauge.config.plan.contents import contents
from ragauge.config.plan.part import ALONE, Labels, PlanPart, manifest
from ragauge.config.plan.retrieval import corpus_files, local_files
from ragauge.cost import shapes
from ragauge.cost.flop import parameters
from ragauge.pipelines.database.corpus import is_asset
from ragauge.training.settings import ENDPOINT, TrainingSettings

LIBRARIES_MB = 4000  # of the libraries, the documents and activations of a small model
MIN_MB = 8000
RUNTIME = 1440  # minutes
LOADED_BYTES = 4  # of a parameter: every process loads float32 before its GPU has it
# of a parameter: weights, gradients, the optimizer's weights and AdamW's two moments in float32
TRAINED_BYTES = 20
MIN_DATA_MINUTES = 240
QUESTION_S = 3.0  # requested for any data, and expected for each question of an endpoint


class TrainingPlan(PlanPart):
    """Labels: training."""

    def sources(self) -> Iterator[str]:
        for entry in self.config.training.values():
            yield entry.model
            yield from (corpus for corpus in entry.corpora if is_asset(corpus))
            if entry.writer != ENDPOINT:
                yield entry.writer

    def data_settings(self, labels: Labels) -> dict[str, Any]:
        entry = self._entry(labels)
        return {**entry.data().model_dump(), "contents": contents(local_files(entry.corpora))}

    def corpora(self, labels: Labels) -> list[str]:
        """Return the files that articles are read from, of catalogued corpora the manifests; the
        hub's are streams.
        """
        return corpus_files(self._entry(labels).corpora)

    def writer(self, labels: Labels) -> str | list[str]:
        """Return the manifest of the model that writes questions, unless an endpoint does."""
        writer = self._entry(labels).writer
        return [] if writer == ENDPOINT else manifest(writer)

    def evaluation(self, labels: Labels) -> list[str]:
        """Return the questions that models of this training are asked: it must not see their
        documents.
        """
        return [self.paths.data.format(dataset=dataset) for dataset in self.limits(labels)]

    def limits(self, labels: Labels) -> dict[str, int | None]:
        """Return how many of them, a change of which changes what may be trained on."""
        return self.config.evaluation(labels.training)

    def gpus(self, labels: Labels) -> int:
        entry = self._entry(labels)
        return entry.processes if entry.device == "cuda" else 0

    def mem_mb(self, labels: Labels, attempt: int) -> int:
        return attempt * memory_mb(self._entry(labels))

    def runtime(self, labels: Labels) -> int:
        """Minutes; a training that is cut off goes on from its last checkpoint."""
        return RUNTIME

    def data_runtime(self, labels: Labels) -> int:
        """Minutes, nearly all of them for questions that an endpoint writes one by one."""
        entry = self._entry(labels)
        return max(MIN_DATA_MINUTES, ceil(entry.documents * entry.spans * QUESTION_S / 60))

    def threads(self, labels: Labels) -> int:
        """Return all cores of a CPU, unless stated; on GPUs a core a process feeds it."""
        entry = self._entry(labels)
        return (entry.threads or self.cores) if entry.device == "cpu" else entry.processes

    def node(self, labels: Labels) -> str:
        """Return a whole machine for a CPU's training, which takes all of its cores."""
        return ALONE if self._entry(labels).device == "cpu" else ""

    def _entry(self, labels: Labels) -> TrainingSettings:
        return self.config.training[labels.training]


def memory_mb(training: TrainingSettings) -> int:
    """Memory of the machine, all processes together."""
    if training.model not in shapes.names():
        return MIN_MB
    each = parameters(shapes.named(training.model)) * (
        LOADED_BYTES if training.device == "cuda" else TRAINED_BYTES
    )
    return max(MIN_MB, LIBRARIES_MB + ceil(training.processes * each / 1e6))
