"""Dense retrieval over the documents of one question: a text encoder, mean or first-token pooling,
dot products or cosines.

The checkpoint's folder says how it is used, in the settings of sentence-transformers: modules,
similarity, longest text, case, and the prefixes of queries and texts where the catalog has none. A
plain transformer without such settings, as Contriever is (Izacard et al., 2022), pools by mean and
compares by dot product.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from pydantic import BaseModel

from ragauge.assets.tokenizer import padded
from ragauge.engines.backends.openai import PREFIX
from ragauge.errors import UnsupportedError, UserError, in_one_line
from ragauge.methods.base.served import ENCODER, served
from ragauge.methods.rankers.base import (
    Reading,
    TextEncoder,
    encoder_macs,
    load_checkpoint,
    normalised,
    positions,
    read_settings,
)

VECTORS = 2  # raised when the same folder gives other vectors
SIMILARITIES = ("cosine", "dot")
CUDA_BATCH_SIZE = 1024  # texts
Dtype = Literal["float32", "bfloat16", "float16"]


class Encoder(TextEncoder):
    """A BERT-like text encoder from a local checkpoint folder, as sentence-transformers would run
    it.

    Attributes:
        similarity: "cosine" or "dot", as its settings say.
        pooling: "mean" of all tokens, or the first one's ("cls").
        normalised: embeddings have length 1, by a module.
    """

    def __init__(
        self,
        path: Path,
        query_prefix: str = "",
        text_prefix: str = "",
        dtype: Dtype = "float32",
        device: str = "cpu",
    ) -> None:
        """Load the checkpoint in fp32; `dtype` is that of matrix products and attention, not of
        sums and norms.

        Raises:
            UserError: the folder holds no encoder, or one pooled in another way.
        """
        from transformers import AutoModel

        self.name = str(path)
        self.query_prefix = query_prefix
        self.text_prefix = text_prefix
        self.pooling, self.normalised = _modules(path)
        self.similarity = _similarity(path)
        self._dtype, self._device = getattr(torch, dtype), torch.device(device)
        if self._device.type == "cuda":
            self.batch_size = CUDA_BATCH_SIZE
        self.tokenizer, self.model = load_checkpoint("encoder", path, AutoModel)
        if hasattr(self.model, "pooler"):
            # reads the first token for classification, which nothing here uses
            self.model.pooler = None
        self.model.to(self._device)
        self.dim = int(self.model.config.hidden_size)
        declared = Reading.of(path).max_seq_length or int(self.tokenizer.model_max_length)
        self.max_tokens = min(declared, positions(self.model))
        try:
            self._forward(*padded(self._ids([""])))
        except Exception as error:  # settings that load and do not fit together fail in any way, so they do it here
            raise UserError(f"encoder {path}: cannot encode: {in_one_line(error, 200)}") from error

    def embed(self, texts: Sequence[str], query: bool = False) -> np.ndarray:
        """Return embeddings (text, dim) float32 whose dot products are the encoder's similarities.

        Raises:
            UserError: as `encode`.
        """
        vectors = self.encode(texts, query=query)
        is_scaled = self.normalised or self.similarity == "dot"
        return vectors if is_scaled else normalised(vectors)

    def encoding_macs(self, texts: Sequence[str], query: bool = False) -> int:
        """Count the multiply-accumulates of encoding texts, each by itself."""
        return sum(encoder_macs(self.model.config, len(ids)) for ids in self._ids(texts, query))

    @torch.inference_mode()
    def _forward(self, ids: np.ndarray, attended: np.ndarray) -> np.ndarray:
        batch = torch.from_numpy(ids).to(self._device)
        mask = torch.from_numpy(attended).to(self._device)
        is_mixed = self._dtype != torch.float32
        with torch.autocast(self._device.type, dtype=self._dtype, enabled=is_mixed):
            hidden = self.model(input_ids=batch, attention_mask=mask.long()).last_hidden_state
        return self.pool(hidden.float(), mask).cpu().numpy()

    def pool(self, hidden: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Return embeddings (text, dim) of hidden states (text, token, dim); `attended` (text,
        token) is False for padding.
        """
        if self.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            mask = attended.unsqueeze(-1).to(hidden.dtype)  # (text, token, 1)
            pooled = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        return torch.nn.functional.normalize(pooled, dim=-1) if self.normalised else pooled


@lru_cache(maxsize=2)
def load_encoder(name: str, dtype: Dtype = "float32", device: str = "cpu") -> Encoder:
    """Return the encoder of an asset's name or source ("minilm", "contriever", "path:/folder"),
    loaded once a process.
    """
    from ragauge.assets import resolver

    if name.startswith(PREFIX):
        return cast("Encoder", served(name, ENCODER))  # which embeds texts alike
    return Encoder(resolver.resolve(name), *resolver.prefixes(name), dtype=dtype, device=device)


class _Module(BaseModel):
    type: str
    path: str


def _modules(path: Path) -> tuple[str, bool]:
    """Read how a checkpoint pools and whether it normalises from its sentence-transformers modules.

    A plain transformer, which has none, pools by mean.

    Raises:
        UnsupportedError: a module does what this encoder does not.
    """
    pooling = "mean"
    normalised = False
    for module in read_settings(path / "modules.json", list[_Module], []):
        kind = module.type.rpartition(".")[2]
        if kind == "Pooling":
            config = read_settings(path / module.path / "config.json", dict[str, Any], {})
            pooling = _pooling(config)
        if kind not in ("Pooling", "Transformer", "Normalize") or not pooling:
            raise UnsupportedError(
                f"encoder {path}: module {kind} is not mean or first-token pooling or normalisation"
            )
        normalised = normalised or kind == "Normalize"
    return pooling, normalised


def _similarity(path: Path) -> str:
    """Read how a checkpoint's embeddings are compared.

    Raises:
        UnsupportedError: by another measure than `SIMILARITIES`, or cut to fewer numbers.
    """
    settings = read_settings(path / "config_sentence_transformers.json", dict[str, Any], {})
    # sentence-transformers' own default, where the folder is one of its models
    default = "cosine" if (path / "modules.json").is_file() else "dot"
    stated = settings.get("similarity_fn_name") or default
    width = settings.get("truncate_dim")
    if stated not in SIMILARITIES or width:
        raise UnsupportedError(
            f"encoder {path}: similarity_fn_name {stated!r}, truncate_dim {width}; known: cosine and dot, whole"
        )
    return str(stated)


def _pooling(config: dict[str, Any]) -> str:
    """ "mean" or "cls"; empty for any other pooling, several at once, or one that leaves a prefix
    out. Old files have a flag for each mode.
    """
    modes = [config.get("pooling_mode")]
    if not modes[0]:
        prefix = "pooling_mode_"
        modes = [
            key.removeprefix(prefix) for key in config if key.startswith(prefix) and config[key]
        ]
    if not config.get("include_prompt", True):
        return ""
    if modes in (["mean"], ["mean_tokens"]):
        return "mean"
    return "cls" if modes in (["cls"], ["cls_token"]) else ""
