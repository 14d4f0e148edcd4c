"""Embeddings of chunks, `<database>/embeddings/00000/vectors.bin` (chunk, dim) float16, and their
encoders.
"""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ragauge.assets import resolver, store
from ragauge.engines.onnx.graphs import open_session, write_graph
from ragauge.errors import UserError
from ragauge.io import folders
from ragauge.io.files import text_sha256
from ragauge.io.progress import bar
from ragauge.methods.rankers.base import TextEncoder, encoder_tokenizer, normalised
from ragauge.pipelines.database.database import BuiltFolder, Shard

EMBEDDINGS = "embeddings of a shard"
BLOCK_CHUNKS = 4096  # sorted by length together; their texts and vectors are what memory holds


@dataclass(frozen=True)
class EncoderChoice:
    name: str = "minilm"  # an asset's name, source or folder
    engine: Literal["onnx", "torch"] = "onnx"
    threads: int | None = None  # default: the library's own choice
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"  # of matrix products
    device: Literal["cpu", "cuda"] = "cpu"

    def load(self) -> TextEncoder:
        """Load the encoder, in ONNX Runtime in float32 on the CPU.

        Raises:
            UserError: there is none.
        """
        if self.engine == "torch":
            import torch

            from ragauge.methods.rankers.dense import load_encoder

            if self.threads:
                torch.set_num_threads(self.threads)
            return load_encoder(self.name, dtype=self.dtype, device=self.device)
        return OnnxEncoder(self.name, self.threads)

    @cached_property
    def sha256(self) -> str:
        """Hash of weights and prefixes, the same for every engine: they agree to 1e-5."""
        return resolver.fingerprint(self.name)


class OnnxEncoder(TextEncoder):
    """A text encoder (transformer, pooling, normalisation) as one ONNX graph, exported once and
    cached.
    """

    def __init__(self, name: str, threads: int | None = None) -> None:
        """Load an encoder by asset name, source or folder.

        Raises:
            UserError: it is not an encoder.
        """
        folder = resolver.resolve(name)
        home = store.Store(store.home())
        target = home.folder(
            "onnx", f"encoder-{folder.name}", store.digest(store.contents(folder)), EXPORT
        )
        home.build(target, lambda unfinished: _export(folder, unfinished))
        facts = store.manifest(target) or {}
        self.name = name
        self.dim = facts["dim"]
        self.max_tokens = facts["max_tokens"]
        self.tokenizer = encoder_tokenizer(folder)
        self.query_prefix, self.text_prefix = resolver.prefixes(name)
        self._session = open_session(target / "encoder.onnx", threads)

    def _forward(self, ids: np.ndarray, attended: np.ndarray) -> np.ndarray:
        inputs = {"input_ids": ids, "attention_mask": attended.astype(np.int64)}
        return np.asarray(self._session.run(None, inputs)[0])


EXPORT = 6  # version of the cached graphs; change it with the export


def _export(folder: Path, target: Path) -> dict[str, Any]:
    """Write encoder.onnx: ids and mask (text, token) int64 -> vectors (text, dim) float32."""
    import torch

    from ragauge.methods.rankers.dense import Encoder

    encoder = Encoder(folder)

    class Pooled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = encoder.model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            hidden = self.model(
                input_ids=input_ids, attention_mask=attention_mask
            ).last_hidden_state
            return encoder.pool(hidden, attention_mask)

    tokens = torch.randint(5, 100, (3, 7))
    mask = torch.ones_like(tokens)
    mask[0, 5:] = 0
    shape = {
        0: torch.export.Dim("texts", max=1 << 16),
        1: torch.export.Dim("tokens", max=encoder.max_tokens),
    }
    inputs = ["input_ids", "attention_mask"]
    shapes = dict.fromkeys(inputs, shape)
    write_graph(
        Pooled().eval(), target / "encoder.onnx", (tokens, mask), shapes, inputs, ["vectors"]
    )
    return {"source": str(folder), "dim": encoder.dim, "max_tokens": encoder.max_tokens}


def embedding_folder(database: Path, number: int) -> Path:
    return database / "embeddings" / f"{number:05d}"


def build_embeddings(database: Path, number: int, choice: EncoderChoice) -> bool:
    """Embed the chunks of one shard, where a killed build stopped; returns whether there was
    anything to do.

    Raises:
        UserError: the shard is missing or truncated, its tokenizer has changed, or the disk is
            full.
    """
    shard = Shard(database, number)
    made_from = {"shard": shard.sha256, "encoder": choice.sha256, "dtype": choice.dtype}
    target = embedding_folder(database, number)
    inputs = text_sha256(
        {**made_from, "engine": choice.engine, "device": choice.device, "block": BLOCK_CHUNKS}
    )
    partial = target.with_name(f".{target.name}.{inputs[:12]}.partial")

    def make(folder: Path) -> dict[str, Any]:
        encoder = choice.load()
        done = (
            _whole_blocks(partial, BLOCK_CHUNKS * encoder.dim * np.dtype(np.float16).itemsize)
            * BLOCK_CHUNKS
        )
        progress = bar(f"embedding shard {number}", "chunk", shard.chunks, done)
        with open(partial, "ab", buffering=0) as file, progress:
            for start in range(done, shard.chunks, BLOCK_CHUNKS):
                texts = shard.texts(slice(start, start + BLOCK_CHUNKS))
                file.write(normalised(encoder.encode(texts)).astype(np.float16).tobytes())
                progress.update(len(texts))
        partial.rename(folder / "vectors.bin")
        return {
            "encoder": choice.name,
            "engine": choice.engine,
            "dim": encoder.dim,
            "chunks": shard.chunks,
            "kept_as": "float16",
        }

    return folders.build(target, EMBEDDINGS, made_from, make)


def _whole_blocks(partial: Path, block_bytes: int) -> int:
    """Cut a file after its last whole block and return how many there are; remove files of other
    inputs.
    """
    for other in partial.parent.glob(f".{partial.name.split('.')[1]}.*.partial"):
        if other != partial:
            other.unlink()
    partial.touch()
    blocks = partial.stat().st_size // block_bytes
    os.truncate(partial, blocks * block_bytes)
    return blocks


class Embeddings(BuiltFolder):
    def __init__(self, database: Path, number: int) -> None:
        """Raises UserError if they are missing, truncated, or of another state of their shard."""
        super().__init__(embedding_folder(database, number), EMBEDDINGS)
        self.dim: int = self.manifest["dim"]  # width of a vector
        if self.manifest["made_from"]["shard"] != Shard(database, number).sha256:
            raise UserError(
                f"{self.folder}: embeddings of an earlier state of shard {number}; embed it again"
            )
        self.vectors = self.array("vectors.bin", "float16", self.dim)  # (chunk, dim)
