"""What a chunk database and its indexes are: the section `databases` of an experiment's configuration."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]  # becomes the name of a folder


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class IndexRecipe(_Section):
    """How an index is made from the embeddings of its database; all but `nprobe` is part of its identity."""

    nlist: int = Field(64, ge=1, le=1 << 24, description="inverted lists (coarse centroids)")
    pq_bytes: int = Field(64, ge=1, le=4096, description="bytes of a code; they divide the vectors' width")
    metric: Literal["l2", "inner_product"] = Field("l2", description="what is small or large of near vectors")
    nprobe: int = Field(8, ge=1, description="lists scanned where a query does not say")
    train_vectors: int = Field(100_000, ge=1, description="vectors that it is trained on, at most")
    iterations: int = Field(10, ge=1, description="of k-means")
    shards: int | None = Field(None, ge=1, description="the first shards of the database alone; default: all")
    near_duplicates: Literal["drop", "keep"] = Field(
        "drop", description="what becomes of documents that are near-duplicates of evaluation text"
    )
    filled: int | None = Field(
        None, ge=1, description="vectors in all, by drawing around the chunks' own; every figure from it says so"
    )
    parts: int = Field(1, ge=1, description="servers that share the index, each with a part of its shards")
    seed: int = Field(0, ge=0, description="of training and of what is drawn")

    def origin(self) -> dict[str, Any]:
        """What its vectors and lists depend on."""
        return self.model_dump(exclude={"nprobe", "parts"})


class DatabaseSettings(_Section):
    """A chunk database. The key is its label in file names and tables."""

    corpus: str | list[str] = Field(
        "wikipedia-sample",
        description=(
            "a corpus of the catalog, c4-en, c4-realnewslike, wikipedia, hf:org/name:configuration@revision, files "
            "(.jsonl, .txt, gzipped or not, .bz2 exports of MediaWiki; with wildcards), or a list of these"
        ),
    )
    text_field: str = Field("text", description="the text in a JSON record")
    limit: int | None = Field(None, ge=1, description="documents, from the first; default: all")
    tokenizer: str = Field("smollm2-135m-instruct", description="the model whose tokens the chunks are made of")
    chunk_tokens: int = Field(64, ge=1, le=1 << 15, description="tokens of a chunk")
    shards: int = Field(2, ge=1, description="parts that are made by jobs of their own")
    evaluation: Literal["tail", "documents", "none"] = Field(
        "tail", description="what is held out: the last share of each document, a share of the documents, nothing"
    )
    evaluation_share: float = Field(0.2, gt=0, lt=1, description="the share that is held out")
    encoder: str = Field("minilm", description="the text encoder of the vectors: a name of the catalog, or a source")
    engine: Literal["onnx", "torch"] = Field("onnx", description="what runs the encoder")
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description=(
            "of the encoder's matrix products; bfloat16 is of the engine torch alone, and faster on a processor with "
            "instructions for it"
        ),
    )
    indexes: dict[Label, IndexRecipe] = Field({"ivf": IndexRecipe()}, description="indexes over it, by label")

    @property
    def sources(self) -> tuple[str, ...]:
        """The corpus as a list."""
        return (self.corpus,) if isinstance(self.corpus, str) else tuple(self.corpus)


class StalenessSettings(_Section):
    """A comparison of what stale and fresh queries find (PipeRAG, Table 2). The key is its label in file names."""

    database: str = Field(description="label of the chunk database; default: the key")
    index: str = Field("ivf", description="label of the database's index that is asked")
    encoder: str = Field("minilm", description="compares the chunks that are found: a name of the catalog, or a source")
    engine: Literal["onnx", "torch"] = Field("onnx", description="what runs that encoder")
    nprobe: int | None = Field(None, ge=1, description="inverted lists scanned; default: the index's own number")
    tokens: int = Field(1024, ge=128, description="of a held-out text")
    limit: int | None = Field(None, ge=1, description="texts; default: all of the held-out text")
