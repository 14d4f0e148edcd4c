"""The control of retrieval: neighbours drawn at random from the same database."""

import hashlib

import numpy as np

from ragauge.pipelines.schedules.base import Schedule, SequenceInputs
from ragauge.pipelines.sources import RandomNeighbours


class Random(Schedule):
    """As many neighbours as retro_plus, each window's drawn at random.

    Queries no index, waits for nothing.
    """

    queries_index = False

    def source(self, sequence: SequenceInputs) -> RandomNeighbours:
        assert sequence.passages is not None
        # draws of one sequence change no other
        digest = hashlib.sha256(f"{self.seed} {sequence.key}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        return RandomNeighbours(
            sequence.passages, rng, self.neighbours, self.excluded_documents(sequence)
        )
