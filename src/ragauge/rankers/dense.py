"""Dense retrieval over the documents of one question: a text encoder, mean pooling, dot products.

Contriever (Izacard et al., 2022) compares by dot product, all-MiniLM-L6-v2 by cosine: the checkpoint's folder says
which (a sentence-transformers `modules.json` names its normalisation), so an encoder is chosen by name alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ragauge.errors import UnsupportedError, UserError

BATCH_SIZE = 32  # texts


class Encoder:
    """A BERT-like text encoder from a local checkpoint folder, as sentence-transformers would run it.

    Attributes:
        dim: width of an embedding.
        max_tokens: longer texts are cut to this, special tokens included.
        normalised: embeddings have length 1, so that dot products are cosines.
    """

    def __init__(self, path: Path, device: str = "cpu") -> None:
        """Load the checkpoint in fp32. Raises UserError where the folder holds none, or one pooled in another way."""
        from transformers import AutoModel, AutoTokenizer

        modules = _modules(path)
        self.normalised = any(kind == "Normalize" for kind in modules)
        self.device = torch.device(device)
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(path)
            model = AutoModel.from_pretrained(path, dtype=torch.float32, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise UserError(f"encoder {path}: cannot be loaded: {' '.join(str(error).split())[:200]}") from error
        if hasattr(model, "pooler"):
            model.pooler = None  # reads the first token for classification; nothing here asks for it
        self.model = model.eval().to(self.device)
        self.dim = int(model.config.hidden_size)
        self.max_tokens = _max_tokens(path, int(model.config.max_position_embeddings))

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], batch_size: int = BATCH_SIZE) -> np.ndarray:
        """Embeddings (text, dim) float32, in the order given. Texts of like length share a batch, to pad little."""
        lengths = self.count_tokens(texts)
        order = sorted(range(len(texts)), key=lambda i: lengths[i])
        embeddings = np.empty((len(texts), self.dim), dtype=np.float32)
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            embeddings[rows] = self._embed([texts[i] for i in rows]).cpu().numpy()
        return embeddings

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text after the cut, special tokens included."""
        if not texts:
            return []
        ids = self.tokenizer(list(texts), truncation=True, max_length=self.max_tokens)["input_ids"]
        return [len(row) for row in ids]

    def macs(self, tokens: int) -> int:
        """Multiply-accumulates of encoding one text: projections and MLP linear in its tokens, attention quadratic."""
        config = self.model.config
        d, ffn = config.hidden_size, config.intermediate_size
        per_layer = (4 * d * d + 2 * d * ffn) * tokens + 2 * d * tokens**2
        return int(config.num_hidden_layers * per_layer)

    def _embed(self, texts: list[str]) -> torch.Tensor:
        batch = self.tokenizer(texts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt")
        batch = batch.to(self.device)
        hidden = self.model(**batch).last_hidden_state  # (text, token, dim)
        mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)  # (text, token, 1)
        mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        return torch.nn.functional.normalize(mean, dim=-1) if self.normalised else mean


@lru_cache(maxsize=2)
def load_encoder(name: str, device: str = "cpu") -> Encoder:
    """The encoder of an asset's name or source ("minilm", "contriever", "path:/folder"), loaded once a process."""
    from ragauge import assets

    return Encoder(assets.resolve(name), device)


def rank(query: str, documents: Sequence[str], *, encoder: str = "minilm") -> np.ndarray:
    """Dot products of the query's embedding with the documents': (document,) float32."""
    model = load_encoder(encoder)
    return model.encode(documents) @ model.encode([query])[0]


def _modules(path: Path) -> list[str]:
    """The sentence-transformers modules of a checkpoint by their kind; none where it is a plain transformer.

    Raises UnsupportedError where a module does what this encoder does not.
    """
    listed = _json(path / "modules.json") or []
    kinds = [module["type"].rpartition(".")[2] for module in listed]
    for module, kind in zip(listed, kinds, strict=True):
        pooled = kind == "Pooling" and _pools_by_mean(_json(path / module["path"] / "config.json") or {})
        if not (pooled or kind in ("Transformer", "Normalize")):
            raise UnsupportedError(f"encoder {path}: module {kind} is not mean pooling or normalisation")
    return kinds


def _pools_by_mean(config: dict[str, Any]) -> bool:
    modes = {name for name, value in config.items() if name.startswith("pooling_mode") and value}
    return modes <= {"pooling_mode_mean_tokens", "pooling_mode"} and config.get("pooling_mode", "mean") == "mean"


def _max_tokens(path: Path, positions: int) -> int:
    declared = (_json(path / "sentence_bert_config.json") or {}).get("max_seq_length")
    return min(int(declared), positions) if declared else positions


def _json(path: Path) -> Any:
    return json.loads(path.read_bytes()) if path.is_file() else None
