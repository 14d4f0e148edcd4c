"""The configuration of an experiment as typed sections; `loading` reads and checks it.

`python -m ragauge.config.schema FILE` writes the JSON schema of a configuration file.
"""

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Discriminator,
    Field,
    InstanceOf,
    SerializationInfo,
    Tag,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from ragauge import registry
from ragauge.assets import pins
from ragauge.config.defaults import NAMED_BY_KEY, completed
from ragauge.config.model import ModelEntry
from ragauge.config.protocols import LatencySettings, LoadSettings, PositiveCount, StreamSettings
from ragauge.cost.hardware import Device, Dtype
from ragauge.errors import UserError
from ragauge.io.sections import LABEL, Label, Section
from ragauge.methods.base import making
from ragauge.methods.base.method import Method
from ragauge.pipelines.retrieval.settings import (
    DatabaseSettings,
    EvaluationSetSettings,
    StalenessSettings,
)
from ragauge.pipelines.settings import PipelineSettings
from ragauge.training.settings import ENDPOINT, TrainingSettings

AFFECTS_RESULTS = False


class DatasetEntry(Section):
    """A data set, or a part or reordering of one. The key is its label in file names and tables."""

    dataset: str = Field(description="name of the data set; default: the key")
    data: str | None = Field(
        None, description="official file, .jsonl or .jsonl.gz; default: the data set's own source"
    )
    revision: str | None = Field(
        None, description="commit, tag or branch of the data set's repository on the hub"
    )
    sha256: str | None = Field(
        None, description="hash of the official file, downloaded or named by `data`"
    )
    skip: int = Field(
        0, ge=0, description="first questions to leave out, such as those that choices were made on"
    )
    limit: int | None = Field(
        None, ge=1, description="number of questions, from the first not skipped; default: all"
    )
    seed: int | None = Field(
        None, description="seed of the order of the documents; default: the experiment's seed"
    )
    max_new_tokens: int | None = Field(
        None, ge=1, description="tokens of an answer; default: those of `generation`"
    )
    options: dict[str, Any] = Field({}, description="the data set's own options")
    jobs: int = Field(
        1,
        ge=1,
        description="jobs that share a variant's questions; their records are gathered in order",
    )

    @field_validator("sha256")
    @classmethod
    def _is_a_hash(cls, sha256: str | None) -> str | None:
        if sha256 is not None and not pins.HASH.fullmatch(sha256):
            raise UserError(f"{sha256!r} must be 64 digits of 0-9a-f")
        return sha256


class VariantEntry(Section, json_schema_extra={"additionalProperties": True}):
    """A method with its parameters. The key is the variant's name; keys not listed here are the
    method's parameters.
    """

    method: str = Field(description="name of the method; default: the key")
    datasets: list[str] | None = Field(
        None, description="labels of the data sets it runs on; default: all"
    )
    limit: int | None = Field(
        None, ge=1, description="number of questions, where fewer than the data set has"
    )
    instance: SkipJsonSchema[InstanceOf[Method]] = Field(
        description="the method with its parameters, made when the configuration is read"
    )

    @model_serializer
    def _as_stated(self, info: SerializationInfo) -> dict[str, Any]:
        own = {"method": self.method, "datasets": self.datasets, "limit": self.limit}
        stated = {key: v for key, v in own.items() if v is not None or not info.exclude_none}
        return {**stated, **self.instance.stated_options}


def with_instances(variants: Any) -> Any:
    """Make the method of each entry of the section `methods` from the keys that are its parameters.

    Raises:
        UserError: an unknown method or parameter, or a value out of range.
    """
    if not isinstance(variants, dict):
        return variants
    own = VariantEntry.model_fields.keys() - {"instance"}
    checked = {}
    for label, entry in variants.items():
        checked[label] = entry
        is_variant = re.fullmatch(LABEL, str(label)) and isinstance(entry, dict)
        name = entry.get("method") if is_variant else None
        if isinstance(name, str):
            registry.module_name("method", name, f"methods.{label}.method")
            parameters = {key: value for key, value in entry.items() if key not in own}
            checked[label] = {key: entry[key] for key in own & entry.keys()}
            checked[label]["instance"] = making.make(name, f"methods.{label}", **parameters)
    return checked


class Generation(Section):
    """How answers are generated; decoding is greedy."""

    max_new_tokens: int | None = Field(
        None,
        ge=1,
        description="tokens after which an answer ends; default: the data set's own, else 100",
    )
    batch: PositiveCount | Literal["auto"] = Field(
        1,
        description="questions answered together, without times of their own; auto: as many as are worth it",
    )
    documents_gb: float = Field(
        0, ge=0, description="disk space of a model for documents' keys and values; 0: none"
    )


# The tags are what pydantic names the two forms by in the path of a mistake (`reading._NOT_KEYS`).
Protocols = Annotated[
    Annotated[LatencySettings, Tag("one protocol")]
    | Annotated[list[LatencySettings], Tag("several protocols"), Field(min_length=1)],
    Discriminator(
        lambda stated: "several protocols" if isinstance(stated, list) else "one protocol"
    ),
]


class JudgeSettings(Section):
    """The judge of whether evidence supports the answers (CFIC, Table 7), or of the answers."""

    methods: list[str] = Field(min_length=1, description="names of the variants that are judged")
    of: Literal["evidence", "faithfulness", "answers"] = Field(
        "evidence",
        description="evidence: whether it supports the right answer; faithfulness: that, and whether it is faithful to "
        "the documents, which the judge reads whole; answers: by the question's passages",
    )
    model: str = Field(
        ENDPOINT,
        description="a local judge, as the source of a model; default: RAGAUGE_JUDGE_URL's",
    )
    dtype: Dtype = Field("float32", description="type of a local judge's weights")
    device: Device = Field("cpu", description="where a judge on this machine runs")
    limit: int | None = Field(
        None, ge=1, description="questions of each data set, drawn at random; default: all"
    )


class Sections(Section, title="Config"):
    """An experiment of ragauge."""

    run: Label = Field(description="name of the experiment: results/<run>/ and reports/<run>/")
    version: Literal[1] = Field(1, description="of the form of this file; a newer one is refused")
    seed: int = Field(
        0, description="seed of everything random: document orders, bootstrap samples"
    )
    models: dict[Label, ModelEntry] = Field(min_length=1, description="the decoders, by label")
    datasets: dict[Label, DatasetEntry] = Field({}, description="the data sets, by label")
    methods: dict[Label, VariantEntry] = Field(
        {}, description="the method variants, one line each, by name"
    )
    training: dict[Label, TrainingSettings] = Field(
        {}, description="the fine-tunings that make models, by label"
    )
    databases: dict[Label, DatabaseSettings] = Field(
        {}, description="the chunk databases and their indexes, by label"
    )
    pipelines: dict[Label, PipelineSettings] = Field(
        {}, description="runs of generation with retrieval, by label"
    )
    staleness: dict[Label, StalenessSettings] = Field(
        {}, description="comparisons of stale with fresh queries"
    )
    generation: Generation = Generation()
    latency: Protocols | None = Field(
        None, description="one latency protocol, or several on different data sets"
    )
    load: LoadSettings | None = Field(None, description="the measurement under load; default: none")
    stream: StreamSettings | None = Field(
        None, description="the measurement on a stream of questions; default: none"
    )
    target_first_token_s: float | None = Field(
        None,
        gt=0,
        description="wait for the first token that the report's first screen starts with; default: none",
    )
    judge: JudgeSettings | None = Field(
        None, description="the judge of evidence or answers; default: none"
    )
    human_judgements: str | None = Field(
        None,
        description=(
            "CSV of people's judgements of evidence, with columns dataset, model, variant (labels), key, person, label "
            "(supported, partially_supported, not_supported) and faithful (yes, no); default: none"
        ),
    )
    items: Literal["all"] | list[str] = Field(
        "all", description="the tables and figures that are rendered"
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        data = completed(data)
        return data | {"methods": with_instances(data.get("methods", {}))}


def schema() -> str:
    """The JSON schema of a configuration file, in which names that the keys give may be left out."""
    document = Sections.model_json_schema()
    for section, key in NAMED_BY_KEY.items():
        [entry] = document["properties"][section]["patternProperties"].values()
        document["$defs"][entry["$ref"].rpartition("/")[2]]["required"].remove(key)
    document["$defs"][EvaluationSetSettings.__name__]["required"].remove("corpus")
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema(), encoding="utf-8")
