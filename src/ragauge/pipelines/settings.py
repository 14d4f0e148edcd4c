"""One way of generating with retrieval: an entry of the section `pipelines` of an experiment's
configuration.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Literal, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from ragauge import registry
from ragauge.assets import resolver
from ragauge.cost.hardware import AUTO, ONNX_DTYPES
from ragauge.errors import SettingError, UserError
from ragauge.io.sections import Section
from ragauge.pipelines import modes
from ragauge.pipelines.modes.base import Mode
from ragauge.pipelines.service.settings import check_address
from ragauge.pipelines.windows import CHUNK

if TYPE_CHECKING:
    from ragauge.pipelines.schedules.base import Schedule


def _count_or_hide(value: object) -> object:
    """A number of inverted lists as the command line has it is text."""
    made = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not (made is None or made == "hide" or (isinstance(made, int) and made >= 1)):
        raise UserError(f"must be a whole number from 1, or 'hide', not {value!r}")
    return made


def _of_modes(option: str, text: str) -> str:
    """The description of an option that only some modes have."""
    return f"mode {', '.join(modes.with_option(option))}: {text}"


_BY_ONNX = ", ".join(name for name, mode in modes.kinds().items() if "onnx" in mode.engines)


class PipelineSettings(Section):
    """A schedule of retrieval over held-out text. The key is its label in file names and tables."""

    schedule: str = Field(
        description="when the database is queried, and what generation waits for; default: the key"
    )
    task: Literal["perplexity", "generate"] = Field(
        "perplexity", description="score text, or continue 64 tokens of it"
    )
    scoring: Literal["published", "after_first_query"] = Field(
        "published",
        description="published: every label of the first `limit` texts, cut at `tokens`; after_first_query: of "
        "sequences of `tokens`, what follows the first 64",
    )
    model: str | None = Field(
        None, description="label of the decoder; default: the first of the configuration"
    )
    database: str | None = Field(
        None, description="label of the database; default: the first of the configuration"
    )
    index: str = Field("ivf", description="label of the database's index that is searched")
    evaluation: str | None = Field(
        None, description="label of an evaluation set; default: the held-out text"
    )
    interval: int = Field(64, ge=1, le=64, description="tokens between retrievals; must divide 64")
    neighbours: int = Field(2, ge=1, description="neighbours per retrieval")
    nprobe: Annotated[int | Literal["hide"] | None, BeforeValidator(_count_or_hide)] = Field(
        None,
        description="inverted lists to scan; hide (piperag): as many as decoding hides; default: the index's own",
    )
    first_nprobe: int | None = Field(
        None, ge=1, description="nprobe hide: of the first search; default: the index's"
    )
    exclude: Literal["none", "article"] = Field(
        "none", description="article: none from the text's own article"
    )
    characters: int | None = Field(
        None, ge=1, description="query with text of so many characters; default: tokens"
    )
    mode: str = Field(
        "joint",
        description=f"how neighbours are read; {modes.describe()}",
        json_schema_extra={"enum": list(registry.names("mode"))},
    )
    weights: str | None = Field(
        None,
        description=_of_modes(
            "weights", "a safetensors or torch file; default: the model's own, or random"
        ),
    )
    engine: Literal["torch", "onnx"] = Field(
        "torch", description=f"of the decoder; onnx ({_BY_ONNX}) exports it first"
    )
    reach: int | None = Field(
        None,
        ge=0,
        description=_of_modes("reach", "most tokens from neighbours to window; default: unlimited"),
    )
    read_ahead: bool = Field(
        True, description="schedule piperag: the thread that searches reads neighbours as well"
    )
    bias: float = Field(
        0.0, description=_of_modes("bias", "added to the attention scores of neighbours' keys")
    )
    retrofit_minutes: float | None = Field(
        None, gt=0, description="minutes of RETRO-fit training; default: untrained"
    )
    adapters: str | None = Field(
        None, description="weights of RETRO-fit, in safetensors, instead of retrofit_minutes"
    )
    tokens: int = Field(
        1024, ge=CHUNK + 2, description="tokens per sequence, or most tokens of a text"
    )
    limit: int | None = Field(
        None, ge=1, description="number of sequences; default: all held-out text"
    )
    trials: int = Field(
        1, ge=1, description="timed generations per sequence, after an untimed one if several"
    )
    retrieval_cores: str | None = Field(
        None, description="cores of the retrieval server, such as 1-3; default: all"
    )
    server: Annotated[list[str], Field(min_length=1)] | Literal["job"] | None = Field(
        None,
        description="addresses of running servers, host:port, one for each part of the index; job: one job of the "
        "workflow serves all pipelines that say so; default: a server is started for the run",
    )
    server_threads: int = Field(
        1, ge=1, le=1024, description="threads of the server that is a job of its own"
    )
    tls_ca: str | None = Field(
        None, description="CA certificates of the servers', a PEM file; default: no TLS"
    )
    tls_name: str | None = Field(
        None, description="name on the servers' certificate; default: that of their address"
    )
    token_file: str | None = Field(
        None, description="file of the token that the servers require; default: none"
    )
    server_cert: str | None = Field(
        None, description="certificate chain, PEM, of a job's server for other machines"
    )
    server_key: str | None = Field(
        None, description="private key of that certificate, a PEM file; default: none"
    )
    cores: str | None = Field(
        None, description="processor cores of the decoder, such as 0 or 0-3; default: all"
    )
    threads: int | None = Field(
        None, ge=1, description="threads of the decoder; default: torch's own choice"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Raise SettingError at the first key whose value does not go with the others."""
        self.make_schedule()
        # nothing is decoded that could hide a search
        if self.chooses_nprobe and self.task == "perplexity":
            raise SettingError(
                "nprobe", "'hide' requires task 'generate'; to score text, give a fixed nprobe"
            )
        mode = self.mode_class
        if self.retrofit_minutes is not None and self.adapters is not None:
            raise SettingError("adapters", "give these or retrofit_minutes, not both")
        stated = {
            key
            for key, field in type(self).model_fields.items()
            if getattr(self, key) != field.default
        }
        for key in sorted(stated - mode.option_names()):
            if names := modes.with_option(key):
                raise SettingError(
                    key, f"only valid with mode {' or '.join(map(repr, names))}, not {self.mode!r}"
                )
        if mode.needs_training and not (self.retrofit_minutes or self.adapters):
            raise SettingError(
                "mode", f"{self.mode!r} must be trained first; give retrofit_minutes or adapters"
            )
        if self.engine not in mode.engines:
            known = ", ".join(mode.engines)
            raise SettingError(
                "engine", f"{self.engine!r} does not run mode {self.mode!r}; known: {known}"
            )
        self._check_server()
        return self

    def _check_server(self) -> None:
        for address in self.addresses:
            try:
                check_address(address)
            except UserError as error:
                raise SettingError("server", str(error)) from None
        if self.server and not self.asks_index:
            raise SettingError("server", f"schedule {self.schedule!r} asks no index")
        of_jobs = ("server_cert", "server_key", "server_threads")
        of_servers = ("tls_ca", "tls_name", "token_file")
        for keys, there, needed in (
            (of_jobs, self.has_server_job, "server: job"),
            (of_servers, self.server, "server"),
        ):
            for key in keys:
                if not there and getattr(self, key) != type(self).model_fields[key].default:
                    raise SettingError(key, f"only valid with {needed}")
        access = {
            key: getattr(self, key) for key in ("server_cert", "server_key", "tls_ca", "token_file")
        }
        missing = ", ".join(key for key, value in access.items() if value is None)
        if self.has_server_job and any(access.values()) and missing:
            raise SettingError(
                "server", f"job: a server that other machines may ask requires {missing} as well"
            )

    @property
    def mode_class(self) -> type[Mode]:
        try:
            return modes.kind(self.mode)
        except UserError as error:
            raise SettingError("mode", str(error)) from None

    @property
    def schedule_class(self) -> type[Schedule]:
        from ragauge.pipelines.schedules.base import Schedule  # which imports numpy

        try:
            return cast(type[Schedule], registry.component("schedule", self.schedule, Schedule))
        except UserError as error:
            raise SettingError("schedule", str(error)) from None

    def make_schedule(self, seed: int = 0) -> Schedule:
        kind = self.schedule_class
        return kind(**self.model_dump(include={field.name for field in fields(kind)}), seed=seed)

    @property
    def asks_index(self) -> bool:
        return self.schedule_class.asks_index

    @property
    def addresses(self) -> list[str]:
        """Of servers that run already."""
        return self.server if isinstance(self.server, list) else []

    @property
    def has_server_job(self) -> bool:
        """Whether the workflow serves its index in a job of its own."""
        return self.server == "job"

    @property
    def chooses_nprobe(self) -> bool:
        """Whether nprobe is chosen so that decoding hides the search (PipeRAG's S3)."""
        return self.nprobe == "hide"


def check_model(settings: PipelineSettings, model: str, dtype: str, device: str) -> None:
    """Raise SettingError if a pipeline's engine does not run its model, or it would score with
    random weights. `model` is its source, which may be a checkpoint of a mode with a model of its
    own.
    """
    if settings.engine == "onnx" and dtype not in (AUTO, *ONNX_DTYPES[device]):
        known = " or ".join(ONNX_DTYPES[device])
        raise SettingError(
            "engine", f"'onnx' requires a decoder in {known} on device {device!r}, not {dtype}"
        )
    own = (
        settings.mode_class.own_model and settings.weights is None and settings.task == "perplexity"
    )
    if own and not resolver.is_retro(model):
        known = "give a model that is a checkpoint of RETRO, or weights"
        raise SettingError("task", f"'perplexity' is meaningless with random weights; {known}")
