"""Shared parts of rankers with a model: its checkpoint, batches of texts of like length.

Retrieval servers import this module, so nothing here imports torch before it needs it.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, PositiveInt, TypeAdapter

from ragauge.assets.tokenizer import check_rows, load_tokenizer, padded, plain_reader
from ragauge.errors import UserError, in_one_line, validating

logger = logging.getLogger(__name__)


class TextEncoder(ABC):
    """A text encoder, whose subclasses run the model on one batch.

    Attributes:
        name: what messages call it.
        dim: width of an embedding.
        tokenizer: of the checkpoint.
        max_tokens: longer texts are cut to this, special tokens included.
        query_prefix, text_prefix: written before what is encoded as a query or not as one.
        batch_size: texts of a batch.
    """

    name: str
    dim: int
    tokenizer: Any
    max_tokens: int
    query_prefix: str
    text_prefix: str
    batch_size = 32

    def encode(self, texts: Sequence[str], query: bool = False) -> np.ndarray:
        """Return embeddings (text, dim) float32, in the order given.

        Raises:
            UserError: one is not finite.
        """
        embeddings = np.empty((len(texts), self.dim), dtype=np.float32)
        ids = self._ids(texts, query)
        for rows in batches_by_length(list(map(len, ids)), self.batch_size):
            embeddings[rows] = self._forward(*padded([ids[i] for i in rows]))
        check_finite(embeddings, texts, f"encoder {self.name}")
        return embeddings

    def _ids(self, texts: Sequence[str], query: bool = False) -> list[list[int]]:
        if not texts:  # which the tokenizer does not accept
            return []
        prefix = self.query_prefix if query else self.text_prefix
        prefixed = [prefix + text for text in texts]
        options = {"truncation": True, "max_length": self.max_tokens}
        return list(plain_reader(self.tokenizer, prefixed)(prefixed, **options)["input_ids"])

    @abstractmethod
    def _forward(self, ids: np.ndarray, attended: np.ndarray) -> np.ndarray:
        """Return the embeddings (text, dim) of a batch of tokens (text, token); `attended` is
        False for padding.
        """


class Reading(BaseModel):
    """How an encoder reads a text, as sentence-transformers writes it down."""

    max_seq_length: PositiveInt | None = None
    do_lower_case: bool = False

    @classmethod
    def of(cls, folder: Path) -> Self:
        return read_settings(folder / "sentence_bert_config.json", cls, cls())


def load_checkpoint(kind: str, path: Path, model_class: Any) -> tuple[Any, Any]:
    """Load the tokenizer and the model, in fp32, of a local checkpoint folder.

    Raises:
        UserError: a file that cannot be read, or a missing tensor, which transformers would fill
            with random numbers.
    """
    import torch
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # of a second or less, among the lines of a run
    try:
        tokenizer = encoder_tokenizer(path)
        model, loading = model_class.from_pretrained(
            path,
            dtype=torch.float32,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    except Exception as error:  # a damaged folder fails in any way
        raise UserError(f"{kind} {path}: cannot be loaded: {in_one_line(error, 200)}") from error
    missing = [name for name in loading["missing_keys"] if not name.startswith("pooler.")]
    if missing:
        raise UserError(
            f"{kind} {path}: the checkpoint has no tensor {min(missing)!r}; is it whole?"
        )
    check_rows(tokenizer, model.get_input_embeddings().num_embeddings, f"{kind} {path}")
    return tokenizer, model.eval()


def encoder_tokenizer(path: Path) -> Any:
    """Load the tokenizer of an encoder's folder, in lower case where its settings say so.

    Raises:
        UserError: there is none, or its settings are invalid.
    """
    from tokenizers import normalizers

    tokenizer = load_tokenizer(path)
    if Reading.of(path).do_lower_case:
        backend = tokenizer.backend_tokenizer
        own = [backend.normalizer] if backend.normalizer else []
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
    return tokenizer


def read_settings(path: Path, kind: Any, default: Any) -> Any:
    """Return an encoder's settings; the default if there is no such file.

    Raises:
        UserError: they are of another kind.
    """
    if not path.is_file():
        return default
    with validating(f"encoder {path}"):
        return TypeAdapter(kind).validate_json(path.read_bytes())


def positions(model: Any) -> int:
    """Count the tokens of the longest text that a model has positions for.

    RoBERTa and its kin begin to count after the padding's number: of 514 rows 512 are used.
    """
    table = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    return int(model.config.max_position_embeddings) - (0 if padding is None else padding + 1)


def encoder_macs(config: Any, tokens: int) -> int:
    """Count multiply-accumulates of one text: projections and MLP linear in its tokens, attention
    quadratic.
    """
    d = config.hidden_size
    ffn = config.intermediate_size
    return int(config.num_hidden_layers * ((4 * d * d + 2 * d * ffn) * tokens + 2 * d * tokens**2))


def check_finite(values: np.ndarray, texts: Sequence[str], model: str) -> None:
    """Raise UserError if the vector or the score of a text, a row of `values`, is not finite."""
    bad = [text for text, row in zip(texts, values, strict=True) if not np.isfinite(row).all()]
    if bad:
        raise UserError(
            f"{model}: {len(bad)} of {len(texts)} texts have values that are not finite numbers, "
            f"the first is {bad[0]!r:.62}; do its weights fit its data type?"
        )


def normalised(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, dim) scaled to unit length."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, np.maximum(lengths, np.finfo(np.float32).tiny))


def batches_by_length(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Group the indices of texts in batches of at most `size`, the shortest first, to pad little."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return (order[start : start + size] for start in range(0, len(order), size))


def warn_of_ties(ranker: str, query: str) -> None:
    """Warn that a ranking is only the order in which the documents were given."""
    logger.warning(
        "%s: no word of %.80r occurs in its documents, which stay in their order", ranker, query
    )
