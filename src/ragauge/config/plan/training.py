"""Jobs of the fine-tunings: what they are trained on, and the training itself."""

from collections.abc import Collection, Iterator
from math import ceil
from typing import Any

from ragauge.config.plan.contents import contents
from ragauge.config.plan.part import ALONE, Labels, PlanPart, manifest
from ragauge.config.plan.retrieval import corpus_files, local_files
from ragauge.cost import accelerators, shapes
from ragauge.cost.cycles import dtype_bytes
from ragauge.cost.flop import parameters
from ragauge.cost.hardware import Precision
from ragauge.cost.machine import gpu_state
from ragauge.cost.roofline import product_seconds
from ragauge.cost.trace import Call
from ragauge.errors import UserError
from ragauge.pipelines.database.corpus import is_asset
from ragauge.training.settings import ENDPOINT, TrainingSettings

LIBRARIES_MB = 4000  # of the libraries, the documents and activations of a small model
MIN_MB = 8000
MIN_MINUTES = 720  # requested for any training, and for one whose model's sizes are not known
LOADED_BYTES = 4  # of a parameter: every process loads float32 before its GPU has it
# of a parameter: weights, gradients, the optimizer's weights and AdamW's two moments in float32
TRAINED_BYTES = 20
# of a parameter, shared by the GPUs: its gradient, the optimizer's weight and both moments
SHARED_BYTES = 14
MIN_DATA_MINUTES = 240
QUESTION_S = 3.0  # requested for any data, and expected for each question of an endpoint
# hours requested over the floor, which has the matrix products alone at the rate of the GPU's data
# sheet
MARGIN = 2


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
        training = self._entry(labels)
        if training.device != "cuda" or training.model not in shapes.names():
            return MIN_MINUTES
        shape = shapes.named(training.model)
        (call, passes) = passes_of(training)
        floor_s = passes * product_seconds(
            call, shape, Precision(training.dtype), accelerators.known()["a100"].rates
        )
        return max(MIN_MINUTES, ceil(MARGIN * floor_s / training.processes / 60))

    def data_runtime(self, labels: Labels) -> int:
        """Minutes, nearly all of them for questions that an endpoint writes one by one."""
        entry = self._entry(labels)
        return max(MIN_DATA_MINUTES, ceil(entry.documents * entry.spans * QUESTION_S / 60))

    def check_gpus(self, outputs: Collection[str], limit: int | None) -> None:
        """Raise UserError if the GPUs here cannot hold a model that a run trains.

        Args:
            outputs: the files that the run makes.
            limit: how many GPUs it may take; None: all.
        """
        for label, entry in self.config.training.items():
            is_made = f"{self.paths.trained}.json".format(training=label) in outputs
            if not is_made or entry.device != "cuda" or entry.model not in shapes.names():
                continue
            gpu = gpu_state()
            if gpu is None:
                continue
            processes = entry.on_processes(min(limit or gpu["count"], gpu["count"])).processes
            each = dtype_bytes(entry.dtype) + SHARED_BYTES / processes
            needed = parameters(shapes.named(entry.model)) * each
            if needed > gpu["memory_bytes"]:
                raise UserError(
                    f"training.{label}.processes: {processes} GPUs are too few; each must hold "
                    f"{needed / 1e9:.0f} GB or more of {entry.model}"
                )

    def threads(self, labels: Labels) -> int:
        """Return all cores of a CPU, unless stated; on GPUs a core a process feeds it."""
        entry = self._entry(labels)
        return (entry.threads or self.cores) if entry.device == "cpu" else entry.processes

    def node(self, labels: Labels) -> str:
        """Return a whole machine for a CPU's training, which takes all of its cores."""
        return ALONE if self._entry(labels).device == "cpu" else ""

    def _entry(self, labels: Labels) -> TrainingSettings:
        return self.config.training[labels.training]


def passes_of(training: TrainingSettings) -> tuple[Call, int]:
    """Return a forward pass over a document of the maximum length, and how many of them the
    training costs. A backward pass counts twice, a recomputed forward pass once more.
    """
    length = (training.max_length,)
    documents = training.steps * training.processes * training.accumulation
    return Call("train", length, (0,), logits=length), documents * (
        4 if training.gradient_checkpointing else 3
    )


def memory_mb(training: TrainingSettings) -> int:
    """Memory of the machine, all processes together."""
    if training.model not in shapes.names():
        return MIN_MB
    each = parameters(shapes.named(training.model)) * (
        LOADED_BYTES if training.device == "cuda" else TRAINED_BYTES
    )
    return max(MIN_MB, LIBRARIES_MB + ceil(training.processes * each / 1e6))
