"""What a training is: the section `training` of an experiment's configuration, and the options of RETRO-fit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from ragauge import registry
from ragauge.cost.hardware import Device
from ragauge.evidence.request import Wording
from ragauge.prompts.templates import Template

ENDPOINT = "endpoint"  # as a writer: the model that RAGAUGE_WRITER_URL and RAGAUGE_WRITER_MODEL name


def _number(value: Any) -> Any:
    """`1e-5` as the number that it is meant to be: YAML 1.1 takes it for text, for want of a point."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


Number = Annotated[float, BeforeValidator(_number)]


class Data(BaseModel):
    """What a decoder is fine-tuned on: documents with spans, and a question for each of these."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    model: str = Field(description="the decoder to begin with: a name of the catalog, or a source as in `models`")
    seed: int = Field(0, description="seed of the documents, the spans and the training order")
    corpora: list[str] = Field(
        ["wikipedia-sample"],
        min_length=1,
        description="where articles are from: files, corpora of the catalog or of the hub, as databases name them",
    )
    corpus_documents: int | None = Field(
        None, ge=1, description="texts read of each corpus, from its first; default: all"
    )
    writer: str = Field("smollm2-135m-instruct", description="the model that writes the questions, or 'endpoint'")
    documents: int = Field(64, ge=1, description="stretches of articles to train on, as far as there are so many")
    held_out_documents: int = Field(6, ge=0, description="articles of which a stretch each gives the held-out loss")
    document_tokens: int = Field(768, ge=32, description="longest stretch of an article that is one document")
    min_characters: int = Field(4000, ge=0, description="shortest article that counts as long")
    spans: int = Field(6, ge=1, description="spans drawn in a document, and questions asked of it")
    span_sentences: int = Field(3, ge=1, description="most sentences of a span")
    near_duplicate: float = Field(
        0.4, gt=0, le=1, description="Jaccard similarity of 100-word pieces from which an article is evaluation text"
    )


class Training(Data):
    """Supervised fine-tuning of a decoder to CFIC's request for evidence. The key is its label."""

    template: Template | None = Field(
        None, description="how prompts are wrapped; default: as for any model of this source"
    )
    request: Wording = Field("paper", description="wording of the request for evidence: the paper's, or `copy`")
    engine: Literal["deepspeed", "torch"] = Field(
        "deepspeed", description="DeepSpeed ZeRO-2, or plain torch on one process in float32"
    )
    processes: int = Field(1, ge=1, description="processes: GPUs on device cuda")
    device: Device = Field("cpu", description="where it trains")
    dtype: Literal["float32", "bfloat16"] = Field(
        "bfloat16", description="type of forward and backward passes; the optimizer's weights are float32"
    )
    steps: int = Field(600, ge=1, description="optimizer steps")
    minutes: float | None = Field(
        None, gt=0, description="wall-clock time after which training ends before its steps; default: no bound"
    )
    accumulation: int = Field(8, ge=1, description="documents a step and process")
    lr: Number = Field(1e-5, gt=0, description="AdamW's learning rate, after the warm-up")
    eps: Number = Field(1e-8, gt=0, description="AdamW's epsilon")
    weight_decay: Number = Field(0.0, ge=0, description="AdamW's weight decay")
    warmup_steps: int = Field(20, ge=0, description="steps over which the learning rate rises")
    clip: float = Field(1.0, gt=0, description="largest norm of a step's gradient")
    max_length: int = Field(2048, ge=64, description="most tokens of a document, a request and a response together")
    gradient_checkpointing: bool = Field(True, description="activations are computed again on the way back")
    checkpoint_steps: int = Field(50, ge=1, description="steps after which a killed run can go on")
    evaluate_steps: int = Field(50, ge=1, description="steps after which the held-out loss is taken")

    def data(self) -> Data:
        """The settings that the data rest on, and no others."""
        return Data(**self.model_dump(include=set(Data.model_fields)))


class RetrofitSettings(BaseModel):
    """RETRO-fit: training a frozen decoder to use retrieved neighbours."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    form: str = Field(
        "joint",
        description="how neighbours are read",
        json_schema_extra={"enum": list(registry.names("trainable form"))},
    )
    minutes: float = Field(8.0, gt=0, description="wall-clock time, all runs together")
    rank: int = Field(8, ge=1, description="form joint: rank of the low-rank terms")
    cross_layers: int = Field(3, ge=1, description="form cross_attention: layers of the decoder that get it")
    encoder_layers: int = Field(
        2, ge=1, description="form cross_attention: layers of the encoder, the decoder's first ones, copied"
    )
    rate: float = Field(2e-3, gt=0, description="learning rate after the warm-up")
    warmup: int = Field(10, ge=1, description="steps over which the learning rate rises")
    batch: int = Field(4, ge=1, description="texts per step")
    chunks: int = Field(3, ge=2, description="chunks of a text")
    k: int = Field(2, ge=1, description="neighbours per window")
    held_out: int = Field(16, ge=1, description="texts of the curve")
    curve_every_s: float = Field(60.0, gt=0, description="seconds between points of the curve")
    seed: int = Field(0, description="seed of the texts and the initial weights")

    @field_validator("form")
    @classmethod
    def _trainable(cls, form: str) -> str:
        """Raise UserError with the choices where there is none of that name."""
        registry.module_name("trainable form", form)
        return form
