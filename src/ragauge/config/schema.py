"""The configuration of an experiment as typed sections; `loading` reads and checks it.

`python -m ragauge.config.schema FILE` writes the JSON schema of a configuration file.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import date
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import yaml
from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    field_validator,
    model_validator,
)

from ragauge import registry
from ragauge.assets import catalog, pins
from ragauge.assets.catalog import Template, Tokenization
from ragauge.config.defaults import NAMED_BY_KEY, completed
from ragauge.config.protocols import Count, LatencySettings, LoadSettings, StreamSettings
from ragauge.cost.hardware import AnyDtype, CacheType, Device, Dtype, Precision, Weights
from ragauge.datasets.base import loader
from ragauge.datasets.base.dataset import Dataset
from ragauge.datasets.study import RETRIEVAL
from ragauge.engines import backend, protocol
from ragauge.errors import SettingError, UserError
from ragauge.io import safe_yaml
from ragauge.io.sections import Section
from ragauge.io.specifications import AnswerSpecification, EngineFacts, FinderFacts, ServedFacts
from ragauge.methods.base import making
from ragauge.methods.base.method import Method
from ragauge.methods.prompts.templates import TEMPLATE_DATE
from ragauge.pipelines.retrieval.settings import (
    DatabaseSettings,
    EvaluationSetSettings,
    StalenessSettings,
)
from ragauge.pipelines.settings import PipelineSettings
from ragauge.pipelines.specification import PipelineSpecification, describe_index, specify_pipeline
from ragauge.training.settings import ENDPOINT, TrainingSettings

VERSION = 1  # of the form of configurations; one that states none is of this version
SERVED = "openai:"  # begins the source of a model behind a server

Protocol = Literal["latency", "load", "stream"]  # of times: a section of the configuration

# A label becomes the name of a file or folder.
Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class Resources(Section):
    """Resources of one job, for the scheduler."""

    gpu: int | None = Field(
        None, ge=0, description="GPUs; default: 1 where the device is cuda, else 0"
    )
    mem_mb: int = Field(6000, ge=1, description="memory of the machine, megabytes")
    runtime: int = Field(720, ge=1, description="minutes")


class Price(Section):
    """The price of a server's tokens, per million."""

    prompt: float = Field(ge=0, description="tokens of prompts that are not in the server's cache")
    cached: float | None = Field(
        None, ge=0, description="tokens of prompts in its cache; default: as other prompts"
    )
    new: float = Field(ge=0, description="generated tokens")
    currency: str = Field("USD", description="currency of all three")


class Served(Section):
    """The requests to a model behind a server."""

    environment: str = Field(
        "OPENAI",
        pattern=r"^[A-Z][A-Z0-9_]*$",
        description="prefix of <prefix>_BASE_URL and <prefix>_API_KEY",
    )
    tokenizer: str | None = Field(
        None, description="an asset whose tokenizer counts prompts; default: words, roughly"
    )
    body: dict[str, Any] = Field(
        {}, description="further keys of every request; a key with null is left out"
    )
    concurrency: int | None = Field(
        None, ge=1, description="requests at a time; default: generation.batch; auto: 1"
    )
    timeout_s: float = Field(
        600.0, gt=0, description="seconds until the first token, and between two tokens"
    )
    attempts: int = Field(
        5, ge=1, description="requests for one answer, with growing pauses between them"
    )
    own_cache: bool = Field(
        False,
        description="a line of each variant in front of its prompts: the server's cache has none of another's",
    )
    price: Price | None = Field(
        None, description="price of the tokens; default: tables show no costs"
    )

    @property
    def engine_options(self) -> dict[str, Any]:
        """The keys that the engine takes."""
        return self.model_dump(exclude={"own_cache", "price"})


class ModelEntry(Section):
    """A decoder. The key is its label in file names and tables."""

    source: str = Field(
        description="a name in the catalog, hf:org/name, pypi:name==version, https://..., path:/folder or openai:NAME, "
        "a model behind an OpenAI-compatible server; default: the key"
    )
    engine: str = Field(
        "torch",
        description="engine that runs the model, openai for openai:NAME; only torch is timed",
    )
    dtype: AnyDtype = Field(
        "auto", description="data type; auto: the faster of float32 and bfloat16 on this machine"
    )
    weights: Weights = Field(
        "full",
        description="storage of matrices: full, in the dtype; int8, multiplied with activations rounded to 8 bits for "
        "each token; int8_weight_only, with activations as they are; 8 bits: CPU only",
    )
    kv: CacheType = Field(
        "full", description="storage of keys and values: full, in the dtype; int8, on a CPU only"
    )
    device: Device = Field("cpu", description="where the decoder runs")
    kernels: str | None = Field(
        None,
        description="CPU kernels: measured, the fastest by `ragauge doctor kernels`; default, torch's own; or the file "
        "of a table that `doctor` wrote; default: measured",
    )
    max_context: int | None = Field(
        None, ge=1, description="maximum context in tokens; default: the trained one"
    )
    resources: Resources = Field(Resources(), description="resources of a job with this model")
    template: Template | None = Field(
        None, description="prompt template; default: the catalog's, else the tokenizer's"
    )
    tokenization: Tokenization | None = Field(
        None, description="of prompts; default: the catalog's, else whole"
    )
    template_arguments: dict[str, Any] = Field(
        {},
        description="arguments of the tokenizer's chat template, as {enable_thinking: false}; default: none",
    )
    template_date: str = Field(
        TEMPLATE_DATE,
        description="date of the run for chat templates that write one, as '2025-01-31'",
    )
    training: str | None = Field(
        None, description="label of the training that makes it, in place of a source"
    )
    finder: str | None = Field(
        None, description="model (label) that finds evidence or chooses tokens; default: itself"
    )
    served: Served | None = Field(None, description="requests to a model with source openai:NAME")
    methods: list[str] | None = Field(
        None, description="names of the variants that run on it; default: all"
    )
    datasets: list[str] | None = Field(
        None, description="labels of the data sets that it answers; default: all"
    )

    @field_validator("template_arguments", "template_date", mode="before")
    @classmethod
    def _as_json(cls, stated: Any, key: Any) -> Any:
        """The command line gives YAML; dates become texts."""
        is_date = key.field_name == "template_date"
        try:
            read = json.loads(
                json.dumps(
                    safe_yaml.load(stated) if isinstance(stated, str) else stated, default=str
                )
            )
            return date.fromisoformat(read).isoformat() if is_date else read
        except (yaml.YAMLError, TypeError, ValueError):
            example = (
                "a date such as 2025-01-31" if is_date else "YAML such as {enable_thinking: false}"
            )
            raise UserError(f"{stated!r} must be {example}") from None

    @field_validator("source")
    @classmethod
    def _as_the_catalog_spells_it(cls, source: str) -> str:
        return catalog.spelled(source)

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, data: Any) -> Any:
        """The source openai:NAME implies its engine."""
        if not isinstance(data, dict) or not str(data.get("source")).startswith(SERVED):
            return data
        return {**data, "engine": data.get("engine", "openai"), "served": data.get("served") or {}}

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if (self.engine == "openai") != self.source.startswith(SERVED):
            mismatch = f"{self.engine!r} does not run {self.source!r}; engine openai runs sources openai:NAME only"
            raise SettingError("engine", mismatch)
        if self.served is None:
            for key, value in (("weights", self.weights), ("kv", self.kv)):
                if value != "full" and self.device != "cpu":
                    raise SettingError(
                        key,
                        f"{value!r} is not available on device {self.device!r}; known there: full",
                    )
            return self
        if self.engine != "openai":
            raise SettingError(
                "served", "only valid for models behind a server (source openai:NAME)"
            )
        for key in (
            "dtype",
            "weights",
            "kv",
            "device",
            "kernels",
            "training",
            "finder",
            "template_arguments",
        ):
            if getattr(self, key) != ModelEntry.model_fields[key].default:
                raise SettingError(
                    key, f"{getattr(self, key)!r}: a served model runs as its server decides"
                )
        if self.source == SERVED:
            raise SettingError(
                "source", "openai: must be followed by the model's name, as its server knows it"
            )
        return self

    @property
    def precision(self) -> Precision:
        return Precision(self.dtype, self.weights, self.kv)

    @property
    def engine_facts(self) -> EngineFacts:
        """What answers depend on in the engine; a served model runs as its server decides."""
        served = self.served and ServedFacts(
            **self.served.model_dump(include=set(ServedFacts.model_fields))
        )
        keys = {"max_context", "weights", "kv"} | (set[str]() if served else {"dtype", "device"})
        return EngineFacts(name=self.engine, served=served, **self.model_dump(include=keys))

    @property
    def finder_facts(self) -> FinderFacts:
        """The model as one that finds evidence, in the data type and on the device of the one that
        answers.
        """
        return FinderFacts(
            model=self.source,
            max_context=self.max_context,
            template=self.template,
            **self.template_facts,
        )

    @property
    def template_facts(self) -> dict[str, Any]:
        """How the tokenizer's chat template is rendered, as specifications have it."""
        return {"template_arguments": self.template_arguments, "template_date": self.template_date}

    def adapt(self, method: Method, where: str) -> Method:
        """A copy of the method adapted to the engine. Raises UserError if that lacks what the
        method needs.
        """
        able = backend.capabilities(self.engine, where)
        adapted = method.adapted_to(able)
        if lacking := protocol.mismatch(protocol.ANSWERING | adapted.required(), able):
            here = (
                "; it needs the local engine, 'torch'" if protocol.Capability.SERVER in able else ""
            )
            here += f", or {method.without_caches}" if here and method.without_caches else ""
            raise UserError(
                f"{where}: {lacking}; engine {self.engine!r} has {protocol.describe(able)}{here}"
            )
        return adapted


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


class VariantEntry(BaseModel, extra="allow", strict=True, frozen=True):
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

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def options(self) -> dict[str, Any]:
        return asdict(self.make())

    def make(self, where: str = "") -> Method:
        """The method with its options checked; `where` begins the message of a mistake."""
        return making.make(self.method, where, **self.params)


class Generation(Section):
    """How answers are generated; decoding is greedy."""

    max_new_tokens: int | None = Field(
        None,
        ge=1,
        description="tokens after which an answer ends; default: the data set's own, else 100",
    )
    batch: Count | Literal["auto"] = Field(
        1,
        description="questions answered together, without times of their own; auto: as many as are worth it",
    )
    documents_gb: float = Field(
        0, ge=0, description="disk space of a model for documents' keys and values; 0: none"
    )


# The tags are what pydantic names the two forms by in the path of a mistake (`reading.NOT_KEYS`).
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


class Answers(NamedTuple):
    """One job: a method variant answers the questions of a data set with a model. All three are
    labels.
    """

    dataset: str
    model: str
    variant: str


class Config(Section):
    """An experiment of ragauge."""

    run: Label = Field(description="name of the experiment: results/<run>/ and reports/<run>/")
    version: int = Field(
        VERSION, ge=1, description="of the form of this file; a newer one is refused"
    )
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
        """Refuses what a newer version wrote before any of its keys is called unknown."""
        version = data.get("version") if isinstance(data, dict) else None
        if type(version) is int and version > VERSION:
            raise SettingError(
                "version", f"{version}: this ragauge reads configurations up to version {VERSION}"
            )
        return completed(data) if isinstance(data, dict) else data

    @property
    def protocols(self) -> tuple[LatencySettings, ...]:
        """The latency protocols, each on a data set of its own."""
        return tuple(protocol for _, protocol in self.placed_protocols())

    def protocol(self, dataset: str) -> LatencySettings | None:
        return next((protocol for protocol in self.protocols if protocol.dataset == dataset), None)

    def placed_protocols(self) -> Iterator[tuple[str, LatencySettings]]:
        """The path of each protocol's keys, and the protocol."""
        if isinstance(self.latency, list):
            yield from (
                (f"latency.{place}", protocol) for place, protocol in enumerate(self.latency)
            )
        elif self.latency:
            yield "latency", self.latency

    def pipeline_model(self, pipeline: PipelineSettings) -> str:
        return pipeline.model or next(iter(self.models))

    def pipeline_database(self, pipeline: PipelineSettings) -> str:
        return pipeline.database or next(iter(self.databases))

    def pipeline_specification(self, pipeline: PipelineSettings) -> PipelineSpecification:
        """Return what the records of a pipeline depend on, as far as the configuration says."""
        model = self.pipeline_model(pipeline)
        database = self.pipeline_database(pipeline)
        index = None
        if pipeline.queries_index:
            recipe = self.databases[database].indexes[pipeline.index]
            index = describe_index(pipeline.index, recipe.model_dump())
        decoder = self.models[model].model_dump(include={"source", "dtype", "device"})
        return specify_pipeline(
            pipeline, model=model, database=database, index=index, seed=self.seed, **decoder
        )

    def servers(self) -> dict[tuple[str, str], list[str]]:
        """The servers that are jobs of their own, by database and index, with the labels of the
        pipelines that ask.
        """
        servers: dict[tuple[str, str], list[str]] = {}
        for label, pipeline in self.pipelines.items():
            if pipeline.has_server_job:
                servers.setdefault((self.pipeline_database(pipeline), pipeline.index), []).append(
                    label
                )
        return servers

    def server_threads(self, server: tuple[str, str]) -> int:
        """Of a server that is a job: the most that one of its pipelines names."""
        return max(self.pipelines[label].server_threads for label in self.servers()[server])

    def evaluation_texts(self) -> list[str]:
        """The labels of the texts that pipelines predict: what databases hold out, and their
        evaluation sets.
        """
        return [
            *self.databases,
            *(name for database in self.databases.values() for name in database.evaluation_sets),
        ]

    def judged(self) -> Iterator[Answers]:
        yield from (
            job for job in self.answers() if self.judge and job.variant in self.judge.methods
        )

    def answers(self) -> Iterator[Answers]:
        for dataset, (label, model), (name, variant) in product(
            self.datasets, self.models.items(), self.methods.items()
        ):
            chosen = (dataset, variant.datasets), (dataset, model.datasets), (name, model.methods)
            if all(among is None or one in among for one, among in chosen):
                yield Answers(dataset, label, name)

    def limit(self, job: Answers) -> int | None:
        """The number of questions of a job; None is all that the data set has."""
        return min(
            filter(None, (self.datasets[job.dataset].limit, self.methods[job.variant].limit)),
            default=None,
        )

    def method(self, job: Answers) -> Method:
        """The method of a job with its options, adapted to the engine of its model."""
        where = f"methods.{job.variant}"
        made = self.methods[job.variant].make(where)
        return self.models[job.model].adapt(made, f"{where} on models.{job.model}")

    def dataset(self, label: str) -> Dataset:
        entry = self.datasets[label]
        return loader.make(entry.dataset, seed=self.dataset_seed(label), **entry.options)

    def specification(self, job: Answers) -> AnswerSpecification:
        """Everything that the records of a job depend on, but for the hashes of files."""
        variant = self.methods[job.variant]
        model = self.models[job.model]
        method = self.method(job)
        finder = self.models[model.finder] if model.finder and method.finds else None
        name = self.datasets[job.dataset].dataset
        dataset = self.dataset(job.dataset)
        tokens = self.max_new_tokens(job.dataset)
        return specify(variant.method, method, name, dataset, model, tokens, finder)

    def measured(self, protocol: Protocol) -> list[tuple[str, str]]:
        """The (data set, model) pairs of a protocol: those that are timed, or measured under load
        or on a stream. Unless named, no model trained here or whose finder a method needs, nor one
        of another engine than torch: the protocols time calls on caches.
        """
        pairs = []
        plain = {
            label: m
            for label, m in self.models.items()
            if (m.training, m.engine) == (None, "torch")
        }
        for section in filter(
            None, self.protocols if protocol == "latency" else (getattr(self, protocol),)
        ):
            finds = self.finds(section.methods)
            alone = {label: m for label, m in plain.items() if not (m.finder and finds)}
            fit = [
                label
                for label, m in alone.items()
                if m.datasets is None or section.dataset in m.datasets
            ]
            pairs += [(section.dataset, label) for label in getattr(section, "models", None) or fit]
        return pairs

    def finds(self, variants: Iterable[str]) -> bool:
        """Whether one of them lets the model's finder search or choose, where it has one."""
        return any(self.methods[name].make().finds for name in variants)

    def evaluation(self, training: str) -> dict[str, int | None]:
        """The data sets (labels) that models of a training answer, and how many of their first
        questions; None: all.
        """
        limits: dict[str, list[int | None]] = {}
        for job in self.answers():
            if training in self.trainings(job.model):
                limits.setdefault(job.dataset, []).append(self.limit(job))
        return {
            name: None if None in known else max(filter(None, known))
            for name, known in limits.items()
        }

    def retrievals(self) -> dict[str, Path]:
        """The files of retrieved passages of the studies among the data sets (labels)."""
        studies = {
            label: entry.data for label, entry in self.datasets.items() if entry.dataset == "study"
        }
        return {label: Path(data).with_name(RETRIEVAL) for label, data in studies.items() if data}

    def trainings(self, model: str) -> list[str]:
        """The trainings (labels) that a model and what finds evidence for it come from."""
        entry = self.models[model]
        return list(
            filter(
                None, [entry.training, self.models[entry.finder].training if entry.finder else None]
            )
        )

    def gpus(self, model: str) -> int:
        gpus = self.models[model].resources.gpu
        return int(self.models[model].device == "cuda") if gpus is None else gpus

    def max_new_tokens(self, dataset: str) -> int:
        stated = self.datasets[dataset].max_new_tokens or self.generation.max_new_tokens
        return stated or self.dataset(dataset).max_new_tokens or 100

    def dataset_seed(self, label: str) -> int:
        seed = self.datasets[label].seed
        return self.seed if seed is None else seed

    def item_names(self) -> list[str]:
        """The items that are rendered; where all are, those of studies only if a study is among the
        data sets.
        """
        if self.items != "all":
            return list(self.items)
        studies = any(entry.dataset == "study" for entry in self.datasets.values())
        return [name for name in registry.names("item") if studies or not name.startswith("study_")]

    def plan(self) -> str:
        jobs = list(self.answers())
        counted = sum(self.limit(job) or 0 for job in jobs)
        whole = dict.fromkeys(job.dataset for job in jobs if self.limit(job) is None)
        counts = [f"{counted:,} questions"] if counted else []
        counts += [f"all questions of {', '.join(whole)}"] if whole else []
        protocols = [
            protocol
            for dataset, _ in self.measured("latency")
            if (protocol := self.protocol(dataset))
        ]
        timed = sum(protocol.trials * len(protocol.methods) for protocol in protocols)
        requests = self.load.all_requests * len(self.measured("load")) if self.load else 0
        stream = self.stream
        streamed = (
            len(stream.methods) * stream.requests * len(self.measured("stream")) if stream else 0
        )
        lines: list[tuple[str, object, str]] = [
            ("run", True, f"{self.run} (results/{self.run}, reports/{self.run})"),
            ("models", True, ", ".join(self.models)),
            *(
                ("training", True, f"{label}: {t.model}, up to {t.steps} steps")
                for label, t in self.training.items()
            ),
            *(
                ("data set", True, f"{label}: {d.limit or 'all'} questions")
                for label, d in self.datasets.items()
            ),
            ("methods", self.methods, f"{len(self.methods)} variants: {', '.join(self.methods)}"),
            ("answers", jobs, f"{len(jobs)} jobs, {' and '.join(counts)}"),
            ("latency", timed, f"{timed} timed trials"),
            ("load", requests, f"{requests} requests"),
            ("stream", streamed, f"{streamed} requests"),
            ("pipelines", self.pipelines, f"{len(self.pipelines)}: {', '.join(self.pipelines)}"),
            ("items", True, ", ".join(self.item_names()) or "none"),
        ]
        return "\n".join(f"{name:9} {text}" for name, has_any, text in lines if has_any)


def specify(
    name: str,
    method: Method,
    dataset_name: str,
    dataset: Dataset,
    model: ModelEntry,
    max_new_tokens: int,
    finder: ModelEntry | None = None,
) -> AnswerSpecification:
    """What records depend on, without the hashes of files, which are read where a job runs. Names
    are those in the registry; `finder` is the model that finds evidence, if it is a different one.
    """
    return AnswerSpecification(
        method=name,
        options=asdict(method),
        dataset=dataset_name,
        dataset_options=asdict(dataset),
        instruction=dataset.preamble,
        max_new_tokens=max_new_tokens,
        model=model.source,
        template=model.template or "",
        tokenization=model.tokenization or "whole",
        **model.template_facts,
        engine=model.engine_facts,
        finder=finder.finder_facts if finder else None,
    )


def schema() -> str:
    """The JSON schema of a configuration file, in which names that the keys give may be left out."""
    document = Config.model_json_schema()
    for section, key in NAMED_BY_KEY.items():
        [entry] = document["properties"][section]["patternProperties"].values()
        document["$defs"][entry["$ref"].rpartition("/")[2]]["required"].remove(key)
    document["$defs"][EvaluationSetSettings.__name__]["required"].remove("corpus")
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema(), encoding="utf-8")
