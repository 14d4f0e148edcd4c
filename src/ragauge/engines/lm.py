"""The torch decoder with its tokenizer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ragauge.engines.cache import KVCache
from ragauge.engines.decoder import Decoder
from ragauge.engines.passes import Ended, Reading, decoding, run
from ragauge.engines.protocol import DECODING, CallOptions, Extension
from ragauge.engines.recorded import RecordedEngine
from ragauge.engines.spans import Row
from ragauge.engines.steps import StepsByCapacity


class LM(RecordedEngine):
    """A decoder with its tokenizer, `weights` and `kv` as of `load_lm`. All calls run in inference
    mode.
    """

    supported = DECODING

    def __init__(
        self, decoder: Decoder, tokenizer: Any = None, weights: str = "full", kv: str = "full"
    ) -> None:
        embedding = decoder.weights.embedding
        super().__init__(decoder.shape, tokenizer, embedding.dtype, embedding.device)
        self.precision = replace(self.precision, weights=weights, kv=kv)
        self.decoder = decoder
        # decoding as CUDA graphs
        self.steps = StepsByCapacity(decoder) if self.device.type == "cuda" else None

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values in all caches alive, those of CUDA graphs included."""
        return super().cache_bytes + (self.steps.bytes if self.steps else 0)

    def compute(self, cache: KVCache, rows: Sequence[Row], options: CallOptions) -> Extension:
        return run(self.decoder, Reading(self.decoder, cache, rows, options).requests())

    def decode(
        self, cache: KVCache, ids: list[int], position: float, most: int, ended: Ended | None
    ) -> list[int]:
        if self.steps and cache.plain:
            ids = self.steps.continue_response(cache, ids, position, most, ended)
        return run(self.decoder, decoding(self.decoder, cache, ids, position, most, ended))
