"""A cross-encoder, which reads the question and a document together and scores the pair (Nogueira
and Cho, 2019).
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from ragauge.assets.tokenizer import plain_reader
from ragauge.engines.backends.openai import PREFIX
from ragauge.errors import UserError
from ragauge.methods.base.served import RERANKER, served
from ragauge.methods.rankers.base import (
    batches_by_length,
    check_finite,
    encoder_macs,
    load_checkpoint,
    positions,
)

BATCH_SIZE = 16  # pairs


class CrossEncoder:
    """A classifier of one class over pairs of texts, from a local checkpoint folder, in fp32.

    Attributes:
        max_tokens: of a pair; a longer document is cut.
    """

    def __init__(self, path: Path) -> None:
        """Raises UserError: the folder holds no such classifier, or one of several classes."""
        from transformers import AutoModelForSequenceClassification

        self.path = path
        self.tokenizer, self.model = load_checkpoint(
            "cross-encoder", path, AutoModelForSequenceClassification
        )
        config = self.model.config
        if config.num_labels != 1:
            raise UserError(f"cross-encoder {path}: scores {config.num_labels} classes, not one")
        self.max_tokens = min(positions(self.model), int(self.tokenizer.model_max_length))

    @torch.inference_mode()
    def scores(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """(document,) float32, higher is better. Documents of like length share a batch, to pad
        little.
        """
        scores = np.empty(len(documents), dtype=np.float32)
        for rows in batches_by_length(list(map(len, documents)), BATCH_SIZE):
            pairs = self._read(query, [documents[i] for i in rows])
            scores[rows] = (
                self.model(**self.tokenizer.pad(pairs, return_tensors="pt")).logits[:, 0].numpy()
            )
        check_finite(scores, documents, f"cross-encoder {self.path}")
        return scores

    def pair_macs(self, query: str, documents: Sequence[str]) -> int:
        """Count the multiply-accumulates of scoring documents, pair by pair."""
        return sum(
            encoder_macs(self.model.config, len(ids))
            for ids in self._read(query, documents)["input_ids"]
        )

    def _read(self, query: str, documents: Sequence[str]) -> Any:
        """Return token ids of the pairs."""
        reads = plain_reader(self.tokenizer, [query, *documents])
        pairs = ([query] * len(documents), list(documents))
        return reads(*pairs, truncation="longest_first", max_length=self.max_tokens)


@lru_cache(maxsize=1)
def load_cross_encoder(name: str) -> CrossEncoder:
    """Return the cross-encoder of a source, such as `hf:cross-encoder/ms-marco-MiniLM-L6-v2`,
    loaded once a process.
    """
    from ragauge.assets import resolver

    if name.startswith(PREFIX):
        return cast("CrossEncoder", served(name, RERANKER))  # which scores documents alike
    return CrossEncoder(resolver.resolve(name))


def rank(query: str, documents: Sequence[str], *, model: str) -> np.ndarray:
    """Return the cross-encoder's scores of the documents: (document,) float32."""
    return load_cross_encoder(model).scores(query, documents)
