"""One way of generating with retrieval: an entry of the section `pipelines` of an experiment's configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from ragauge.generation.windows import CHUNK


class PipelineSettings(BaseModel):
    """A schedule of retrieval over held-out text. The key is its label in file names and tables."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    schedule: Literal["no_retrieval", "retrieve_once", "random", "retro", "retro_plus", "piperag"] = Field(
        description="when the database is asked, and what generation waits for; default: the key"
    )
    task: Literal["perplexity", "generate"] = Field("perplexity", description="score given text, or continue it")
    model: str | None = Field(None, description="label of the decoder; default: the first of the experiment")
    database: str | None = Field(None, description="label of the chunk database; default: the first of the experiment")
    index: str = Field("ivf", description="label of the database's index that is asked")
    interval: int = Field(64, ge=1, le=64, description="tokens between retrievals; it divides 64")
    neighbours: int = Field(2, ge=1, description="neighbours of a retrieval")
    nprobe: int | Literal["hide"] | None = Field(
        None, description="inverted lists scanned; hide: as many as decoding hides; default: the index's own number"
    )
    exclude: Literal["none", "article"] = Field(
        "none", description="article: no neighbours from the text's own article"
    )
    characters: int | None = Field(
        None, ge=1, description="ask with the query's last characters, as the released code does; default: with tokens"
    )
    form: Literal["joint", "cross_attention", "retro"] = Field(
        "joint",
        description=(
            "how a decoder reads neighbours; cross_attention is nothing before it was trained; retro is not the model "
            "but RETRO at its paper's sizes, with an encoder of neighbours"
        ),
    )
    weights: str | None = Field(
        None,
        description="of the form retro: a file of its tensors, safetensors or torch's; default: random, for latency",
    )
    engine: Literal["torch", "onnx"] = Field(
        "torch",
        description="what runs the decoder; onnx exports it first, and knows the forms joint and retro",
    )
    reach: int | None = Field(None, ge=0, description="most tokens between neighbours and window; default: no bound")
    read_ahead: bool = Field(
        True, description="piperag: the thread that asks reads the neighbours too, beside decoding"
    )
    bias: float = Field(0.0, description="added to the attention scores of neighbours' keys")
    retrofit_minutes: float | None = Field(
        None, gt=0, description="neighbours are read with weights that were trained so long; default: untrained"
    )
    tokens: int = Field(1024, ge=66, description="of a sequence")
    limit: int | None = Field(None, ge=1, description="sequences; default: all of the held-out text")
    trials: int = Field(1, ge=1, description="timed generations of a sequence, after one that is not timed")
    retrieval_cores: str | None = Field(None, description="processor cores of the server, as in 1 or 1-3; default: all")
    cores: str | None = Field(None, description="processor cores of the decoder; default: all")
    threads: int | None = Field(None, ge=1, description="of the decoder; default: torch's own choice")

    def problem(self) -> str | None:
        """The first key whose value does not go with the others, and why; None where all do."""
        if CHUNK % self.interval:
            return f"interval: {self.interval} does not divide the {CHUNK} tokens of a chunk"
        if self.schedule == "retro" and self.interval != CHUNK:
            return f"interval: the schedule retro asks every {CHUNK} tokens, not {self.interval}; retro_plus at any"
        if self.nprobe == "hide" and self.schedule != "piperag":
            return f"nprobe: hide is of the schedule piperag alone, not of {self.schedule}"
        if isinstance(self.nprobe, int) and self.nprobe < 1:
            return f"nprobe: must be at least 1, not {self.nprobe}"
        if self.form == "cross_attention" and self.retrofit_minutes is None:
            return "form: cross_attention reads nothing before it was trained; give retrofit_minutes"
        if self.form == "retro" and self.retrofit_minutes is not None:
            return "retrofit_minutes: trains a decoder to read neighbours; the form retro is made for it"
        if self.weights is not None and self.form != "retro":
            return f"weights: are of the form retro alone, not of {self.form}"
        if self.form == "retro" and self.weights is None and self.task == "perplexity":
            return "task: perplexity of random weights says nothing; give weights, or generate"
        if self.form == "cross_attention" and self.engine == "onnx":
            return f"engine: onnx reads neighbours by the forms joint and retro, not by {self.form}"
        if self.form != "joint" and (self.reach is not None or self.bias):
            return f"form: reach and bias are of the form joint alone, not of {self.form}"
        return None

    @property
    def asks(self) -> bool:
        """Whether it needs an index."""
        return self.schedule not in ("no_retrieval", "random")
