"""What a fine-tuning takes: memory of its machine and a lower bound of its time, both from its model's sizes."""

from __future__ import annotations

from math import ceil

from ragauge.cost import shapes
from ragauge.cost.flop import FLOP_PER_MAC, call_macs, parameters
from ragauge.cost.gpu import GPU
from ragauge.cost.roofline import matmul_rate
from ragauge.cost.trace import Call
from ragauge.training.settings import TrainingSettings

LIBRARIES_MB = 4000  # of the libraries, the documents and activations of a small model
LEAST_MB, LEAST_MINUTES = 8000, 720  # asked for any training, and for one whose model's sizes are not known
LOADED_BYTES = 4  # of a parameter: every process loads float32 before its GPU has it
TRAINED_BYTES = 20  # of a parameter: weights, gradients, the optimizer's weights and AdamW's two moments in float32
MARGIN = 2  # hours asked over the floor, which has the matrix products alone at the rate of the GPU's data sheet


def gpu_seconds(training: TrainingSettings) -> float:
    """A floor of the seconds of all GPUs together, every document at its maximum length.

    It is that of the matrix products: forward, backward (twice that), and forward again for gradient checkpointing.

    Raises:
        UserError: the sizes of the model are not known.
    """
    documents = training.steps * training.processes * training.accumulation
    length = (training.max_length,)
    macs = call_macs(Call("train", length, (0,), logits=length), shapes.named(training.model))
    passes = 4 if training.gradient_checkpointing else 3
    return documents * passes * FLOP_PER_MAC * macs / matmul_rate(GPU, training.dtype)


def memory_mb(training: TrainingSettings) -> int:
    """Memory of the machine, all processes together."""
    if training.model not in shapes.names():
        return LEAST_MB
    each = parameters(shapes.named(training.model)) * (LOADED_BYTES if training.device == "cuda" else TRAINED_BYTES)
    return max(LEAST_MB, LIBRARIES_MB + ceil(training.processes * each / 1e6))


def minutes(training: TrainingSettings) -> int:
    """Minutes that a job asks for; on a processor, whose rate is not known beforehand, `LEAST_MINUTES`.

    A training that is cut off goes on from its last checkpoint.
    """
    if training.device != "cuda" or training.model not in shapes.names():
        return LEAST_MINUTES
    floor = gpu_seconds(training) / training.processes / 60
    return max(LEAST_MINUTES, ceil(MARGIN * floor))
