"""The settings of trainings: the section `training` of a configuration, and the options of
RETRO-fit.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ragauge.assets.catalog import Template
from ragauge.cost.hardware import Device
from ragauge.errors import SettingError
from ragauge.io.sections import Section
from ragauge.methods.evidence.request import Wording
from ragauge.methods.evidence.sentences import Splitter
from ragauge.pipelines.modes.base import trainable_modes

# as the writer: the model that RAGAUGE_WRITER_URL and RAGAUGE_WRITER_MODEL name
ENDPOINT = "endpoint"
MAX_GRADIENT_NORM = 1.0  # of a step


# YAML 1.1 reads 1e-5 as text, as it has no decimal point
Number = Annotated[float, Field(strict=False)]


class TrainingDataSettings(Section):
    """The data of fine-tuning: documents with spans, and a question for each span."""

    model: str = Field(
        description="the decoder to train: a name in the catalog, or a source as in `models`"
    )
    seed: int = Field(0, description="seed of the documents, the spans and the training order")
    corpora: list[str] = Field(
        ["wikipedia-sample"], min_length=1, description="sources of articles, as in `databases`"
    )
    corpus_articles: int | None = Field(
        None, ge=1, description="long articles of each corpus at most; default: all"
    )
    writer: str = Field(
        "smollm2-135m-instruct", description="the model that writes the questions, or 'endpoint'"
    )
    documents: int = Field(64, ge=1, description="passages of articles to train on")
    held_out_documents: int = Field(
        6, ge=0, description="held-out articles; one passage of each measures the loss"
    )
    document_tokens: int = Field(
        768, ge=32, description="maximum tokens of a passage, which is one document"
    )
    min_characters: int = Field(4000, ge=0, description="minimum characters of an article")
    spans: int = Field(6, ge=1, description="spans drawn from a document, each with a question")
    span_sentences: int = Field(3, ge=1, description="maximum sentences of a span")
    sentences: Splitter = Field(
        "sentencex", description="what splits sentences; as the option of cfic"
    )
    near_duplicate: float = Field(
        0.4, gt=0, le=1, description="Jaccard similarity to evaluation text that excludes"
    )


class TrainingSettings(TrainingDataSettings):
    """Supervised fine-tuning of a decoder to CFIC's request for evidence. The key is its label."""

    template: Template | None = Field(
        None, description="how prompts are wrapped; default: as for its source's models"
    )
    request: Wording = Field(
        "paper", description="wording of the request for evidence: the paper's, or `copy`"
    )
    engine: Literal["deepspeed", "torch"] = Field(
        "deepspeed", description="torch: one process, float32, no DeepSpeed"
    )
    processes: int = Field(1, ge=1, description="number of processes; on device cuda, of GPUs")
    device: Device = Field("cpu", description="device of the training")
    threads: int | None = Field(
        None, ge=1, description="threads on device cpu; default: one for each core"
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        "bfloat16", description="type of passes; the optimizer has float32"
    )
    steps: int = Field(600, ge=1, description="optimizer steps")
    minutes: float | None = Field(
        None, gt=0, description="minutes after which training ends early; default: no limit"
    )
    accumulation: int = Field(8, ge=1, description="documents per step and process")
    lr: Number = Field(1e-5, gt=0, description="AdamW's learning rate, after the warm-up")
    eps: Number = Field(1e-8, gt=0, description="AdamW's epsilon")
    warmup_steps: int = Field(20, ge=0, description="steps over which the learning rate rises")
    max_length: int = Field(
        2048, ge=64, description="maximum tokens of a document, a request and a response together"
    )
    rope_scale: float | None = Field(
        None, ge=1, description="divides rotary positions; default: the checkpoint's own"
    )
    gradient_checkpointing: bool = Field(
        True, description="recompute activations in the backward pass"
    )
    checkpoint_steps: int = Field(50, ge=1, description="steps between checkpoints")
    evaluate_steps: int = Field(
        50, ge=1, description="steps between measurements of the held-out loss"
    )

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if self.engine == "torch" and self.dtype != "float32":
            raise SettingError("dtype", f"{self.dtype!r} needs engine 'deepspeed'; known: float32")
        if self.engine == "torch" and self.processes > 1:
            raise SettingError("processes", f"{self.processes} need engine 'deepspeed'")
        return self

    def on_processes(self, count: int) -> Self:
        """Return the same training on at most so many processes, each of which accumulates more
        documents of a step.
        """
        step = self.processes * self.accumulation
        processes = max(n for n in range(1, min(count, self.processes) + 1) if step % n == 0)
        return self.model_copy(update={"processes": processes, "accumulation": step // processes})

    def data(self) -> TrainingDataSettings:
        """Return the settings that the data depend on, and no others."""
        return TrainingDataSettings(
            **self.model_dump(include=set(TrainingDataSettings.model_fields))
        )


class RetrofitSettings(Section):
    """RETRO-fit: training a frozen decoder to use retrieved neighbours."""

    mode: str = Field(
        "joint",
        description="how neighbours are read",
        json_schema_extra={"enum": [*trainable_modes()]},
    )
    minutes: float = Field(8.0, gt=0, description="wall-clock time of all runs together")
    rate: float = Field(2e-3, gt=0, description="learning rate after the warm-up")
    warmup: int = Field(10, ge=1, description="steps over which the learning rate rises")
    batch: int = Field(4, ge=1, description="texts per step")
    chunks: int = Field(3, ge=2, description="chunks of a text")
    k: int = Field(2, ge=1, description="neighbours per window")
    held_out: int = Field(16, ge=1, description="texts of the curve")
    seed: int = Field(0, description="seed of the texts and the initial weights")
    curve_every_s: float = Field(60.0, gt=0, description="seconds between points of the curve")
