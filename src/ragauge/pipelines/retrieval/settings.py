"""The settings of chunk databases and their indexes: the section `databases` of a configuration."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from ragauge.errors import SettingError
from ragauge.io.sections import NO_OPTION, Label, Section
from ragauge.pipelines.indexes.base.types import AnyIndexRecipe


class CorpusSettings(Section):
    corpus: str | list[str]
    text_field: str = Field("text", description="field of a JSON record that holds the text")
    limit: int | None = Field(
        None, ge=1, description="number of documents, from the first; default: all"
    )

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.corpus,) if isinstance(self.corpus, str) else tuple(self.corpus)


class EvaluationSetSettings(CorpusSettings):
    """Text of another corpus that is predicted with a database.

    The key is its label in file names and tables.
    """

    corpus: str | list[str] = Field(description="as the corpus of a database; default: the key")
    part: Literal["tail", "documents", "all"] = Field(
        "tail",
        description="what is predicted: the last part of each document (tail), some of the documents, or all",
    )
    share: float = Field(0.2, gt=0, lt=1, description="share that is predicted, unless all is")


class DatabaseSettings(CorpusSettings):
    """A chunk database. The key is its label in file names and tables."""

    corpus: str | list[str] = Field(
        "wikipedia-sample",
        description="a corpus of the catalog, c4-en, c4-realnewslike, wikipedia, hf:org/name:configuration@revision, "
        "files (.jsonl, .txt, gzipped or not, .bz2 exports of MediaWiki; with wildcards), or a list of these",
    )
    tokenizer: str = Field(
        "smollm2-135m-instruct", description="model whose tokenizer cuts the chunks"
    )
    chunk_tokens: int = Field(64, ge=1, le=1 << 15, description="tokens of a chunk")
    shards: int = Field(2, ge=1, description="number of shards, each built by its own job")
    evaluation: Literal["tail", "documents", "none"] = Field(
        "tail",
        description="held-out text: the last part of each document (tail), some of the documents, or none",
    )
    evaluation_share: float = Field(0.2, gt=0, lt=1, description="share that is held out")
    evaluation_sets: dict[Label, EvaluationSetSettings] = Field(
        {}, description="texts of other corpora to predict"
    )
    encoder: str = Field(
        "minilm", description="text encoder of the vectors: a name in the catalog, or a source"
    )
    engine: Literal["onnx", "torch"] = Field("onnx", description="what runs the encoder")
    device: Literal["cpu", "cuda"] = Field(
        "cpu", description="where chunks are embedded; on cuda by torch"
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32",
        description="type of the encoder's matrix products; bfloat16: engine torch or cuda; float16: cuda",
    )
    indexes: dict[Label, AnyIndexRecipe] = Field(
        {"ivf": {}}, validate_default=True, description="indexes, by label"
    )

    @field_validator("evaluation_sets", mode="before")
    @classmethod
    def _named_by_key(cls, sets: Any) -> Any:
        """Return a set without a corpus is of the one that its key names."""
        if not isinstance(sets, dict):
            return sets
        return {
            label: {"corpus": label, **(entry or {})} if isinstance(entry, dict | None) else entry
            for label, entry in sets.items()
        }

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.dtype == "float16" and self.device != "cuda":
            raise SettingError("dtype", "float16 requires the device cuda")
        if self.engine == "onnx" and self.dtype != "float32" and self.device != "cuda":
            raise SettingError(
                "dtype", f"the engine onnx runs an encoder in float32, not {self.dtype}; use torch"
            )
        for label, index in self.indexes.items():
            for key, value in (("shards", index.shards or 1), ("parts", index.parts)):
                if value > self.shards:
                    raise SettingError(
                        f"indexes.{label}.{key}", f"{value}; the database has {self.shards} shards"
                    )
        return self


class StalenessSettings(Section):
    """A comparison of what stale and fresh queries find (PipeRAG, Table 2).

    The key is its label in file names.
    """

    database: Annotated[str, NO_OPTION] = Field(
        description="label of the chunk database; default: the key"
    )
    index: str = Field("ivf", description="label of the database's index that is searched")
    evaluation: str | None = Field(
        None, description="label of an evaluation set; default: the held-out text"
    )
    encoder: str = Field(
        "minilm", description="encoder that compares the chunks: a name in the catalog, or a source"
    )
    engine: Literal["onnx", "torch"] = Field("onnx", description="what runs the encoder")
    nprobe: int | None = Field(
        None, ge=1, description="lists (IVF) or candidates (HNSW); default: the index's own"
    )
    tokens: int = Field(1024, ge=128, description="tokens per held-out text")
    minutes: float = Field(
        720.0, gt=0, description="minutes after which no further text is compared"
    )
    limit: int | None = Field(None, ge=1, description="number of texts; default: all held-out text")
