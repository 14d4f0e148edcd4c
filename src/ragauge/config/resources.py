"""Memory and time that the job of a fine-tuning requests, from its model's sizes."""

from __future__ import annotations

from math import ceil

from ragauge.cost import shapes
from ragauge.cost.flop import parameters
from ragauge.cost.hardware import Precision
from ragauge.cost.roofline import A100, product_seconds
from ragauge.cost.trace import Call
from ragauge.training.settings import TrainingSettings

LIBRARIES_MB = 4000  # of the libraries, the documents and activations of a small model
MIN_MB, MIN_MINUTES = 8000, 720  # requested for any training, and for one whose model's sizes are not known
LOADED_BYTES = 4  # of a parameter: every process loads float32 before its GPU has it
TRAINED_BYTES = 20  # of a parameter: weights, gradients, the optimizer's weights and AdamW's two moments in float32
MARGIN = 2  # hours requested over the floor, which has the matrix products alone at the rate of the GPU's data sheet


def document_passes(training: TrainingSettings) -> int:
    """Forward passes that the training costs: a backward pass counts twice, a recomputed forward pass once more."""
    documents = training.steps * training.processes * training.accumulation
    return documents * (4 if training.gradient_checkpointing else 3)


def document_call(training: TrainingSettings) -> Call:
    """One forward pass over a document of the maximum length."""
    length = (training.max_length,)
    return Call("train", length, (0,), logits=length)


def memory_mb(training: TrainingSettings) -> int:
    """Memory of the machine, all processes together."""
    if training.model not in shapes.names():
        return MIN_MB
    each = parameters(shapes.named(training.model)) * (LOADED_BYTES if training.device == "cuda" else TRAINED_BYTES)
    return max(MIN_MB, LIBRARIES_MB + ceil(training.processes * each / 1e6))


def minutes(training: TrainingSettings) -> int:
    """Minutes that a job requests; a training that is cut off goes on from its last checkpoint."""
    if training.device != "cuda" or training.model not in shapes.names():
        return MIN_MINUTES
    shape, precision = shapes.named(training.model), Precision(training.dtype)
    floor_s = document_passes(training) * product_seconds(document_call(training), shape, precision, A100)
    return max(MIN_MINUTES, ceil(MARGIN * floor_s / training.processes / 60))
