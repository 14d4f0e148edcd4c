"""A decoder and what it runs on: an entry of the section `models`."""

import json
from datetime import date
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, field_validator, model_validator

from ragauge.assets import catalog
from ragauge.assets.catalog import Template, Tokenization
from ragauge.cost.hardware import AnyDtype, CacheType, Device, Kernels, Precision, Weights
from ragauge.engines import backend, protocol
from ragauge.errors import SettingError, UserError
from ragauge.io import safe_yaml
from ragauge.io.sections import NO_OPTION, Recorded, Section
from ragauge.io.specifications import EngineFacts, FinderFacts, ServedFacts
from ragauge.methods.base.method import Method
from ragauge.methods.evidence.account import NO_TRAINING, TrainedDefaults
from ragauge.methods.prompts.templates import TEMPLATE_DATE

AFFECTS_RESULTS = False

SERVED = "openai:"  # begins the source of a model behind a server


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
    timeout_s: Annotated[float, Recorded.NEVER] = Field(
        600.0,
        gt=0,
        description="seconds until the first token, and between two; three times that for all",
    )
    attempts: Annotated[int, Recorded.NEVER] = Field(
        5, ge=1, description="requests for one answer, with growing pauses between them"
    )
    own_cache: bool = Field(
        False,
        description="a line of each variant in front of its prompts: the server's cache has none of another's",
    )
    price: Annotated[Price | None, Recorded.NEVER] = Field(
        None, description="price of the tokens; default: tables show no costs"
    )

    @property
    def engine_options(self) -> dict[str, Any]:
        """The keys that the engine takes."""
        return self.model_dump(exclude={"own_cache", "price"})


class ModelEntry(Section):
    """A decoder. The key is its label in file names and tables."""

    source: Annotated[str, NO_OPTION] = Field(
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
        "each token; int4, the blocks of a GGUF file as they are; all but full: CPU only",
    )
    kv: CacheType = Field(
        "full",
        description="storage of keys and values: full, in the dtype; int8_stored, int4_stored, "
        "those of stored documents in 8 or 4 bits",
    )
    device: Device = Field("cpu", description="where the decoder runs")
    kernels: Kernels | None = Field(
        None,
        description="CPU kernels: measured, the fastest by `ragauge doctor kernels`; default, torch's own; default: "
        "measured",
    )
    max_context: int | None = Field(
        None, ge=1, description="maximum context in tokens; default: the trained one"
    )
    resources: Annotated[Resources, Recorded.NEVER, NO_OPTION] = Field(
        Resources(), description="resources of a job with this model"
    )
    template: Template | None = Field(
        None, description="prompt template; default: the catalog's, else the tokenizer's"
    )
    tokenization: Annotated[Tokenization | None, NO_OPTION] = Field(
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
    training: Annotated[str | None, Recorded.NEVER, NO_OPTION] = Field(
        None, description="label of the training that makes it, in place of a source"
    )
    finder: Annotated[str | None, Recorded.NEVER, NO_OPTION] = Field(
        None, description="model (label) that finds evidence or chooses tokens; default: itself"
    )
    served: Annotated[Served | None, NO_OPTION] = Field(
        None, description="requests to a model with source openai:NAME"
    )
    methods: Annotated[list[str] | None, Recorded.NEVER, NO_OPTION] = Field(
        None, description="names of the variants that run on it; default: all"
    )
    datasets: Annotated[list[str] | None, Recorded.NEVER, NO_OPTION] = Field(
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
            raise SettingError(
                "engine",
                f"{self.engine!r} does not run {self.source!r}; engine openai runs sources openai:NAME only",
            )
        if self.served is None:
            for key, value in (("weights", self.weights), ("kv", self.kv)):
                if value != "full" and self.engine != "torch":
                    raise SettingError(
                        key,
                        f"{value!r} needs engine 'torch', not {self.engine!r}; known there: full",
                    )
            if self.weights != "full" and self.device != "cpu":
                raise SettingError(
                    "weights",
                    f"{self.weights!r} is not available on device {self.device!r}"
                    "; known there: full",
                )
            return self
        if self.engine != "openai":
            raise SettingError(
                "served", "only valid for models behind a server (source openai:NAME)"
            )
        decided = {"dtype", "weights", "kv", "device", "kernels", "training", "finder"}
        stated = self.model_dump(include={*decided, "template_arguments"}, exclude_defaults=True)
        for key, value in stated.items():
            raise SettingError(key, f"{value!r}: a served model runs as its server decides")
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
        """The facts of the engine that answers depend on; a served model runs as its server decides."""
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

    def adapt(self, method: Method, where: str, trained: TrainedDefaults = NO_TRAINING) -> Method:
        """A copy of the method adapted to the engine, and to what the model was trained for.

        Args:
            where: the method's place, for messages.
            trained: how the model that finds evidence was trained to be asked.

        Raises:
            UserError: the engine lacks what the method needs, or an option contradicts the
                training.
        """
        able = backend.capabilities(self.engine, where)
        adapted = method.adapted_to(able).adapted_to_training(trained, where)
        lacking = protocol.mismatch(protocol.ANSWERING | adapted.required(), able)
        if lacking:
            here = (
                "; it needs the local engine, 'torch'" if protocol.Capability.SERVER in able else ""
            )
            here += f", or {method.without_caches}" if here and method.without_caches else ""
            raise UserError(
                f"{where}: {lacking}; engine {self.engine!r} has {protocol.describe(able)}{here}"
            )
        return adapted
