"""A cross-encoder, which reads the question and a document together and scores the pair (Nogueira and Cho, 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ragauge.assets.tokenizer import load_tokenizer
from ragauge.errors import UserError

BATCH_SIZE = 16  # pairs


class CrossEncoder:
    """A classifier of one class over pairs of texts, from a local checkpoint folder, in fp32.

    Attributes:
        max_tokens: of a pair; a longer document is cut.
    """

    def __init__(self, path: Path) -> None:
        """
        Raises:
            UserError: the folder holds no such classifier, or one of several classes.
        """
        from transformers import AutoModelForSequenceClassification

        self.tokenizer = load_tokenizer(path)
        try:
            model, found = AutoModelForSequenceClassification.from_pretrained(
                path, dtype=torch.float32, trust_remote_code=False, local_files_only=True, output_loading_info=True
            )
        except Exception as error:  # a damaged folder fails in any way
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise UserError(f"cross-encoder {path}: cannot be loaded: {reason}") from error
        if found["missing_keys"]:  # as an encoder without a head has, which transformers would fill with random numbers
            raise UserError(f"cross-encoder {path}: the checkpoint has no tensor {min(found['missing_keys'])!r}")
        if model.config.num_labels != 1:
            raise UserError(f"cross-encoder {path}: scores {model.config.num_labels} classes, not one")
        self.model = model.eval()
        positions = int(getattr(model.config, "max_position_embeddings", 512))
        self.max_tokens = min(positions, int(self.tokenizer.model_max_length))

    @torch.inference_mode()
    def scores(self, query: str, documents: Sequence[str]) -> np.ndarray:
        """(document,) float32, higher is better. Documents of like length share a batch, to pad little."""
        scores = np.empty(len(documents), dtype=np.float32)
        order = sorted(range(len(documents)), key=lambda i: len(documents[i]))
        for start in range(0, len(order), BATCH_SIZE):
            rows = order[start : start + BATCH_SIZE]
            pairs = self._pairs(query, [documents[i] for i in rows])
            scores[rows] = self.model(**pairs).logits[:, 0].numpy()
        return scores

    def _pairs(self, query: str, documents: list[str]) -> Any:
        return self.tokenizer(
            [query] * len(documents),
            documents,
            truncation="longest_first",
            max_length=self.max_tokens,
            padding=True,
            return_tensors="pt",
        )


@lru_cache(maxsize=1)
def load_cross_encoder(name: str) -> CrossEncoder:
    """The cross-encoder of a source, such as `hf:cross-encoder/ms-marco-MiniLM-L6-v2`, loaded once a process."""
    from ragauge import assets

    return CrossEncoder(assets.resolve(name))


def rank(query: str, documents: Sequence[str], *, model: str) -> np.ndarray:
    """The cross-encoder's scores of the documents: (document,) float32."""
    return load_cross_encoder(model).scores(query, documents)
